"""What a reader's pipelines left in the folder that its seal covers: traces, candidate lists, calls."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from extract.pipelines.records import CandidateList, Trace
from offline.canonical import digest_of, read_lines
from offline.errors import AlteredError
from offline.run_folder import RunFolder
from readers.calls import Transcript, read_transcript
from readers.records import Call, PipelineCounts, Prediction
from readers.seal import PIPELINES, reads_folder

TRACES, CANDIDATES, CALLS = "traces.jsonl", "candidates.jsonl", "calls"


@dataclass(frozen=True)
class Made:
    """One call and its answer."""

    call: Call
    prediction: Prediction


@dataclass(frozen=True)
class Stored:
    """Everything that a reader's pipelines recorded; `candidates` by digest."""

    traces: tuple[Trace, ...]
    candidates: Mapping[str, CandidateList]
    transcript: Transcript

    @cached_property
    def calls(self) -> dict[str, Made]:
        """Calls and answers by digest, in the order in which they were first made."""
        both = zip(self.transcript.calls, self.transcript.predictions, strict=True)
        return {call.digest: Made(call, prediction) for call, prediction in both}

    def made(self, traces: Iterable[Trace]) -> list[Made]:
        """The distinct calls that these traces rest on, in order of first mention."""
        return [self.calls[name] for name in dict.fromkeys(name for trace in traces for name in trace.calls)]

    def counts(self) -> PipelineCounts:
        """What the seal states of them."""
        return PipelineCounts(
            questions=len(self.traces),
            failed=sum(failed(trace) for trace in self.traces),
            calls=len(self.transcript.calls),
            input_tokens=sum(call.length for call in self.transcript.calls),
            output_tokens=sum(len(prediction.output_ids) for prediction in self.transcript.predictions),
        )


def failed(trace: Trace) -> bool:
    """Whether a fault left a question without an answer; an abstention that nothing went wrong with is an answer."""
    return trace.fault is not None and (trace.answered_by == "none" or not trace.answer)


def read_traces(run: RunFolder, reader: str) -> tuple[Trace, ...]:
    """The traces of a reader in stored order; none if it serves no pipeline."""
    path = reads_folder(run, reader) / PIPELINES / TRACES
    return tuple(read_lines(path, Trace)) if path.parent.is_dir() else ()


def read_stored(run: RunFolder, reader: str) -> Stored:
    """All of it, whose bytes `verify_reads` checks; AlteredError if a trace names a list or a call that is not there."""
    folder = reads_folder(run, reader) / PIPELINES
    lists = {digest_of(found): found for found in read_lines(folder / CANDIDATES, CandidateList)}
    stored = Stored(read_traces(run, reader), lists, read_transcript(folder / CALLS))
    for number, trace in enumerate(stored.traces, 1):
        named = {trace.candidates, *(hop.candidates for hop in trace.hops)} - {None}
        if named - stored.candidates.keys() or set(trace.calls) - stored.calls.keys():
            raise AlteredError(f"{folder / TRACES}, line {number}: names a call or a candidate list that is not stored")
    return stored
