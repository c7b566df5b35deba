"""How good an extraction is beside a reference: statuses, names of relations, triples, and which statements state one key.

Pure functions of two extractions of the same statements. Facts are compared by entity keys, inside one statement; the names of
relations differ, so those of the extraction are first mapped to those of the reference (`map_relations`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from offline.entity_keys import entity_key
from offline.graph import Edge, Graph, Key, assertions, compile_graph
from offline.records import Extraction, History, StatementExtraction, Triple

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


class Aligned(msgspec.Struct, frozen=True):
    """A fact of the reference and the fact of the extraction that stands for it; kind: the error, None where they are equal."""

    kind: ErrorKind | None
    extraction: Triple | None
    reference: Triple | None


class Mapped(msgspec.Struct, frozen=True):
    """A relation and the reference's that it shares most pairs of subject and object with: straight or exchanged so many."""

    relation: str
    reference: str
    straight: int
    exchanged: int


def in_common(extraction: Extraction, reference: Extraction) -> list[Both]:
    """What both made of each text that both have, in the extraction's order."""
    theirs = {statement.text: statement for statement in reference.statements}
    return [(statement, theirs[statement.text]) for statement in extraction.statements if statement.text in theirs]


def statuses(pairs: Iterable[Both]) -> list[dict[str, Any]]:
    """The confusion of statuses over distinct texts, with the reasons that each side gives, counted."""
    cells: dict[tuple[str, str], list[Both]] = {}
    for ours, theirs in pairs:
        cells.setdefault((ours.status, theirs.status), []).append((ours, theirs))
    return [
        {
            "extraction": key[0],
            "reference": key[1],
            "texts": len(cells[key]),
            "extraction_reasons": _reasons(ours for ours, _ in cells[key]),
            "reference_reasons": _reasons(theirs for _, theirs in cells[key]),
        }
        for key in sorted(cells)
    ]


def _reasons(statements: Iterable[StatementExtraction]) -> dict[str, int]:
    return dict(Counter(statement.reason for statement in statements if statement.reason is not None).most_common())


def _fact(triple: Triple, relation: Named) -> Fact:
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


def _mapped(name: str, mapping: Mapping[str, Mapped]) -> Named:
    return mapping[name].reference if name in mapping else (name,)


def align(ours: StatementExtraction, theirs: StatementExtraction, mapping: Mapping[str, Mapped]) -> list[Aligned]:
    """The facts of one statement side by side: each of the reference once, and each of the extraction that stands for none.

    Equal facts first (several of the extraction may equal one of the reference, under names that are mapped alike); what is
    left is paired one to one, kind after kind in the order of `ERRORS`, preferring the same relation, then statement order.
    """
    wanted: dict[Fact, Triple] = {}
    for triple in theirs.triples:
        wanted.setdefault(_fact(triple, triple.relation), triple)
    given: dict[Fact, list[Triple]] = {}
    for triple in ours.triples:
        given.setdefault(_fact(triple, _mapped(triple.relation, mapping)), []).append(triple)
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
                    self._facts.setdefault((text, _fact(triple, triple.relation)), []).append(aligned)

    def of(self, text: str, edge: Edge) -> list[Aligned]:
        """What became of an assertion of the reference, made by a statement with this text."""
        return self._facts[text, (edge.subject, edge.relation, edge.target)]

    def stands(self, text: str, edge: Edge, graph: Graph) -> bool:
        """Whether what stands for it in the extraction is current in the extraction's graph."""
        facts = [
            _fact(found.extraction, found.extraction.relation) for found in self.of(text, edge) if found.extraction is not None
        ]
        current = (graph.current.get((subject, str(relation))) for subject, relation, _ in facts)
        return any(
            now is not None and now.position == edge.position and now.target == target
            for now, (_, _, target) in zip(current, facts, strict=True)
        )


def relations(alignment: Alignment, mapping: Mapping[str, Mapped]) -> dict[str, Any]:
    """The mapping, merges and splits, from facts that are equal or differ in relation or direction alone.

    unmapped: relations of the extraction that share no pair with the reference. merges: those whose facts come from two or more
    of the reference; splits: the reverse. Each with the facts of every part, and an example.
    """
    parts: dict[tuple[str, str], list[str]] = {}
    for text, found in alignment.texts.items():
        for aligned in found:
            if (
                aligned.kind in (None, "relation", "direction")
                and aligned.extraction is not None
                and aligned.reference is not None
            ):
                parts.setdefault((aligned.extraction.relation, aligned.reference.relation), []).append(text)
    used = {a.extraction.relation for found in alignment.texts.values() for a in found if a.extraction is not None}
    exchanged = {(theirs, ours): texts for (ours, theirs), texts in parts.items()}
    return {
        "mapping": [msgspec.to_builtins(mapped) for mapped in mapping.values()],
        "unmapped": sorted(used - mapping.keys()),
        "merges": _spread(parts),
        "splits": _spread(exchanged),
    }


def _spread(parts: Mapping[tuple[str, str], Sequence[str]]) -> list[dict[str, Any]]:
    """The first names that go with two or more second ones; the parts with most facts first."""
    by_name: dict[str, list[tuple[str, Sequence[str]]]] = {}
    for (name, part), texts in parts.items():
        by_name.setdefault(name, []).append((part, texts))
    return [
        {
            "relation": name,
            "parts": [
                {"relation": part, "facts": len(texts), "example": texts[0]}
                for part, texts in sorted(found, key=lambda item: (-len(item[1]), item[0]))
            ],
        }
        for name, found in sorted(by_name.items())
        if len(found) > 1
    ]


def agreement(both: int, extraction: int, reference: int) -> dict[str, Any]:
    """Counts, and precision, recall and F1 in percent; None of nothing."""
    shares = {"precision": (both, extraction), "recall": (both, reference), "f1": (2 * both, extraction + reference)}
    return {
        "both": both,
        "extraction": extraction,
        "reference": reference,
        **{name: round(100 * count / of, 2) if of else None for name, (count, of) in shares.items()},
    }


def triples(pairs: Iterable[Both], mapping: Mapping[str, Mapped]) -> dict[str, Any]:
    """Agreement of facts, of (subject, object) whatever the relation, and of keys; sets of each statement, summed."""
    parts: dict[str, Callable[[Fact], Hashable]] = {
        "triples": lambda fact: fact,
        "pairs": lambda fact: (fact[0], fact[2]),
        "keys": lambda fact: fact[:2],
    }
    sums = {name: [0, 0, 0] for name in parts}
    for ours, theirs in pairs:
        given = {_fact(triple, _mapped(triple.relation, mapping)) for triple in ours.triples}
        wanted = {_fact(triple, triple.relation) for triple in theirs.triples}
        for name, part in parts.items():
            a, b = set(map(part, given)), set(map(part, wanted))
            for index, count in enumerate((len(a & b), len(a), len(b))):
                sums[name][index] += count
    return {name: agreement(*counts) for name, counts in sums.items()}


def errors(alignment: Alignment) -> dict[str, Any]:
    """Errors by kind, zeros too, and each of them with its statement."""
    found = [(text, aligned) for text, facts in alignment.texts.items() for aligned in facts if aligned.kind is not None]
    counts = Counter(aligned.kind for _, aligned in found)
    return {
        "counts": {kind: counts[kind] for kind in ERRORS},
        "items": [{"text": text, **msgspec.to_builtins(aligned)} for text, aligned in found],
    }


def linked_pairs(stated: Iterable[tuple[frozenset[Key], frozenset[Key]]]) -> tuple[int, int, int]:
    """Pairs of statements that share a key: by both extractions, by the first, by the second.

    stated: the keys of each statement by the first and by the second. Statements with one key at most are counted by groups: n
    of them under a key are n(n-1)/2 pairs, and likewise n under a pair of keys. One with several keys is linked to as many of
    those as its keys' groups hold (which are disjoint), and to those of its kind that share a key, counted as sets.
    """
    simple: list[tuple[frozenset[Key], frozenset[Key]]] = []
    compound: list[tuple[frozenset[Key], frozenset[Key]]] = []
    for stating in stated:
        (simple if max(map(len, stating)) <= 1 else compound).append(stating)
    groups = (
        Counter((a, b) for first, second in simple for a in first for b in second),
        Counter(a for first, _ in simple for a in first),
        Counter(b for _, second in simple for b in second),
    )
    both, ours, theirs = (sum(n * (n - 1) // 2 for n in group.values()) for group in groups)
    seen: tuple[dict[Key, set[int]], dict[Key, set[int]]] = (defaultdict(set), defaultdict(set))
    for number, stating in enumerate(compound):
        first, second = stating
        sharing = [set().union(*(index[key] for key in keys)) for index, keys in zip(seen, stating, strict=True)]
        both += sum(groups[0][a, b] for a in first for b in second) + len(sharing[0] & sharing[1])
        ours += sum(groups[1][a] for a in first) + len(sharing[0])
        theirs += sum(groups[2][b] for b in second) + len(sharing[1])
        for index, keys in zip(seen, stating, strict=True):
            for key in keys:
                index[key].add(number)
    return both, ours, theirs


def _keys_by_text(extraction: Extraction) -> dict[str, frozenset[Key]]:
    return {s.text: frozenset((entity_key(t.subject), t.relation) for t in s.triples) for s in extraction.statements}


OVERWRITTEN = {
    "wins": "the latest statement is current, no other value is",
    "contradictory": "the latest and an earlier value are both current",
    "stale": "an earlier value is current, the latest is not",
    "lost": "none of its statements is current",
}


def linking(
    histories: Iterable[History], extraction: Extraction, reference: Extraction, alignment: Alignment
) -> dict[str, Any]:
    """Do two statements of one history state the same key? And what became of keys that were overwritten?

    pairs: agreement over all pairs of statements, summed over histories; names of relations need no mapping here. overwritten:
    keys that the reference has with two or more objects, by what is current of them in the extraction's graph (`OVERWRITTEN`).
    """
    ours, theirs = _keys_by_text(extraction), _keys_by_text(reference)
    sums = [0, 0, 0]
    outcomes: Counter[str] = Counter()
    for history in histories:
        counts = linked_pairs((ours[s.text], theirs[s.text]) for s in history.statements)
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        outcomes.update(_outcomes(history, extraction, reference, alignment))
    return {
        "pairs": agreement(*sums),
        "overwritten": {"keys": outcomes.total(), **{name: outcomes[name] for name in OVERWRITTEN}},
    }


def _outcomes(history: History, extraction: Extraction, reference: Extraction, alignment: Alignment) -> Iterator[str]:
    graph = compile_graph(history, extraction)
    texts = {statement.position: statement.text for statement in history.statements}
    stated: dict[Key, list[Edge]] = {}
    for edge in assertions(history, reference):
        stated.setdefault(edge.key, []).append(edge)
    for edges in stated.values():
        if len({edge.target for edge in edges}) > 1:
            latest = alignment.stands(texts[edges[-1].position], edges[-1], graph)
            earlier = earlier_stands(edges, texts, alignment, graph)
            yield ("contradictory" if earlier else "wins") if latest else ("stale" if earlier else "lost")


def earlier_stands(edges: Sequence[Edge], texts: Mapping[int, str], alignment: Alignment, graph: Graph) -> bool:
    """Whether another value than the latest is current in the extraction's graph; edges: all of one key, in order."""
    return any(edge.target != edges[-1].target and alignment.stands(texts[edge.position], edge, graph) for edge in edges)
