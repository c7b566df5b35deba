"""The scheduler: all pipelines of all questions advance together, one wave of calls at a time; waiting needs no thread."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from extract.pipelines import Case, Pipeline, Steps, find_pipeline
from extract.pipelines.records import CandidateList, Trace, lists_of
from offline.config.calls import PipelineSettings
from offline.config.experiment import ResolvedExperiment
from offline.config.yaml import check
from offline.errors import ConfigurationError, guarded
from offline.memory import Records
from offline.records import History, Question
from readers.calls.caller import Ask, Caller
from readers.records import Prediction


@dataclass(frozen=True)
class Assembled:
    """The pipelines' results."""

    traces: tuple[Trace, ...]  # by pipeline and question, in their order
    candidates: tuple[CandidateList, ...]  # each list once, in the order in which traces name them


@dataclass
class _Running:
    """A pipeline at work on a question."""

    name: str
    question: Question
    steps: Steps[Trace]
    ask: Ask | None = None  # the call that it waits for
    trace: Trace | None = None  # its result

    def advance(self, prediction: Prediction | None) -> None:
        """Advance to the next call or the end; ConfigurationError for a pipeline that breaks its contract."""
        where = f"pipeline {self.name!r}, question {self.question.id!r}"
        self.ask = None
        with guarded(where, cure="; mend the pipeline"):
            try:
                # The first step of a generator is sent nothing.
                self.ask = next(self.steps) if prediction is None else self.steps.send(prediction)
            except StopIteration as end:
                made = self.trace = end.value
                if not isinstance(made, Trace) or (made.pipeline, made.question) != (self.name, self.question.id):
                    raise ConfigurationError(f"{where}: it does not return its own Trace; mend the pipeline") from end


def pipeline_settings(experiment: ResolvedExperiment) -> PipelineSettings:
    """The settings of an experiment's pipelines; ConfigurationError if it has none."""
    if experiment.pipelines is UNSET:
        raise ConfigurationError("the experiment has no settings of pipelines; let a reader name `pipelines`")
    return experiment.pipelines


def run_pipelines(
    names: Sequence[str],
    histories: Sequence[History],
    questions: Sequence[Question],
    experiment: ResolvedExperiment,
    caller: Caller,
    width: int | None = None,
) -> Assembled:
    """Run these pipelines on these questions.

    width: questions at work at once, None = all; it only decides which calls share a wave, if answers do not depend on that.
    """
    settings = pipeline_settings(experiment)
    check(width is None or width > 0, "width must be at least 1: no question would ever be asked")
    pipelines: list[tuple[str, Pipeline]] = [(name, find_pipeline(name)) for name in names]
    records = {history.id: Records(history, experiment.settings) for history in histories}
    lists: dict[str, CandidateList] = {}

    def begin(name: str, pipeline: Pipeline, question: Question) -> _Running:
        case = Case(
            pipeline=name,
            question=question,
            records=records[question.history],
            settings=settings,
            prompt=experiment.prompt,
            fits=caller.fits,
            lists=lists,
        )
        work = _Running(name, question, pipeline(case))
        work.advance(None)
        return work

    waiting, asking = deque(questions), list[_Running]()
    ended: dict[tuple[str, str], Trace] = {}
    while waiting or asking:
        at_work = {work.question.id for work in asking}
        room = len(waiting) if width is None else width - len(at_work)
        begun = [waiting.popleft() for _ in range(min(room, len(waiting)))]
        asking += [begin(name, pipeline, question) for question in begun for name, pipeline in pipelines]
        calls = [(work, work.ask) for work in asking if work.ask is not None]
        for (work, _), prediction in zip(calls, caller.ask([ask for _, ask in calls]), strict=True):
            work.advance(prediction)
        ended.update({(work.name, work.question.id): work.trace for work in asking if work.trace is not None})
        asking = [work for work in asking if work.ask is not None]
    traces = tuple(ended[name, question.id] for name in names for question in questions)
    made = {call.digest for call in caller.transcript.calls}
    for trace in traces:
        if {*lists_of(trace)} - lists.keys() or {*trace.calls} - made:
            raise ConfigurationError(
                f"pipeline {trace.pipeline!r}, question {trace.question!r}: its trace names a call that was not made, or a "
                "candidate list that was not kept; mend the pipeline"
            )
    return Assembled(traces, _named(traces, lists))


def _named(traces: Sequence[Trace], lists: dict[str, CandidateList]) -> tuple[CandidateList, ...]:
    """The lists that traces name, in order of first mention."""
    return tuple(lists[name] for name in dict.fromkeys(name for trace in traces for name in lists_of(trace)))
