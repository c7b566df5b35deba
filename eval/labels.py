"""Labels: read from the raw rows' answers, stored separately, opened only with a ledger entry.

A label source is a function `(data, source) -> (question id, golds, where)…`, registered under the loader's kind;
`coldread.labels` is the entry point group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from eval.metrics.normalise import checked_golds
from eval.records import Label, LabelOpening
from offline.canonical import read_lines, self_digest, write_lines
from offline.config.experiment import ResolvedExperiment
from offline.errors import AlteredError, DataError, LabelError
from offline.loaders import KINDS, kind_of
from offline.loaders.factconsolidation import FactConsolidationData, named_rows
from offline.loaders.plain import PlainData, question_id
from offline.loaders.raw import RawSource
from offline.loaders.synthetic import SyntheticData, World, draw_world
from offline.loaders.versions import VersionsData, draw_versions
from offline.registry import Registry
from offline.run.opened import OpenRun
from offline.run.steps import data_inputs
from readers.read import Commitment
from readers.seal import read_seal

LEDGER = "ledger.jsonl"

RawLabel = tuple[str, list[str], str]  # (question id, golds, place in the source)
LabelSource = Callable[[Any, RawSource | None], Iterator[RawLabel]]
LABELS: Registry[LabelSource] = Registry(
    "label source",
    "coldread.labels",
    {kind: f"eval.labels:{kind}_labels" for kind in KINDS},
)


def factconsolidation_labels(data: FactConsolidationData, source: RawSource | None) -> Iterator[RawLabel]:
    """The `answers` column, a list of strings (or one string) per question."""
    assert source is not None
    for row, names in named_rows(source, {"answers": list[str | list[str]]}):
        answers: list[str | list[str]] = row.need("answers")
        if len(answers) != len(names.questions):
            raise DataError(f"{row.where} ({names.row}): {len(names.questions)} questions but {len(answers)} answers")
        for index, (question, answer) in enumerate(zip(names.questions, answers, strict=True)):
            where = f"{row.where} ({names.row}), answer {index}"
            yield question, [answer] if isinstance(answer, str) else answer, where


class PlainAnswers(msgspec.Struct):
    """A plain-form question with its answers."""

    id: str
    answers: list[str] = []


def plain_labels(data: PlainData, source: RawSource | None) -> Iterator[RawLabel]:
    """The `answers` field of each question."""
    assert source is not None
    for row in source.rows({"history": str, "questions": list[PlainAnswers]}):
        for index, question in enumerate(row.need("questions")):
            yield question_id(row.need("history"), question.id), question.answers, f"{row.where}, question {index}"


def simulate(world: World) -> dict[str, str]:
    """Gold answers of a synthetic world: replay its events into a table, then follow each question's plan.

    Independent of the graph: no keys, no normalisation, no extraction.
    """
    table: dict[tuple[str, str], str] = {}
    for event in world.events:
        table[event.subject, event.relation] = event.object
    golds = {}
    for plan in world.plans:
        at = plan.start
        for relation in plan.relations:
            at = table[at, relation]
        golds[plan.question] = at
    return golds


def synthetic_labels(data: SyntheticData, source: RawSource | None) -> Iterator[RawLabel]:
    """Gold answers by simulation."""
    yield from _simulated(draw_world(data, index) for index in range(len(data.statements)))


def versions_labels(data: VersionsData, source: RawSource | None) -> Iterator[RawLabel]:
    """Gold answers by simulation."""
    yield from _simulated(draw_versions(data))


def _simulated(worlds: Iterable[World]) -> Iterator[RawLabel]:
    for world in worlds:
        for question, gold in simulate(world).items():
            yield question, [gold], world.name


def load_labels(experiment: ResolvedExperiment, source: RawSource | None, wanted: list[str]) -> list[Label]:
    """The labels of these questions; LabelError naming the row of a missing, empty or void one."""
    found: dict[str, Label] = {}
    questions = set(wanted)
    for question, golds, where in LABELS.get(kind_of(experiment.data))(experiment.data, source):
        if question in questions:
            try:
                found[question] = Label(question=question, golds=tuple(checked_golds(golds)))
            except LabelError as error:
                raise LabelError(f"{where} (question {question!r}): {error}") from error
    if missing := [question for question in wanted if question not in found]:
        raise LabelError(f"question {missing[0]!r} has no answer in the data ({len(missing)} questions lack one)")
    return [found[question] for question in wanted]


def labels_step(run: OpenRun, source: RawSource | None) -> bool:
    """Write labels/, separate from the data; an existing ledger is kept."""

    def write(folder: Path) -> None:
        questions = [question.id for question in run.data.questions]
        write_lines(folder / "labels.jsonl", load_labels(run.experiment, source, questions))

    inputs = {**data_inputs(run.experiment, source), **run.upstream("labels")}
    return run.step("labels", inputs, write, keep=(LEDGER,))


def read_ledger(run: OpenRun) -> tuple[LabelOpening, ...]:
    """The verified ledger; AlteredError if its chain is broken."""
    path = run.step_folder("labels") / LEDGER
    if not path.exists():
        return ()
    entries = tuple(read_lines(path, LabelOpening))
    previous = ""
    for number, entry in enumerate(entries, 1):
        fits = entry.number == number and entry.previous == previous
        if not fits or self_digest(entry, "digest") != entry.digest:
            raise AlteredError(f"{path}, line {number}: the chain of label openings is broken here; the file was altered")
        previous = entry.digest
    if not entries:
        raise AlteredError(f"{path}: an empty ledger; the file was altered")
    return entries


def read_labels(run: OpenRun) -> dict[str, tuple[str, ...]]:
    """Gold answers by question, verified, without a ledger entry: for replay, which writes nothing."""
    run.need("labels")
    return {label.question: label.golds for label in read_lines(run.step_folder("labels") / "labels.jsonl", Label)}


def open_labels(run: OpenRun, command: str) -> Mapping[str, tuple[str, ...]]:
    """Record this opening in the ledger, then return the gold answers by question."""
    run.fresh("labels")
    entries = read_ledger(run)
    entry = LabelOpening(
        number=len(entries) + 1,
        command=command,
        seals={reader: read_seal(run, reader).root for reader in run.sealed_readers()},
        previous=entries[-1].digest if entries else "",
    )
    entry = msgspec.structs.replace(entry, digest=self_digest(entry, "digest"))
    write_lines(run.step_folder("labels") / LEDGER, [*entries, entry])
    return read_labels(run)


def commitment(run: OpenRun) -> Commitment:
    """The seal's commitment to the labels: their sha256 from the manifest, and the ledger's length. Opens nothing."""
    (sha256,) = [entry.sha256 for entry in run.need("labels").files if entry.name == "labels.jsonl"]
    return Commitment(labels=sha256, ledger=len(read_ledger(run)))
