"""Alignment of two extractions of the same statements: relations mapped to relations, facts matched to facts.

Facts are compared by entity keys within one statement. Relation names differ, so the extraction's are first mapped to the
reference's (`map_relations`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from eval.results import Result
from offline.entity_keys import entity_key
from offline.graph import Edge, Graph
from offline.records import Extraction, StatementExtraction, Triple

Both = tuple[StatementExtraction, StatementExtraction]  # (extraction, reference) of one text
# An unmapped relation is (its name,), which equals no name. A fact is (subject key, relation, object key).
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
    """A fact of the reference matched to a fact of the extraction."""

    kind: ErrorKind | None  # of error; None if the facts are equal
    extraction: Triple | None
    reference: Triple | None


class Mapped(Result, frozen=True):
    """A relation and the reference relation with which it shares most (subject, object) pairs."""

    relation: str
    reference: str
    straight: int  # shared pairs in the same order
    exchanged: int  # shared pairs in reverse order


def in_common(extraction: Extraction, reference: Extraction) -> list[Both]:
    """Both extractions of each shared text, in the extraction's order."""
    theirs = {statement.text: statement for statement in reference.statements}
    return [(statement, theirs[statement.text]) for statement in extraction.statements if statement.text in theirs]


def fact_of(triple: Triple, relation: Named) -> Fact:
    """A triple's fact under this relation."""
    return entity_key(triple.subject), relation, entity_key(triple.object)


def map_relations(pairs: Iterable[Both]) -> dict[str, Mapped]:
    """Map each relation to the reference relation with which it shares most (subject, object) pairs within statements.

    Pairs in the same and in reverse order are counted separately; the larger count decides. Ties: the reference relation with
    fewer pairs, so that a part is not mapped to the whole; then the same name; then the first name.
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
    """The reference relation to which a relation of the extraction is mapped."""
    return mapping[name].reference if name in mapping else (name,)


def align(ours: StatementExtraction, theirs: StatementExtraction, mapping: Mapping[str, Mapped]) -> list[Aligned]:
    """Align the facts of one statement: every reference fact once, then every unmatched fact of the extraction.

    Equal facts first (several of the extraction may equal one reference fact, under names mapped to the same relation). The
    rest is paired one to one by error kind in the order of `ERRORS`, preferring the same relation, then statement order.
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
    """Whether any occurrence of `a` in a text overlaps any occurrence of `b`."""
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
    """The aligned facts of two extractions, text by text."""

    def __init__(self, pairs: Sequence[Both], mapping: Mapping[str, Mapped]) -> None:
        self.texts = {ours.text: align(ours, theirs, mapping) for ours, theirs in pairs}
        self._facts: dict[tuple[str, Fact], list[Aligned]] = {}
        for text, found in self.texts.items():
            for aligned in found:
                if (triple := aligned.reference) is not None:
                    self._facts.setdefault((text, fact_of(triple, triple.relation)), []).append(aligned)

    def of(self, text: str, edge: Edge) -> list[Aligned]:
        """The matches of a reference assertion made by a statement with this text."""
        return self._facts[text, (edge.subject, edge.relation, edge.target)]

    def stands(self, text: str, edge: Edge, graph: Graph) -> bool:
        """Whether a match of the assertion is current in the extraction's graph."""
        triples = (found.extraction for found in self.of(text, edge))
        facts = [fact_of(triple, triple.relation) for triple in triples if triple is not None]
        current = (graph.current.get((subject, str(relation))) for subject, relation, _ in facts)
        return any(
            now is not None and now.position == edge.position and now.target == target
            for now, (_, _, target) in zip(current, facts, strict=True)
        )
