"""Label screens: find gold answers to check by hand before publication.

A screen is a function `(question, golds, memory) -> findings`. It sees sources and golds, never a prediction, and changes no
score: flagged questions stay in every denominator (spec §8, "Label screen").
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from eval.metrics.normalise import normalise_answer
from eval.metrics.subem import substring_exact_match
from eval.metrics.subem_words import substring_words_match
from eval.records import Finding, Link
from offline.graph import Edge, Key
from offline.memory import Memory
from offline.records import Question

Screen = Callable[[Question, Sequence[str], Memory], Iterator[Finding]]

# Values recur within a history and across its questions.
_normalise = lru_cache(maxsize=1 << 18)(normalise_answer)


def _speaking(golds: Sequence[str]) -> dict[str, str]:
    """Golds by normalised form, without those that normalise to nothing, which every text contains."""
    return {normal: gold for gold in golds if (normal := normalise_answer(gold))}


def _link(memory: Memory, edge: Edge) -> Link:
    return Link(
        position=edge.position,
        subject=edge.surface,
        relation=edge.relation,
        value=edge.value,
        record=memory.line(edge.position),
        current=memory.graph.current[edge.key] == edge,
    )


def walk(memory: Memory, question: Question, key: Key) -> list[Edge]:
    """The shortest path of current edges from an anchor of the question to the subject of a reachable key."""
    anchors = memory.graph.subjects.anchors(question.text)
    edges = [memory.graph.current[reached] for reached in memory.closure(question.text)]
    # The closure is breadth-first: the first edge into a subject is the one that discovered it.
    into = {edge.target: edge for edge in reversed(edges)}
    steps: list[Edge] = []
    subject = key[0]
    while subject not in anchors:
        steps.append(into[subject])
        subject = into[subject].subject
    return steps[::-1]


def _unread(memory: Memory) -> str:
    unresolved, statements = len(memory.graph.unresolved), len(memory.history.statements)
    return f"; {unresolved} of the history's {statements} statements are unresolved" if unresolved else ""


def superseded(question: Question, golds: Sequence[str], memory: Memory) -> Iterator[Finding]:
    """A gold is an earlier value of a reachable key, and no gold is a current value of these keys.

    The chain: the current edges that lead to the key, the record that stated the gold (the newest one, of the first such key),
    and the record that overwrites it. An unresolved statement might state the gold again, so a finding gives their number.
    """
    given = _speaking(golds)
    keys = memory.closure(question.text)
    current = [_normalise(memory.graph.current[key].value) for key in keys]
    if any(gold in value for gold in given for value in current):
        return
    for key in keys:
        *earlier, last = memory.stated[key]
        for edge in reversed(earlier):
            if (gold := given.get(_normalise(edge.value))) is not None:
                overwritten = f"record {last.position} overwrites it with {last.value!r}"
                detail = f"record {edge.position} says so, but {overwritten}{_unread(memory)}"
                chain = tuple(_link(memory, step) for step in (*walk(memory, question, key), edge, last))
                yield Finding(question=question.id, screen="superseded", gold=gold, detail=detail, chain=chain)
                return


def in_question(question: Question, golds: Sequence[str], memory: Memory) -> Iterator[Finding]:
    """A gold occurs in its own question, so repeating the question scores as right."""
    text = normalise_answer(question.text)
    for normal, gold in _speaking(golds).items():
        if normal in text:
            how = "as words of it" if substring_words_match(question.text, [gold]) else "inside a longer word"
            detail = f"occurs in its question, {how}"
            yield Finding(question=question.id, screen="in_question", gold=gold, detail=detail)


def inside_word(question: Question, golds: Sequence[str], memory: Memory) -> Iterator[Finding]:
    """A gold is inside a longer word of a current value, so `subem` and `subem_words` disagree on that answer.

    "NBC" in "CNBC", "German" in "Germany". All current values of the history count, since most views show more than the
    reachable ones. The chain holds the newest such record of each value.
    """
    for normal, gold in _speaking(golds).items():
        longer = {
            value: edge
            for value, edge in memory.values.items()
            if normal in _normalise(value) and substring_exact_match(value, [gold]) and not substring_words_match(value, [gold])
        }
        if longer:
            detail = f"a part of a word of {', '.join(map(repr, longer))}"
            chain = tuple(_link(memory, edge) for edge in longer.values())
            yield Finding(question=question.id, screen="inside_word", gold=gold, detail=detail, chain=chain)


def void(question: Question, golds: Sequence[str], memory: Memory) -> Iterator[Finding]:
    """A gold normalises to nothing and would match everything. Loading refuses such labels, so a run should have none."""
    for gold in golds:
        if not normalise_answer(gold):
            yield Finding(question=question.id, screen="void", gold=gold, detail="normalises to nothing")


SCREENS: dict[str, Screen] = {screen.__name__: screen for screen in (superseded, in_question, inside_word, void)}
