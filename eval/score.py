"""Scoring: sealed predictions against opened labels, by every metric, with all disagreements listed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.analysis.accuracy import accuracy
from eval.labels import open_labels
from eval.metrics import HEADLINE, Metric, find_metrics
from eval.metrics.strict_em import strict_exact_match
from eval.metrics.subem import substring_exact_match
from eval.records import Cell, Score
from eval.results import Result
from eval.verify import verify_run
from extract.pipelines.results import failed
from extract.pipelines.step import pipelines_folder, read_traces
from offline.canonical import read_lines, write_lines
from offline.errors import StateError
from offline.run.opened import OpenRun
from readers.records import FinishReason, Seal
from readers.seal import read_seal
from readers.sealed import sealed_reader

__all__ = ["score_run", "substring_exact_match"]

CellKey = tuple[str, str, str, str | None]  # reader, view or pipeline, hop class, history length (None: pooled)


def score_reader(run: OpenRun, reader: str, golds: Mapping[str, Sequence[str]], metrics: Mapping[str, Metric]) -> list[Score]:
    """Scores of one reader's scheduled questions, in schedule order, then of its pipelines' traces; failures count as wrong.

    An abstention is correct only if it equals a gold answer, whatever the metric: substring matching would accept "No" inside
    "no answer".
    """
    questions, lengths = run.data.by_id, run.data.lengths
    scores = []
    for answer in answers(run, reader):
        question = questions[answer.question]
        counts = answer.finish_reason != "error" and (
            not answer.abstained or strict_exact_match(answer.text, golds[question.id])
        )
        scores.append(
            Score(
                reader=reader,
                view=answer.view,
                question=question.id,
                row=question.row,
                hop_class=question.hop_class,
                hops=question.hops,
                length=lengths[question.history],
                prediction=answer.text,
                finish_reason=answer.finish_reason,
                golds=tuple(golds[question.id]),
                cut=answer.cut,
                metrics={name: counts and metric(answer.text, golds[question.id]) for name, metric in metrics.items()},
            )
        )
    return scores


class ReaderAnswer(Result, frozen=True):
    """The scored output for one question."""

    reader: str
    view: str  # or pipeline
    question: str
    text: str
    finish_reason: FinishReason
    cut: int  # as in `Score`
    abstained: bool = False  # the text is not a model's


def answers(run: OpenRun, reader: str) -> Iterator[ReaderAnswer]:
    """One sealed reader's scheduled questions, in schedule order, then its pipelines' traces."""
    for answer in sealed_reader(run, reader).answers():
        scheduled, prediction = answer.scheduled, answer.prediction
        text, finish_reason = prediction.text, prediction.finish_reason
        yield ReaderAnswer(reader, scheduled.view, scheduled.question, text, finish_reason, scheduled.cut)
    for trace in read_traces(run, reader) if pipelines_folder(run, reader).is_dir() else ():
        finish_reason, abstained = "error" if failed(trace) else "stop", trace.answered_by == "none"
        yield ReaderAnswer(reader, trace.pipeline, trace.question, trace.answer, finish_reason, trace.dropped, abstained)


def _cell(key: CellKey, scores: Sequence[Score], blind: bool) -> Cell:
    reader, view, hop_class, length = key
    correct = {name: sum(score.metrics[name] for score in scores) for name in scores[0].metrics}
    right = accuracy(correct[HEADLINE], len(scores))
    return Cell(
        reader=reader,
        view=view,
        hop_class=hop_class,
        length=length,
        questions=len(scores),
        cut=sum(score.cut > 0 for score in scores),
        correct=correct,
        low=right.low,
        high=right.high,
        blind=blind,
    )


def tabulate(scores: Sequence[Score], blind: bool) -> Iterator[Cell]:
    """Cells by view and hop class, pooled over lengths, then by length; each in order of first appearance."""
    groups: dict[CellKey, list[Score]] = {}
    for pooled in (True, False):
        for score in scores:
            key: CellKey = (score.reader, score.view, score.hop_class, None if pooled else score.length)
            groups.setdefault(key, []).append(score)
    for key, group in groups.items():
        yield _cell(key, group, blind)


def score_files(
    run: OpenRun, readers: Sequence[str], golds: Mapping[str, Sequence[str]], metrics: Mapping[str, Metric]
) -> dict[str, list[Any]]:
    """The records of each file in scores/: each reader's scores, cells, and items on which metrics disagree."""
    files: dict[str, list[Any]] = {}
    for reader in readers:
        scores = score_reader(run, reader, golds, metrics)
        files[f"{reader}/scores.jsonl"] = scores
        files[f"{reader}/cells.jsonl"] = list(tabulate(scores, sealed_blind(read_seal(run, reader))))
        files[f"{reader}/disagreements.jsonl"] = [s for s in scores if len(set(s.metrics.values())) > 1]
    return files


def sealed_blind(seal: Seal) -> bool:
    """Whether no label of the run had been opened when the seal was made."""
    return seal.ledger == 0


def score_inputs(run: OpenRun, readers: Sequence[str], metrics: Iterable[str]) -> dict[str, str]:
    """The inputs of scores: the labels, each reader's seal, and the metrics."""
    seals = {f"seal_{reader}": read_seal(run, reader).root for reader in readers}
    return {"labels": run.need("labels").digest, "metrics": " ".join(sorted(metrics)), **seals}


def score_run(run: OpenRun) -> bool:
    """Score every reader of a run into scores/; True if written. Unsealed or altered runs are refused first.

    If the scores are up to date, nothing is written and the labels stay closed.
    """
    readers = [plan.reader.name for plan in run.experiment.readers]
    if not readers:
        raise StateError(f"{run.path}: the experiment names no reader, so there is nothing to score")
    for reader in readers:
        read_seal(run, reader)
    verify_run(run)
    metrics = find_metrics()
    inputs = score_inputs(run, readers, metrics)
    if run.has("scores") and run.need("scores").inputs == inputs:
        return False
    golds = open_labels(run, "score")

    def write(folder: Path) -> None:
        for name, records in score_files(run, readers, golds, metrics).items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_lines(folder / name, records)

    return run.step("scores", inputs, write, downstream=True)


def stored_metrics(run: OpenRun) -> tuple[str, ...]:
    """The metrics of the stored scores; StateError unless these match the current seals and labels."""
    stored = run.need("scores").inputs
    metrics = tuple(stored.get("metrics", "").split())
    if stored != score_inputs(run, [plan.reader.name for plan in run.experiment.readers], metrics):
        raise StateError(f"{run.path}: the scores are not of these seals and labels; run `coldread score {run.path}` first")
    return metrics


def read_scores(run: OpenRun, reader: str) -> list[Score]:
    """The stored scores of one reader, in schedule order."""
    return list(read_lines(run.step_folder("scores") / reader / "scores.jsonl", Score))


def read_all_scores(run: OpenRun) -> list[Score]:
    """The stored scores, reader by reader; StateError unless they match the current seals and labels."""
    stored_metrics(run)
    return [score for plan in run.experiment.readers for score in read_scores(run, plan.reader.name)]


def read_cells(run: OpenRun, reader: str) -> list[Cell]:
    """The stored cells of one reader."""
    return list(read_lines(run.step_folder("scores") / reader / "cells.jsonl", Cell))
