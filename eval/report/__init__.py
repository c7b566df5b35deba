"""A scored run as a single page."""
