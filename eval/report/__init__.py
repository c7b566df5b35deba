"""A scored run as one page."""
