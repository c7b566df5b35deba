"""Views that rank current facts by the question's words."""

from offline.memory import Memory, Selection
from offline.records import Question
from offline.views import VIEWS
from offline.views.graph import cmc


@VIEWS.register("fact_bm25")
def fact_bm25(memory: Memory, question: Question) -> Selection:
    """The k current facts that BM25 ranks first."""
    return Selection(tuple(edge.position for edge in memory.rank_facts(question.text)))


@VIEWS.register("fact_bm25_matched")
def fact_bm25_matched(memory: Memory, question: Question) -> Selection:
    """Whole facts of that ranking that still fit cmc's evidence length; one that does not fit is skipped."""
    shown = memory.render(memory.settle(cmc(memory, question)))
    unresolved = set(memory.graph.unresolved)
    room = len(shown.text) - len(memory.heading)
    room -= sum(1 + len(memory.line(position)) for position in shown.positions if position in unresolved)
    chosen: dict[int, None] = {}
    for edge in memory.rank_facts(question.text):
        size = 1 + len(memory.line(edge.position))
        if edge.position not in chosen and edge.position not in unresolved and size <= room:
            chosen[edge.position] = None
            room -= size
    return Selection(tuple(chosen), may_fall_back=False)
