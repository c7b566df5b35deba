"""One question's full story: evidence by view, answers by reader, pipeline traces and, once scored, scores."""

import difflib
from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from eval.analysis.pipeline_story import PipelineStory, tell
from eval.records import Score
from eval.results import Result
from extract.pipelines.results import read_stored
from offline.canonical import read_lines
from offline.config.experiment import ReaderPlan
from offline.errors import CommandError
from offline.records import Fallback, HopClass, Question
from offline.run.opened import OpenRun
from readers.records import FinishReason
from readers.sealed import sealed_reader

Scores = dict[tuple[str, str], Score]  # by reader and view


class AnswerStory(Result, frozen=True):
    """One reader's answer."""

    text: str
    finish_reason: FinishReason
    records_cut: int
    error: str | None
    metrics: dict[str, bool] | None  # verdicts; None without stored scores


class ViewStory(Result, frozen=True):
    """One view's evidence and its answers."""

    records: int
    truncated: bool
    fallback: Fallback | None
    evidence: str
    answers: dict[str, AnswerStory]  # by reader


class QuestionStory(Result, frozen=True):
    """One question."""

    question: str
    text: str
    history: str
    hop_class: HopClass
    hops: int | None
    golds: tuple[str, ...] | None  # None without stored scores
    views: dict[str, ViewStory]
    pipelines: dict[str, dict[str, PipelineStory]] | UnsetType = UNSET  # by pipeline, then reader


def show(run: OpenRun, question_id: str) -> QuestionStory:
    """One question's story, from verified files. Labels stay closed: golds appear only once scores are stored."""
    readers = run.experiment.readers
    question = _find(run, question_id)
    sealed = [plan for plan in readers if plan.reader.name in run.sealed_readers()]
    scores = _scores(run, [plan.reader.name for plan in readers], question_id)
    answers: dict[str, dict[str, AnswerStory]] = {}
    pipelines: dict[str, dict[str, PipelineStory]] = {}
    for plan in sealed:
        name = plan.reader.name
        for view, answer in _answers(run, name, question_id, scores):
            answers.setdefault(view, {})[name] = answer
        for pipeline, story in _stories(run, plan, question_id, scores):
            pipelines.setdefault(pipeline, {})[name] = story
    return QuestionStory(
        question=question.id,
        text=question.text,
        history=question.history,
        hop_class=question.hop_class,
        hops=question.hops,
        golds=next((score.golds for score in scores.values()), None),
        views=dict(_views(run, question_id, answers)),
        pipelines=pipelines or UNSET,
    )


def _find(run: OpenRun, question_id: str) -> Question:
    by_id = run.data.by_id
    if question_id not in by_id:
        close = difflib.get_close_matches(question_id, by_id, n=3) or list(by_id)[:3]
        raise CommandError(f"{run.path} has no question {question_id!r}; for example {', '.join(close)}")
    return by_id[question_id]


def _views(run: OpenRun, question: str, answers: dict[str, dict[str, AnswerStory]]) -> Iterator[tuple[str, ViewStory]]:
    if run.has("packets"):
        evidence = run.evidence
        for view, packets in run.packets(run.experiment.views).items():
            (packet,) = [p for p in packets if p.question == question]
            shown = evidence[packet.evidence].text
            yield view, ViewStory(packet.records, packet.truncated, packet.fallback, shown, answers.get(view, {}))


def _answers(run: OpenRun, reader: str, question: str, scores: Scores) -> Iterator[tuple[str, AnswerStory]]:
    """A sealed reader's answers to a question, by view."""
    for answer in sealed_reader(run, reader).answers():
        scheduled, prediction = answer.scheduled, answer.prediction
        if scheduled.question == question:
            yield (
                scheduled.view,
                AnswerStory(
                    text=prediction.text,
                    finish_reason=prediction.finish_reason,
                    records_cut=scheduled.cut,
                    error=prediction.error,
                    metrics=_metrics(scores, reader, scheduled.view),
                ),
            )


def _stories(run: OpenRun, plan: ReaderPlan, question: str, scores: Scores) -> Iterator[tuple[str, PipelineStory]]:
    """A question's story in each of a reader's pipelines."""
    if plan.pipelines:
        stored = read_stored(run, plan.reader.name)
        for trace in stored.traces:
            if trace.question == question:
                metrics = _metrics(scores, plan.reader.name, trace.pipeline)
                yield trace.pipeline, replace(tell(stored, trace), metrics=metrics)


def _metrics(scores: Scores, reader: str, view: str) -> dict[str, bool] | None:
    score = scores.get((reader, view))
    return score.metrics if score else None


def _scores(run: OpenRun, readers: Sequence[str], question_id: str) -> Scores:
    if not run.has("scores"):
        return {}
    run.need("scores")
    folder = run.step_folder("scores")
    return {
        (score.reader, score.view): score
        for reader in readers
        if (folder / reader).is_dir()
        for score in read_lines(folder / reader / "scores.jsonl", Score)
        if score.question == question_id
    }
