"""Label screens: gold answers that a person should look at before a number is published.

A screen is a function `(question, golds, memory) -> findings`. It looks at sources and golds, never at a prediction, and
changes no score: what it flags stays in every denominator (spec §8, "Label screen").
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

# Histories repeat their values, and every question of a history asks about them.
_normalise = lru_cache(maxsize=1 << 18)(normalise_answer)


def _speaking(golds: Sequence[str]) -> dict[str, str]:
    """Golds by what the scorer makes of them, without those that it makes nothing of: they are in every text."""
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
    """The current edges that lead from an anchor of the question to the subject of a key that it reaches, shortest way."""
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
    """A gold is an earlier value of a key that the question reaches, and no gold is in a current value of those keys.

    The chain: the current edges that lead to the key, the record that stated the gold (of several the newest, of the first
    such key), and the record that overwrites it. The screen takes the extraction at its word: a statement that it leaves
    unresolved may state the gold once more, so a finding says how many of the history's there are.
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
    """A gold occurs in its own question: whoever repeats the question is right."""
    text = normalise_answer(question.text)
    for normal, gold in _speaking(golds).items():
        if normal in text:
            how = "as words of it" if substring_words_match(question.text, [gold]) else "inside a longer word"
            detail = f"occurs in its question, {how}"
            yield Finding(question=question.id, screen="in_question", gold=gold, detail=detail)


def inside_word(question: Question, golds: Sequence[str], memory: Memory) -> Iterator[Finding]:
    """A gold is inside a longer word of a current value, so that `subem` and `subem_words` disagree on a reader who says it.

    "NBC" in "CNBC", "German" in "Germany". Any current value of the history counts, not only those that the question
    reaches: most views show more than those. The chain holds the newest such record of each value.
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
    """A gold normalises to nothing and would match everything. Loading refuses such a label, so a run should have none."""
    for gold in golds:
        if not normalise_answer(gold):
            yield Finding(question=question.id, screen="void", gold=gold, detail="normalises to nothing")


SCREENS: dict[str, Screen] = {screen.__name__: screen for screen in (superseded, in_question, inside_word, void)}
