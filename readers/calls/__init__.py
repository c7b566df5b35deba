"""Calls of an algorithm to a model, and what answers them."""

from readers.calls.caller import Ask

__all__ = ["Ask"]
