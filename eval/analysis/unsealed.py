"""Scores of external predictions: same metrics and denominators, no seal.

Their time and origin are unknown; every result says `sealed: false`.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UnsetType

from eval.analysis.accuracy import accuracy
from eval.analysis.prediction_file import Answer, AnswerFile
from eval.labels import open_labels, read_ledger
from eval.metrics import HEADLINE, find_metrics
from eval.results import Result
from offline.errors import DataError
from offline.records import HopClass, Question
from offline.run.opened import OpenRun

COMMAND = "score-predictions"  # in the ledger; distinct from scoring the run


@dataclass(frozen=True)
class Verdict:
    """The verdict on one question of one system."""

    question: Question
    length: str
    missing: bool  # not in the file, so wrong
    metrics: dict[str, bool]


class UnsealedCell(Result, frozen=True):
    """Counts of one hop class and history length."""

    hop_class: HopClass
    length: str | None  # None: pooled
    questions: int
    missing: int
    correct: dict[str, int]  # by metric
    low: float  # Wilson 95 % interval of `subem`, percent
    high: float


class UnsealedSystem(Result, frozen=True):
    """One system's results."""

    predictions: int
    missing: int  # questions without a prediction, scored as wrong
    cells: tuple[UnsealedCell, ...]


class UnsealedItem(Result, frozen=True):
    """The verdicts on one question of one system."""

    system: str
    question: str
    missing: bool
    metrics: dict[str, bool]


class UnsealedScores(Result, frozen=True):
    """Scores of a prediction file."""

    sealed: Literal[False]
    name: str
    file: str
    sha256: str
    run: str
    label_opening: int  # number of the ledger entry
    systems: dict[str, UnsealedSystem]
    items: tuple[UnsealedItem, ...] | UnsetType  # unset if omitted


def score_answers(run: OpenRun, file: AnswerFile, name: str) -> UnsealedScores:
    """Scores by system, hop class and history length, and every verdict.

    The file is checked against the run's questions before the labels are opened; only the run's ledger changes.
    """
    data = run.data
    systems = by_system(file, data.by_id, name)
    golds = open_labels(run, COMMAND)
    metrics = find_metrics()
    verdicts: dict[str, list[Verdict]] = {system: [] for system in systems}
    for system, answers in systems.items():
        for question in data.questions:
            answer = answers.get(question.id)
            right = {m: answer is not None and metric(answer.text, golds[question.id]) for m, metric in metrics.items()}
            verdicts[system].append(Verdict(question, data.lengths[question.history], answer is None, right))
    return UnsealedScores(
        sealed=False,
        name=name,
        file=str(file.path),
        sha256=file.sha256,
        run=str(run.path),
        label_opening=len(read_ledger(run)),
        systems={system: _summary(found) for system, found in verdicts.items()},
        items=tuple(
            UnsealedItem(system, v.question.id, v.missing, v.metrics) for system, found in verdicts.items() for v in found
        ),
    )


def by_system(file: AnswerFile, questions: Mapping[str, Question], name: str) -> dict[str, dict[str, Answer]]:
    """Answers by system and question; DataError for an unknown question or a duplicate answer."""
    systems: dict[str, dict[str, Answer]] = {}
    for answer in file.answers:
        if answer.question not in questions:
            close = difflib.get_close_matches(answer.question, questions, n=1) or list(questions)[:1]
            raise DataError(
                f"{answer.where}: the run has no question {answer.question!r}; it has {len(questions)}, such as {close[0]!r}"
            )
        answers = systems.setdefault(name if file.fields.by is None else answer.system, {})
        if (first := answers.get(answer.question)) is not None:
            hint = "" if file.fields.by else "; if the file holds several systems, --by FIELD tells them apart"
            raise DataError(f"{answer.where}: {answer.question!r} was answered before ({first.where}){hint}")
        answers[answer.question] = answer
    return systems


def _summary(verdicts: Sequence[Verdict]) -> UnsealedSystem:
    missing = sum(verdict.missing for verdict in verdicts)
    return UnsealedSystem(len(verdicts) - missing, missing, tuple(_cells(verdicts)))


def _cells(verdicts: Sequence[Verdict]) -> Iterator[UnsealedCell]:
    """Counts by hop class over all lengths, then by length too."""
    groups: dict[tuple[HopClass, str | None], list[Verdict]] = {}
    for pooled in (True, False):
        for verdict in verdicts:
            groups.setdefault((verdict.question.hop_class, None if pooled else verdict.length), []).append(verdict)
    for (hop_class, length), group in groups.items():
        correct = {name: sum(verdict.metrics[name] for verdict in group) for name in group[0].metrics}
        found = accuracy(correct[HEADLINE], len(group))
        yield UnsealedCell(
            hop_class=hop_class,
            length=length,
            questions=len(group),
            missing=sum(verdict.missing for verdict in group),
            correct=correct,
            low=float(found.low),
            high=float(found.high),
        )
