"""The compiled memory graph: current values, previous values, anchors, bounded traversal (spec §5).

A key is (normalised subject, relation). Each occurrence of a key, in position order, replaces its edge. Compiling is one
pass; an anchor search costs the words of the question, not the subjects of the graph.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from offline.entity_keys import entity_key, entity_words
from offline.records import Extraction, History

Key = tuple[str, str]


class Edge(msgspec.Struct, frozen=True, gc=False):
    """One assertion."""

    position: int
    subject: str  # entity key
    relation: str
    target: str  # entity key of the object
    surface: str  # the subject as written
    value: str  # the object as written

    @property
    def key(self) -> Key:
        """The slot that this assertion fills."""
        return (self.subject, self.relation)


@dataclass(slots=True)
class _Node:
    """A node of the word trie of subjects."""

    next: dict[str, "_Node"] = field(default_factory=dict)
    subject: str | None = None  # the one that ends here


class SubjectIndex:
    """Finds the graph subjects that occur in a text as whole word spans."""

    def __init__(self, subjects: Iterable[str]) -> None:
        self._root: dict[str, _Node] = {}
        for subject in subjects:
            level = self._root
            node = None
            for word in subject.split():
                node = level.setdefault(word, _Node())
                level = node.next
            if node is not None:
                node.subject = subject

    def anchors(self, text: str) -> tuple[str, ...]:
        """Subjects found in `text`, in order of appearance, each once.

        A span inside a longer matched span is dropped. Spans are scanned from the left and only the longest match at a
        start can escape containment, so a span is contained exactly if an earlier start reaches as far.
        """
        words = entity_words(text)
        root = self._root
        found: dict[str, None] = {}
        reached = 0
        for start, word in enumerate(words):
            node = root.get(word)
            if node is None:
                continue
            longest, end, at = node.subject, start + 1, start + 1
            while at < len(words) and (node := node.next.get(words[at])) is not None:
                at += 1
                if node.subject is not None:
                    longest, end = node.subject, at
            if longest is not None and end > reached:
                reached = end
                found[longest] = None
        return tuple(found)


class Graph:
    """Current and previous edges of one history, and its unresolved records."""

    def __init__(self, edges: Iterable[Edge], unresolved: Sequence[int]) -> None:
        current: dict[Key, Edge] = {}
        different: dict[Key, Edge] = {}
        for edge in edges:
            key = (edge.subject, edge.relation)
            last = current.get(key)
            # The newest edge with another object: the last edge if the object changes now, else the one kept before.
            if last is not None and last.target != edge.target:
                different[key] = last
            current[key] = edge
        self.current = current  # by key, in order of first statement
        self.previous = {key: different.get(key, edge) for key, edge in current.items()}  # the same keys
        self.unresolved = tuple(unresolved)  # positions of statements kept as text, ascending
        self.out = _by_subject(self.current)  # by subject
        self.out_previous = _by_subject(self.previous)
        self.subjects = SubjectIndex(self.out)

    def closure(self, anchors: Sequence[str], hops: int, *, previous: bool = False) -> list[Key]:
        """Keys reached breadth-first from the anchors over out-edges of subjects at depth 0 to hops-1, each key once.

        `previous` walks the previous-value graph. A subject is expanded once, at its shortest depth, so cycles end.
        """
        out = self.out_previous if previous else self.out
        seen = set(anchors)
        frontier: list[str] = list(dict.fromkeys(anchors))
        keys: list[Key] = []
        for _ in range(hops):
            following: list[str] = []
            for subject in frontier:
                for edge in out.get(subject, ()):
                    keys.append((subject, edge.relation))
                    if edge.target not in seen:
                        seen.add(edge.target)
                        following.append(edge.target)
            if not following:
                break
            frontier = following
        return keys


def _by_subject(edges: dict[Key, Edge]) -> dict[str, tuple[Edge, ...]]:
    out: dict[str, list[Edge]] = {}
    for edge in edges.values():
        out.setdefault(edge.subject, []).append(edge)
    return {subject: tuple(given) for subject, given in out.items()}


def assertions(history: History, extraction: Extraction) -> Iterator[Edge]:
    """Every assertion of a history, in position order. Several histories may share an extraction."""
    triples = {statement.text: statement.triples for statement in extraction.statements}
    for statement in history.statements:
        for triple in triples[statement.text]:
            yield Edge(
                statement.position,
                entity_key(triple.subject),
                triple.relation,
                entity_key(triple.object),
                triple.subject,
                triple.object,
            )


def compile_graph(history: History, extraction: Extraction) -> Graph:
    """Replay a history's assertions in position order into a graph."""
    unresolved = {statement.text for statement in extraction.statements if statement.status == "unresolved"}
    return Graph(
        assertions(history, extraction),
        [statement.position for statement in history.statements if statement.text in unresolved],
    )
