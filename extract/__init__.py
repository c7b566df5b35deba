"""Statements to assertions: frontends that see source text only, never a question or a label."""
