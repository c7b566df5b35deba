"""How good an extraction is, and what follows from it."""
