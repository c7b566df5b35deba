"""Model pins, token ids, engines and seals: packets in, sealed predictions out. Nothing here can name an answer."""
