"""Extraction quality against a reference: statuses, relation names, triples, and linking of statements by key.

Pure functions of two aligned extractions of the same statements.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from eval.extraction.alignment import ERRORS, Alignment, Both, ErrorKind, Fact, Mapped, fact_of, mapped_name
from eval.results import Result
from offline.entity_keys import entity_key
from offline.graph import Edge, Graph, Key, assertions, compile_graph
from offline.records import Extraction, History, StatementExtraction, Status, Triple


class StatusCell(Result, frozen=True):
    """Distinct texts with this pair of statuses."""

    extraction: Status
    reference: Status
    texts: int
    extraction_reasons: dict[str, int]  # texts by reason
    reference_reasons: dict[str, int]


class Part(Result, frozen=True):
    """The facts that a relation shares with one relation of the other side."""

    relation: str
    facts: int
    example: str  # text of one fact


class Spread(Result, frozen=True):
    """A relation that corresponds to two or more of the other side."""

    relation: str
    parts: tuple[Part, ...]  # largest first


class RelationComparison(Result, frozen=True):
    """How relation names correspond."""

    mapping: tuple[Mapped, ...]
    unmapped: tuple[str, ...]  # relations that share no pair with the reference
    merges: tuple[Spread, ...]  # relations with facts of two or more reference relations
    splits: tuple[Spread, ...]  # the reverse


class Agreement(Result, frozen=True):
    """Counts of shared items and of each side's."""

    both: int
    extraction: int
    reference: int
    precision: float | None  # precision, recall, f1: percent, two decimals; None if undefined
    recall: float | None
    f1: float | None


class TripleAgreement(Result, frozen=True):
    """Agreement of extracted facts."""

    triples: Agreement
    pairs: Agreement  # (subject, object), whatever the relation
    keys: Agreement


class TripleError(Result, frozen=True):
    """One error, with its statement."""

    text: str
    kind: ErrorKind
    extraction: Triple | None
    reference: Triple | None


class Errors(Result, frozen=True):
    """Extraction errors."""

    counts: dict[ErrorKind, int]  # zeros included
    items: tuple[TripleError, ...]


class Overwritten(Result, frozen=True):
    """Keys with two or more objects in the reference, by outcome (`OVERWRITTEN`)."""

    keys: int
    wins: int
    contradictory: int
    stale: int
    lost: int


class Linking(Result, frozen=True):
    """Agreement on which statements share a key."""

    pairs: Agreement  # of statements with one key, summed over histories
    overwritten: Overwritten


def statuses(pairs: Iterable[Both]) -> tuple[StatusCell, ...]:
    """Confusion matrix of statuses over distinct texts, with each side's reasons counted."""
    cells: dict[tuple[Status, Status], list[Both]] = {}
    for ours, theirs in pairs:
        cells.setdefault((ours.status, theirs.status), []).append((ours, theirs))
    return tuple(
        StatusCell(*key, len(cell), _reasons(ours for ours, _ in cell), _reasons(theirs for _, theirs in cell))
        for key, cell in sorted(cells.items(), key=lambda item: item[0])
    )


def _reasons(statements: Iterable[StatementExtraction]) -> dict[str, int]:
    return dict(Counter(statement.reason for statement in statements if statement.reason is not None).most_common())


def relations(alignment: Alignment, mapping: Mapping[str, Mapped]) -> RelationComparison:
    """The mapping, merges and splits, from facts that are equal or differ only in relation or direction."""
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
    unmapped = tuple(sorted(used - mapping.keys()))
    return RelationComparison(tuple(mapping.values()), unmapped, merges=_spread(parts), splits=_spread(exchanged))


def _spread(parts: Mapping[tuple[str, str], Sequence[str]]) -> tuple[Spread, ...]:
    """First names that occur with two or more second names; largest parts first."""
    by_name: dict[str, list[Part]] = {}
    for (name, part), texts in parts.items():
        by_name.setdefault(name, []).append(Part(part, len(texts), texts[0]))
    return tuple(
        Spread(name, tuple(sorted(found, key=lambda part: (-part.facts, part.relation))))
        for name, found in sorted(by_name.items())
        if len(found) > 1
    )


def agreement(both: int, extraction: int, reference: int) -> Agreement:
    """The agreement for these counts."""
    return Agreement(
        both=both,
        extraction=extraction,
        reference=reference,
        precision=_share(both, extraction),
        recall=_share(both, reference),
        f1=_share(2 * both, extraction + reference),
    )


def _share(count: int, of: int) -> float | None:
    return round(100 * count / of, 2) if of else None


def triples(pairs: Iterable[Both], mapping: Mapping[str, Mapped]) -> TripleAgreement:
    """Agreement over each statement's sets, summed."""
    parts: dict[str, Callable[[Fact], Hashable]] = {
        "triples": lambda fact: fact,
        "pairs": lambda fact: (fact[0], fact[2]),
        "keys": lambda fact: fact[:2],
    }
    sums = {name: [0, 0, 0] for name in parts}
    for ours, theirs in pairs:
        given = {fact_of(triple, mapped_name(triple.relation, mapping)) for triple in ours.triples}
        wanted = {fact_of(triple, triple.relation) for triple in theirs.triples}
        for name, part in parts.items():
            a, b = set(map(part, given)), set(map(part, wanted))
            for index, count in enumerate((len(a & b), len(a), len(b))):
                sums[name][index] += count
    return TripleAgreement(**{name: agreement(*counts) for name, counts in sums.items()})


def errors(alignment: Alignment) -> Errors:
    """Errors by kind, and each with its statement."""
    items = tuple(
        TripleError(text, found.kind, found.extraction, found.reference)
        for text, facts in alignment.texts.items()
        for found in facts
        if found.kind is not None
    )
    counts = Counter(error.kind for error in items)
    return Errors({kind: counts[kind] for kind in ERRORS}, items)


def linked_pairs(stated: Iterable[tuple[frozenset[Key], frozenset[Key]]]) -> tuple[int, int, int]:
    """Pairs of statements that share a key: in both extractions, in the first, in the second.

    stated: each statement's keys in the first and in the second. Statements with at most one key are counted by group: n under
    a key are n(n-1)/2 pairs, likewise n under a pair of keys. A multi-key statement is linked to every single-key statement
    under any of its keys (these groups are disjoint) and to every multi-key statement sharing at least one key.
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


def linking(histories: Iterable[History], extraction: Extraction, reference: Extraction, alignment: Alignment) -> Linking:
    """Compare which statements of a history share a key, and the outcome of keys that were overwritten.

    Relation names need no mapping here. A key's outcome is its current value in the extraction's graph.
    """
    ours, theirs = _keys_by_text(extraction), _keys_by_text(reference)
    sums = [0, 0, 0]
    outcomes: Counter[str] = Counter()
    for history in histories:
        counts = linked_pairs((ours[s.text], theirs[s.text]) for s in history.statements)
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        outcomes.update(_outcomes(history, extraction, reference, alignment))
    return Linking(agreement(*sums), Overwritten(keys=outcomes.total(), **{name: outcomes[name] for name in OVERWRITTEN}))


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
    """Whether a value other than the latest is current in the extraction's graph; edges: of one key, in order."""
    return any(edge.target != edges[-1].target and alignment.stands(texts[edge.position], edge, graph) for edge in edges)
