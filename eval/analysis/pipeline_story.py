"""How a pipeline reached its answer to one question, for `show` and the report."""

from typing import Literal

from msgspec import UNSET, UnsetType

from eval.results import Result
from extract.pipelines.records import AnsweredBy, Hop, HopOutcome, Trace
from extract.pipelines.results import Made, Stored, failed
from readers.records import FinishReason


class ShownCandidate(Result, frozen=True):
    """One candidate of a list."""

    position: int
    entity: str
    text: str
    foreign: str | None  # why policies ignore it; None if they do not


Candidates = tuple[ShownCandidate, ...] | None


class HopStory(Result, frozen=True):
    """A `Hop` with its candidates."""

    number: int
    query: str
    resolved: str | None
    candidates: Candidates  # None if no list was requested
    chosen: int | None
    answer: str | None
    outcome: HopOutcome
    reason: str | None


class CallStory(Result, frozen=True):
    """One call."""

    stage: str
    input: int  # tokens; bytes for a served model
    output: int  # in the same unit
    text: str
    finish_reason: FinishReason
    error: str | None


class PipelineStory(Result, frozen=True):
    """A `Trace` with its candidates, hops, calls and verdicts."""

    answer: str
    answered_by: AnsweredBy
    finish_reason: Literal["error", "stop"]
    fault: str | None
    note: str | None
    evidence: tuple[int, ...]  # positions of retrieved records
    dropped: int
    chosen: int | None
    candidates: Candidates
    hops: tuple[HopStory, ...]
    calls: tuple[CallStory, ...]
    metrics: dict[str, bool] | UnsetType | None = UNSET  # by metric; None without stored scores, unset if not requested


def tell(stored: Stored, trace: Trace) -> PipelineStory:
    """Answer, retrieved positions, candidates, hops, and the verbatim output of each call."""
    return PipelineStory(
        answer=trace.answer,
        answered_by=trace.answered_by,
        finish_reason="error" if failed(trace) else "stop",
        fault=trace.fault,
        note=trace.note or None,
        evidence=trace.evidence,
        dropped=trace.dropped,
        chosen=trace.chosen,
        candidates=_candidates(stored, trace.candidates),
        hops=tuple(_hop(stored, hop) for hop in trace.hops),
        calls=tuple(_call(made) for made in stored.made([trace])),
    )


def _candidates(stored: Stored, name: str | None) -> Candidates:
    """The candidates of one list; None without a list."""
    if name is None:
        return None
    return tuple(ShownCandidate(c.position, c.entity, c.text, c.foreign) for c in stored.candidates[name].candidates)


def _hop(stored: Stored, hop: Hop) -> HopStory:
    return HopStory(
        number=hop.number,
        query=hop.query,
        resolved=hop.resolved,
        candidates=_candidates(stored, hop.candidates),
        chosen=hop.chosen,
        answer=hop.answer,
        outcome=hop.outcome,
        reason=hop.reason,
    )


def _call(made: Made) -> CallStory:
    call, prediction = made.call, made.prediction
    return CallStory(
        stage=call.stage,
        input=call.length,
        output=len(prediction.output_ids),
        text=prediction.text,
        finish_reason=prediction.finish_reason,
        error=prediction.error,
    )
