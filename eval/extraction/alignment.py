"""Two extractions of the same statements, side by side: relations that are mapped to each other, facts that stand for facts.

Facts are compared by entity keys, inside one statement; the names of relations differ, so those of the extraction are first
mapped to those of the reference (`map_relations`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from eval.results import Result
from offline.entity_keys import entity_key
from offline.graph import Edge, Graph
from offline.records import Extraction, StatementExtraction, Triple

# What the extraction and the reference made of one text.
Both = tuple[StatementExtraction, StatementExtraction]
# Subject's key, relation, object's key. A relation that is mapped to none is (its name,), which equals no name.
Named = str | tuple[str]
Fact = tuple[str, Named, str]

ErrorKind = Literal["relation", "direction", "span", "missing", "unresolved", "no_fact", "extra"]
ERRORS: dict[ErrorKind, str] = {
    "relation": "the same subject and object, another relation",
    "direction": "subject and object exchanged",
    "span": "a subject or object that differs and overlaps",
    "missing": "the statement has facts, this one not",
    "unresolved": "the statement is left to the reader",
    "no_fact": "the statement is taken to state nothing",
    "extra": "a fact that the reference does not have",
}


class Aligned(Result, frozen=True):
    """A fact of the reference and the fact of the extraction that stands for it; kind: the error, None where they are equal."""

    kind: ErrorKind | None
    extraction: Triple | None
    reference: Triple | None


class Mapped(Result, frozen=True):
    """A relation and the reference's that it shares most pairs of subject and object with: straight or exchanged so many."""

    relation: str
    reference: str
    straight: int
    exchanged: int


def in_common(extraction: Extraction, reference: Extraction) -> list[Both]:
    """What both made of each text that both have, in the extraction's order."""
    theirs = {statement.text: statement for statement in reference.statements}
    return [(statement, theirs[statement.text]) for statement in extraction.statements if statement.text in theirs]


def fact_of(triple: Triple, relation: Named) -> Fact:
    """The fact that a triple states, under this relation."""
    return entity_key(triple.subject), relation, entity_key(triple.object)


def map_relations(pairs: Iterable[Both]) -> dict[str, Mapped]:
    """Each relation that shares a pair of subject and object with the reference in some statement: with which it shares most.

    Pairs in the same and in exchanged order are counted apart, and the larger count decides. Ties: the reference relation with
    fewer pairs, so that a part is not taken for its whole; then the same name; then the first name.
    """
    straight: Counter[tuple[str, str]] = Counter()
    exchanged: Counter[tuple[str, str]] = Counter()
    sizes: Counter[str] = Counter()
    for ours, theirs in pairs:
        wanted = {(entity_key(t.subject), t.relation, entity_key(t.object)) for t in theirs.triples}
        sizes.update(relation for _, relation, _ in wanted)
        for subject, name, target in {(entity_key(t.subject), t.relation, entity_key(t.object)) for t in ours.triples}:
            for other, relation, end in wanted:
                if (subject, target) == (other, end):
                    straight[name, relation] += 1
                elif (subject, target) == (end, other):
                    exchanged[name, relation] += 1
    candidates: dict[str, set[str]] = defaultdict(set)
    for name, relation in (*straight, *exchanged):
        candidates[name].add(relation)

    def order(name: str, relation: str) -> tuple[int, int, bool, str]:
        shared = max(straight[name, relation], exchanged[name, relation])
        return -shared, sizes[relation], relation != name, relation

    best = {name: min(found, key=lambda relation: order(name, relation)) for name, found in sorted(candidates.items())}
    return {name: Mapped(name, of, straight[name, of], exchanged[name, of]) for name, of in best.items()}


def mapped_name(name: str, mapping: Mapping[str, Mapped]) -> Named:
    """The reference's relation that one of the extraction is mapped to."""
    return mapping[name].reference if name in mapping else (name,)


def align(ours: StatementExtraction, theirs: StatementExtraction, mapping: Mapping[str, Mapped]) -> list[Aligned]:
    """The facts of one statement side by side: each of the reference once, and each of the extraction that stands for none.

    Equal facts first (several of the extraction may equal one of the reference, under names that are mapped alike); what is
    left is paired one to one, kind after kind in the order of `ERRORS`, preferring the same relation, then statement order.
    """
    wanted: dict[Fact, Triple] = {}
    for triple in theirs.triples:
        wanted.setdefault(fact_of(triple, triple.relation), triple)
    given: dict[Fact, list[Triple]] = {}
    for triple in ours.triples:
        given.setdefault(fact_of(triple, mapped_name(triple.relation, mapping)), []).append(triple)
    found = [Aligned(None, triple, wanted[fact]) for fact, same in given.items() if fact in wanted for triple in same]
    rest = {fact: same[0] for fact, same in given.items() if fact not in wanted}
    lacking = {fact: triple for fact, triple in wanted.items() if fact not in given}
    for kind, fits in _FITS.items():
        for fact, triple in tuple(lacking.items()):
            candidates = [other for other in rest if fits(ours.text, rest[other], triple)]
            if candidates:
                same_relation = [other for other in candidates if other[1] == fact[1]]
                found.append(Aligned(kind, rest.pop((same_relation or candidates)[0]), triple))
                del lacking[fact]
    why: ErrorKind = "missing" if ours.status == "facts" else ours.status
    found += [Aligned(why, None, triple) for triple in lacking.values()]
    return found + [Aligned("extra", triple, None) for triple in rest.values()]


def _same(text: str, a: Triple, b: Triple) -> bool:
    return (entity_key(a.subject), entity_key(a.object)) == (entity_key(b.subject), entity_key(b.object))


def _exchanged(text: str, a: Triple, b: Triple) -> bool:
    return (entity_key(a.subject), entity_key(a.object)) == (entity_key(b.object), entity_key(b.subject))


def _overlapping(text: str, a: Triple, b: Triple) -> bool:
    return all(
        entity_key(ours) == entity_key(theirs) or _overlap(text, ours, theirs)
        for ours, theirs in ((a.subject, b.subject), (a.object, b.object))
    )


def _overlap(text: str, a: str, b: str) -> bool:
    """Whether some place of `a` in a text shares a character with some place of `b`."""
    places = list(_places(text, b))
    return any(start < other + len(b) and other < start + len(a) for start in _places(text, a) for other in places)


def _places(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


_FITS: dict[ErrorKind, Callable[[str, Triple, Triple], bool]] = {
    "relation": _same,
    "direction": _exchanged,
    "span": _overlapping,
}


class Alignment:
    """The facts of two extractions side by side, text by text."""

    def __init__(self, pairs: Sequence[Both], mapping: Mapping[str, Mapped]) -> None:
        self.texts = {ours.text: align(ours, theirs, mapping) for ours, theirs in pairs}
        self._facts: dict[tuple[str, Fact], list[Aligned]] = {}
        for text, found in self.texts.items():
            for aligned in found:
                if (triple := aligned.reference) is not None:
                    self._facts.setdefault((text, fact_of(triple, triple.relation)), []).append(aligned)

    def of(self, text: str, edge: Edge) -> list[Aligned]:
        """What became of an assertion of the reference, made by a statement with this text."""
        return self._facts[text, (edge.subject, edge.relation, edge.target)]

    def stands(self, text: str, edge: Edge, graph: Graph) -> bool:
        """Whether what stands for it in the extraction is current in the extraction's graph."""
        triples = (found.extraction for found in self.of(text, edge))
        facts = [fact_of(triple, triple.relation) for triple in triples if triple is not None]
        current = (graph.current.get((subject, str(relation))) for subject, relation, _ in facts)
        return any(
            now is not None and now.position == edge.position and now.target == target
            for now, (_, _, target) in zip(current, facts, strict=True)
        )
