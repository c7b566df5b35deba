"""The input of a report: verified files and stored scores, which include the golds, so no label is opened."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from eval.analysis.pipeline_story import PipelineStory, tell
from eval.analysis.scored import ScoredRun, open_scored
from eval.records import Score
from extract.pipelines.results import read_stored
from offline.config.experiment import ReaderPlan
from offline.records import Evidence, Extraction, History, HopClass, Packet, Question
from offline.run.opened import OpenRun
from readers.sealed import sealed_reader

Key = tuple[str, str, str]  # reader, view or pipeline, question id


@dataclass(frozen=True)
class Source:
    """A scored run with its data and packets."""

    scored: ScoredRun
    histories: tuple[History, ...]
    questions: tuple[Question, ...]
    extraction: Extraction
    packets: Mapping[str, Mapping[str, Packet]]  # by view, then question
    evidence: Mapping[str, Evidence]  # by digest
    errors: Mapping[Key, str]  # why there is no answer
    traces: Mapping[Key, PipelineStory]

    @property
    def views(self) -> tuple[str, ...]:
        """Views in the experiment's order, then pipelines; `packets` holds only the former."""
        return self.scored.experiment.answered

    @cached_property
    def readers(self) -> tuple[str, ...]:
        """Readers in the experiment's order."""
        return tuple(plan.reader.name for plan in self.scored.experiment.readers)

    @cached_property
    def hop_classes(self) -> tuple[str, ...]:
        """Those that occur."""
        there = {question.hop_class for question in self.questions}
        return tuple(name for name in get_args(HopClass) if name in there)

    @cached_property
    def golds(self) -> dict[str, tuple[str, ...]]:
        """Gold answers by question, from the scores."""
        return self.scored.golds

    @cached_property
    def all_scores(self) -> list[Score]:
        """Reader after reader."""
        return [score for scores in self.scored.scores.values() for score in scores.values()]


def read_source(run: OpenRun) -> Source:
    """Read and verify a run; StateError unless it is sealed and its stored scores are up to date."""
    scored = open_scored(run)
    experiment, data = scored.experiment, run.data
    traces = {key: trace for plan in experiment.readers for key, trace in _traces(run, plan)}
    failed = {key: trace.fault or "" for key, trace in traces.items() if trace.finish_reason == "error"}
    return Source(
        scored=scored,
        histories=data.histories,
        questions=data.questions,
        extraction=run.extraction,
        packets={view: {p.question: p for p in found} for view, found in run.packets(experiment.views).items()},
        evidence=run.evidence,
        errors=failed | {key: text for plan in experiment.readers for key, text in _errors(run, plan.reader.name)},
        traces=traces,
    )


def _traces(run: OpenRun, plan: ReaderPlan) -> Iterator[tuple[Key, PipelineStory]]:
    if plan.pipelines:
        stored = read_stored(run, plan.reader.name)
        for trace in stored.traces:
            yield (plan.reader.name, trace.pipeline, trace.question), tell(stored, trace)


def _errors(run: OpenRun, reader: str) -> Iterator[tuple[Key, str]]:
    for answer in sealed_reader(run, reader).answers():
        if answer.prediction.finish_reason == "error":
            yield (reader, answer.scheduled.view, answer.scheduled.question), answer.prediction.error or ""
