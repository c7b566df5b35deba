"""Calls of an algorithm to a model, and the sources that answer them."""

from readers.calls.caller import Ask

__all__ = ["Ask"]
