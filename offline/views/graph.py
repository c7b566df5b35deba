"""Views that walk the graph: what the compiler shows, and its two controls."""

from offline.memory import Memory, Selection
from offline.records import Question
from offline.views import hop_view


@hop_view("cmc")
def cmc(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """Resolve, then traverse: current values of the keys that the current graph reaches."""
    return Selection(memory.positions(memory.closure(question.text, hops)))


@hop_view("stale_closure")
def stale_closure(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """cmc's keys with their previous values."""
    return Selection(memory.positions(memory.closure(question.text, hops), previous=True))


@hop_view("prior_refresh")
def prior_refresh(memory: Memory, question: Question, hops: int | None = None) -> Selection:
    """Keys that the previous-value graph reaches, shown with their current values."""
    return Selection(memory.positions(memory.closure(question.text, hops, previous=True)))
