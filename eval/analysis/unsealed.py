"""Scores of predictions that others made: the same metrics, the same denominators, and no seal.

Nobody here can say when these texts were made, or from what; everything that comes out says `sealed: false`.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.analysis.prediction_file import Answer, AnswerFile
from eval.labels import open_labels, read_ledger
from eval.metrics import HEADLINE, find_metrics
from eval.statistics import wilson
from offline.errors import DataError
from offline.records import Question
from offline.run.opened import OpenRun

# What the ledger calls it: no score of the run.
COMMAND = "score-predictions"


@dataclass(frozen=True)
class Verdict:
    """One question of one system; one that the file lacks is missing, and wrong."""

    question: Question
    length: str
    missing: bool
    metrics: Mapping[str, bool]


def score_answers(run: OpenRun, file: AnswerFile, name: str) -> dict[str, Any]:
    """Scores by system, hop class and history length, as `coldread score --predictions --json` prints them, and `items`.

    The file is checked against the run's questions before the labels are opened; nothing of the run but its ledger changes.
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
    return {
        "sealed": False,
        "name": name,
        "file": str(file.path),
        "sha256": file.sha256,
        "run": str(run.path),
        "label_opening": len(read_ledger(run)),
        "systems": {system: _summary(found) for system, found in verdicts.items()},
        "items": [
            {"system": system, "question": v.question.id, "missing": v.missing, "metrics": v.metrics}
            for system, found in verdicts.items()
            for v in found
        ],
    }


def by_system(file: AnswerFile, questions: Mapping[str, Question], name: str) -> dict[str, dict[str, Answer]]:
    """Answers by system and question; DataError for a question that the run lacks, or that one system answers twice."""
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


def _summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    missing = sum(verdict.missing for verdict in verdicts)
    return {"predictions": len(verdicts) - missing, "missing": missing, "cells": list(_cells(verdicts))}


def _cells(verdicts: Sequence[Verdict]) -> Iterator[dict[str, Any]]:
    """Counts by hop class over all lengths (None), then by length too; `low` and `high`: Wilson 95 % of subem, percent."""
    groups: dict[tuple[str, str | None], list[Verdict]] = {}
    for pooled in (True, False):
        for verdict in verdicts:
            groups.setdefault((verdict.question.hop_class, None if pooled else verdict.length), []).append(verdict)
    for (hop_class, length), group in groups.items():
        correct = {name: sum(verdict.metrics[name] for verdict in group) for name in group[0].metrics}
        low, high = wilson(correct[HEADLINE], len(group))
        yield {
            "hop_class": hop_class,
            "length": length,
            "questions": len(group),
            "missing": sum(verdict.missing for verdict in group),
            "correct": correct,
            "low": round(100 * low, 2),
            "high": round(100 * high, 2),
        }
