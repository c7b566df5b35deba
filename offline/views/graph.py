"""Traversal views: what the compiler shows, and its two controls."""

from offline.memory import Memory, Selection
from offline.records import Question


def cmc(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """Resolve, then traverse: current values of the keys that the current graph reaches."""
    return Selection(memory.positions(memory.closure(question.text, hops)))


def stale_closure(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """cmc's keys with their previous values."""
    return Selection(memory.positions(memory.closure(question.text, hops), previous=True))


def prior_refresh(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """Keys that the previous-value graph reaches, shown with their current values."""
    return Selection(memory.positions(memory.closure(question.text, hops, previous=True)))
