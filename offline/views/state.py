"""Views that do not look at the question."""

from offline.memory import Memory, Selection
from offline.records import Question


def latest_state(memory: Memory, question: Question) -> Selection:
    """Every current edge."""
    return memory.latest_state


def stale_state(memory: Memory, question: Question) -> Selection:
    """Every key's previous value."""
    return memory.stale_state


def raw_history(memory: Memory, question: Question) -> Selection:
    """Every statement."""
    return memory.raw_history


def closed_book(memory: Memory, question: Question) -> Selection:
    """No evidence: what the model believes."""
    return Selection((), structured=False)
