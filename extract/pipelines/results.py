"""The stored results of a reader's pipelines, from the folder that its seal covers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from extract.pipelines.diagnostics import by_digest, sampled
from extract.pipelines.records import CandidateList, Trace, lists_of
from extract.pipelines.step import (
    ENVIRONMENTS,
    TRACES,
    TRANSCRIPT,
    pipelines_folder,
    read_candidates,
    read_environments,
    read_traces,
)
from offline.errors import AlteredError, ConfigurationError
from offline.run.opened import OpenRun
from readers.records import Call, PipelineCounts, Prediction
from readers.seal import PipelineFacts
from readers.transcript import Transcript, check_environments, read_transcript


@dataclass(frozen=True)
class Made:
    """One call and its answer."""

    call: Call
    prediction: Prediction


@dataclass(frozen=True)
class Stored:
    """Everything that a reader's pipelines recorded."""

    traces: tuple[Trace, ...]
    candidates: Mapping[str, CandidateList]  # by digest
    transcript: Transcript
    environments: tuple[dict[str, str], ...]

    @cached_property
    def calls(self) -> dict[str, Made]:
        """Calls and answers by digest, in the order in which they were first made."""
        both = zip(self.transcript.calls, self.transcript.predictions, strict=True)
        return {call.digest: Made(call, prediction) for call, prediction in both}

    def made(self, traces: Iterable[Trace]) -> list[Made]:
        """The distinct calls behind these traces, in order of first mention."""
        return [self.calls[name] for name in dict.fromkeys(name for trace in traces for name in trace.calls)]

    def facts(self) -> PipelineFacts:
        """The seal's statement about them; ConfigurationError for a pipeline that samples without `sampled` in its name."""
        hot = sampled(self.traces, self.transcript)
        if unmarked := [name for name in hot if "sampled" not in name.split("_")]:
            raise ConfigurationError(
                f"pipeline {unmarked[0]!r} samples, and its name does not say so in every table; call it {unmarked[0]}_sampled"
            )
        counts = PipelineCounts(
            questions=len(self.traces),
            failed=sum(failed(trace) for trace in self.traces),
            calls=len(self.transcript.calls),
            input_tokens=sum(call.length for call in self.transcript.calls),
            output_tokens=sum(len(prediction.output_ids) for prediction in self.transcript.predictions),
        )
        return PipelineFacts(hot, counts, self.environments)


def failed(trace: Trace) -> bool:
    """True if a fault left a question without an answer; an abstention without a fault is an answer."""
    return trace.fault is not None and (trace.answered_by == "none" or not trace.answer)


def read_stored(run: OpenRun, reader: str) -> Stored:
    """All of it; AlteredError unless traces, lists, calls and environments are complete. `verify_reads` checks the bytes."""
    return run.once(f"reads/{reader}", "stored", lambda: _read_stored(run, reader))


def _read_stored(run: OpenRun, reader: str) -> Stored:
    folder = pipelines_folder(run, reader)
    stored = Stored(
        traces=read_traces(run, reader),
        candidates=by_digest(read_candidates(run, reader)),
        transcript=read_transcript(folder / TRANSCRIPT),
        environments=read_environments(run, reader),
    )
    for number, trace in enumerate(stored.traces, 1):
        if {*lists_of(trace)} - stored.candidates.keys() or {*trace.calls} - stored.calls.keys():
            raise AlteredError(f"{folder / TRACES}, line {number}: names a call or a candidate list that is not stored")
    check_environments(folder / ENVIRONMENTS, stored.environments, stored.transcript)
    return stored
