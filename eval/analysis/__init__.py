"""What a scored run says: an opened run in, records out. Nothing here prints."""
