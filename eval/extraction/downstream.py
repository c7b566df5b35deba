"""Effect of an extraction on cmc: its packets compared with a reference's, and why records are missing.

Both are compiled from the same histories and settings and frozen for the same questions. No label is needed.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import msgspec
from msgspec import UNSET, UnsetType

from eval.analysis.coverage import Counts, Judge, Shown
from eval.analysis.label_screens import walk
from eval.extraction.alignment import Alignment
from eval.extraction.quality import earlier_stands
from eval.results import Result
from offline.config.experiment import ResolvedExperiment
from offline.freeze import freeze_memory, memories
from offline.graph import Edge
from offline.memory import Memory
from offline.records import Extraction, History, Question
from offline.views import find_view

CAUSES = {
    "unresolved": "a statement is left to the reader",
    "no_fact": "a statement is taken to state nothing",
    "missing": "a statement has facts, not the one that is needed",
    "direction": "subject and object of a fact are exchanged",
    "span": "a subject or object differs and overlaps",
    "split": "an earlier value is shown, under another key",
    "merged": "another fact overwrites the one that is needed",
    "anchor": "the question's entity is no anchor",
    "other": "none of these (a budget, the number of hops)",
}


class Lacking(Result, frozen=True):
    """Why a question's packet lacks a record that the reference shows."""

    question: str
    hop_class: str
    cause: str
    position: int  # of the record at fault: the first one on the path from an anchor
    text: str


class Side(Result, frozen=True):
    """Sums of `coverage.Counts` for cmc with one extraction."""

    cmc_keys: int  # of the reference, on both sides
    cmc_keys_shown: int
    complete: int
    records: int
    characters: int
    truncated: int
    fallbacks: int
    no_anchor: int  # questions without an anchor
    gold_in_evidence: int | UnsetType = UNSET  # this and gold_as_value: unset while the labels stay closed
    gold_as_value: int | UnsetType = UNSET


class DownstreamCell(Result, frozen=True):
    """Questions of one hop class."""

    questions: int
    reached: int  # the reference reaches a record, so they can be complete
    extraction: Side
    reference: Side
    outdated: int  # questions that are shown an earlier value
    causes: dict[str, int]  # questions by each of `CAUSES`


class LeftOut(Result, frozen=True):
    """Questions excluded from the comparison."""

    questions_left_out: int  # their history is incomplete in the reference


class Downstream(LeftOut, frozen=True):
    """cmc with either extraction."""

    questions: int
    by_hops: dict[str, DownstreamCell]  # and pooled
    outdated: tuple[str, ...]  # question ids
    lacking: tuple[Lacking, ...]


@dataclass(frozen=True)
class _Asked:
    """One question with both extractions."""

    question: Question
    ours: Counts
    theirs: Counts
    anchored: tuple[bool, ...]
    outdated: bool
    lacking: Lacking | None


def downstream(
    histories: Sequence[History],
    questions: Sequence[Question],
    extraction: Extraction,
    reference: Extraction,
    alignment: Alignment,
    experiment: ResolvedExperiment,
    golds: Mapping[str, Sequence[str]] | None,
    left_out: int = 0,
) -> Downstream:
    """Compare the packets of either extraction. golds None: count no gold answers. left_out: number of excluded questions."""
    asked: list[_Asked] = []
    settings, heading = experiment.settings, experiment.prompt.heading
    compiled = (memories(histories, questions, one, settings, heading) for one in (extraction, reference))
    labels = {question.id: () for question in questions} if golds is None else golds
    judges = (Judge(extraction, labels), Judge(reference, labels))
    for (ours, about), (theirs, _) in zip(*compiled, strict=True):
        asked += _ask(ours, theirs, about, judges, alignment, experiment)
    classes: dict[str, None] = dict.fromkeys(item.question.hop_class for item in asked)
    cells = {name: _cell([item for item in asked if item.question.hop_class == name], golds is not None) for name in classes}
    if len(classes) > 1:
        cells["all"] = _cell(asked, golds is not None)
    return Downstream(
        questions_left_out=left_out,
        questions=len(asked),
        by_hops=cells,
        outdated=tuple(item.question.id for item in asked if item.outdated),
        lacking=tuple(item.lacking for item in asked if item.lacking is not None),
    )


def _ask(
    ours: Memory,
    theirs: Memory,
    about: Sequence[Question],
    judges: tuple[Judge, Judge],
    alignment: Alignment,
    experiment: ResolvedExperiment,
) -> Iterator[_Asked]:
    shown = [_shown(memory, about, experiment) for memory in (ours, theirs)]
    # cmc's records are the reference's on both sides; values are each extraction's own.
    counts = [[judged.counts for judged in judges[1].judge(theirs, packets)] for packets in shown]
    values = [judged.counts.gold_as_value for judged in judges[0].judge(ours, shown[0])]
    for index, question in enumerate(about):
        positions = shown[0][index][2].positions
        yield _Asked(
            question=question,
            ours=msgspec.structs.replace(counts[0][index], gold_as_value=values[index]),
            theirs=counts[1][index],
            anchored=tuple(bool(memory.graph.subjects.anchors(question.text)) for memory in (ours, theirs)),
            outdated=_outdated(theirs, question, positions),
            lacking=first_cause(question, ours, theirs, positions, alignment),
        )


def _shown(memory: Memory, about: Sequence[Question], experiment: ResolvedExperiment) -> list[Shown]:
    made = freeze_memory(memory, about, [("cmc", find_view("cmc"))], experiment.prompt)
    return [(question, packet, evidence) for question, (packet, evidence) in zip(about, made, strict=True)]


def _outdated(theirs: Memory, question: Question, shown: Collection[int]) -> bool:
    """Whether a shown record states an earlier value, and no current one, of a key that the reference reaches."""
    keys = theirs.closure(question.text)
    current = set(theirs.positions(keys))
    earlier = {edge.position for key in keys for edge in theirs.stated[key] if edge.target != theirs.graph.current[key].target}
    return not (earlier - current).isdisjoint(shown)


def first_cause(
    question: Question, ours: Memory, theirs: Memory, shown: Collection[int], alignment: Alignment
) -> Lacking | None:
    """Why the extraction's packet lacks a record of the reference's cmc; None if it lacks none.

    Takes the first missing record in traversal order, and the first faulty statement on its path from an anchor.
    """
    current, texts = theirs.graph.current, {s.position: s.text for s in theirs.history.statements}
    key = next((key for key in theirs.closure(question.text) if current[key].position not in shown), None)
    if key is None:
        return None

    def lacking(cause: str, edge: Edge) -> Lacking:
        return Lacking(question.id, question.hop_class, cause, edge.position, texts[edge.position])

    def outlived(edge: Edge) -> bool:
        return earlier_stands(theirs.stated[edge.key], texts, alignment, ours.graph)

    steps = [*walk(theirs, question, key), current[key]]
    reached = {subject for subject, _ in ours.closure(question.text)}
    for edge in steps:
        found = alignment.of(texts[edge.position], edge)[0]
        if found.kind not in (None, "relation"):
            return lacking(found.kind, edge)
        if not alignment.stands(texts[edge.position], edge, ours.graph):
            return lacking("split" if outlived(edge) else "merged", edge)
        if edge is steps[0] and edge.subject not in reached:
            return lacking("anchor", edge)
    return lacking("split" if outlived(steps[-1]) else "other", steps[-1])


def _cell(asked: Sequence[_Asked], golds: bool) -> DownstreamCell:
    causes = Counter(item.lacking.cause for item in asked if item.lacking is not None)
    return DownstreamCell(
        questions=len(asked),
        reached=sum(item.theirs.cmc_keys > 0 for item in asked),
        extraction=_side([item.ours for item in asked], [item.anchored[0] for item in asked], golds),
        reference=_side([item.theirs for item in asked], [item.anchored[1] for item in asked], golds),
        outdated=sum(item.outdated for item in asked),
        causes={cause: causes[cause] for cause in CAUSES},
    )


def _side(counts: Sequence[Counts], anchored: Sequence[bool], golds: bool) -> Side:
    total = reduce(add, counts)
    return Side(
        cmc_keys=total.cmc_keys,
        cmc_keys_shown=total.cmc_keys_shown,
        complete=total.complete,
        records=total.records,
        characters=total.characters,
        truncated=total.truncated,
        fallbacks=total.fallbacks,
        no_anchor=anchored.count(False),
        gold_in_evidence=total.gold_in_evidence if golds else UNSET,
        gold_as_value=total.gold_as_value if golds else UNSET,
    )
