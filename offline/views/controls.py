"""The negative control: as much text as cmc shows, and none of its keys."""

import hashlib
import heapq

from offline.memory import Memory, Selection
from offline.records import Question
from offline.views.graph import cmc

# Candidates beyond the first draw that are tried for an equal length.
_POOL = 256


def random_disjoint(memory: Memory, question: Question) -> Selection:
    """Records of current edges outside cmc's keys: as many as cmc's, about as long.

    The first candidates by sha256(seed, question id, position) are drawn. Then, as long as it helps, the swap of a drawn record
    for one of the next candidates that brings the total length closest to cmc's is made.
    """
    shown = set(cmc(memory, question).positions)
    outside = {edge.position for edge in memory.facts} - shown
    prefix = f"{memory.settings.seed}\n{question.id}\n".encode()
    order = ((hashlib.sha256(b"%b%d" % (prefix, position)).digest(), position) for position in outside)
    candidates = [position for _, position in heapq.nsmallest(len(shown) + _POOL, order)]
    drawn, pool = candidates[: len(shown)], candidates[len(shown) :]
    size = {position: memory.measure(memory.line(position)) for position in (*candidates, *shown)}
    missing = sum(size[p] for p in shown) - sum(size[p] for p in drawn)
    while missing and drawn:
        gap, out, into = (
            min((abs(missing - size[into] + size[out]), o, i) for o, out in enumerate(drawn) for i, into in enumerate(pool))
            if pool
            else (abs(missing), 0, 0)
        )
        if gap >= abs(missing):
            break
        missing -= size[pool[into]] - size[drawn[out]]
        drawn[out], pool[into] = pool[into], drawn[out]
    return Selection(tuple(drawn), may_fall_back=False)
