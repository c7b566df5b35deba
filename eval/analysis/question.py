"""One question's whole story: what each view shows, what each reader said, how pipelines went, and, once scored, the scores."""

import difflib
from collections.abc import Iterator
from typing import Any

from eval.analysis.pipeline_story import told
from eval.records import Score
from extract.pipelines.results import read_stored
from offline.canonical import read_lines
from offline.config.experiment import ReaderPlan
from offline.errors import CommandError
from offline.run.opened import OpenRun
from readers.sealed import sealed_reader

# By reader and view.
Scores = dict[tuple[str, str], Score]


def show(run: OpenRun, question_id: str) -> dict[str, Any]:
    """The story of one question, from verified files. Labels stay closed: gold answers appear once scores are stored."""
    experiment = run.experiment
    data = run.data
    by_id = data.by_id
    if question_id not in by_id:
        close = difflib.get_close_matches(question_id, by_id, n=3) or list(by_id)[:3]
        raise CommandError(f"{run.path} has no question {question_id!r}; for example {', '.join(close)}")
    question = by_id[question_id]
    views: dict[str, Any] = {}
    if run.has("packets"):
        evidence = run.evidence
        for view, packets in run.packets(experiment.views).items():
            (packet,) = [p for p in packets if p.question == question_id]
            views[view] = {
                "records": packet.records,
                "truncated": packet.truncated,
                "fallback": packet.fallback,
                "evidence": evidence[packet.evidence].text,
                "answers": {},
            }
    pipelines: dict[str, dict[str, Any]] = {}
    scores = _scores(run, [plan.reader.name for plan in experiment.readers], question_id)
    for plan in experiment.readers:
        name = plan.reader.name
        if name not in run.sealed_readers():
            continue
        for answer in sealed_reader(run, name).answers():
            scheduled, prediction = answer.scheduled, answer.prediction
            if scheduled.question == question_id:
                score = scores.get((name, scheduled.view))
                views[scheduled.view]["answers"][name] = {
                    "text": prediction.text,
                    "finish_reason": prediction.finish_reason,
                    "records_cut": scheduled.cut,
                    "error": prediction.error,
                    "metrics": score.metrics if score else None,
                }
        for pipeline, story in _stories(run, plan, question_id, scores):
            pipelines.setdefault(pipeline, {})[name] = story
    golds = next((list(score.golds) for score in scores.values()), None)
    return {
        "question": question.id,
        "text": question.text,
        "history": question.history,
        "hop_class": question.hop_class,
        "hops": question.hops,
        "golds": golds,
        "views": views,
        **({"pipelines": pipelines} if pipelines else {}),
    }


def _stories(run: OpenRun, plan: ReaderPlan, question: str, scores: Scores) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each of a reader's pipelines made of a question."""
    if plan.pipelines:
        stored = read_stored(run, plan.reader.name)
        for trace in stored.traces:
            if trace.question == question:
                score = scores.get((plan.reader.name, trace.pipeline))
                yield trace.pipeline, {**told(stored, trace), "metrics": score.metrics if score else None}


def _scores(run: OpenRun, readers: list[str], question_id: str) -> Scores:
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
