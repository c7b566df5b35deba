"""Label-free statistics of traces and candidate lists, as pure functions of what a run stores."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import UNSET

from extract.pipelines.candidates import usable, usable_positions
from extract.pipelines.car import PLANNING, read_plan
from extract.pipelines.records import CandidateList, Diagnosis, Trace, lists_of
from offline.canonical import digest_of
from offline.config.calls import PipelineSettings
from readers.transcript import Transcript

Lists = Mapping[str, CandidateList]


def by_digest(lists: Sequence[CandidateList]) -> dict[str, CandidateList]:
    """Candidate lists by digest, as traces name them."""
    return {digest_of(listed): listed for listed in lists}


def by_pipeline(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Traces of each pipeline, in order."""
    found: dict[str, list[Trace]] = {}
    for trace in traces:
        found.setdefault(trace.pipeline, []).append(trace)
    return found


def is_contested(trace: Trace, lists: Lists, settings: PipelineSettings) -> bool:
    """True if some list behind a trace gave a policy two or more positions to choose from."""
    return any(len(usable_positions(lists[name], settings)) > 1 for name in lists_of(trace))


def agreement(traces: Sequence[Trace], lists: Lists, transcript: Transcript, one: str, other: str) -> tuple[int, int]:
    """On how many questions two pipelines have the same candidates, list by list; on how many both have a list.

    A failed call gives no list: two refusals are no agreement.
    """
    named = by_pipeline(traces)
    others = {trace.question: trace for trace in named.get(other, ())}
    failed = {prediction.request for prediction in transcript.predictions if prediction.finish_reason == "error"}
    pairs = [
        tuple([lists[name] for name in lists_of(side)] for side in (trace, others[trace.question]))
        for trace in named.get(one, ())
        if trace.question in others
    ]
    both = [pair for pair in pairs if all(pair) and failed.isdisjoint(listed.call for side in pair for listed in side)]
    same = ([listed.candidates for listed in mine] == [listed.candidates for listed in theirs] for mine, theirs in both)
    return sum(same), len(both)


def calls_of(traces: Sequence[Trace]) -> set[str]:
    """Digests of all calls behind these traces."""
    return {call for trace in traces for call in trace.calls}


def sampled(traces: Sequence[Trace], transcript: Transcript) -> tuple[str, ...]:
    """Names of the pipelines with a call that sampled, in order."""
    hot = {call.digest for call in transcript.calls if transcript.decodings[call.decoding].temperature != "0"}
    return tuple(name for name, own in by_pipeline(traces).items() if hot & calls_of(own))


def diagnose(
    traces: Sequence[Trace], lists: Lists, transcript: Transcript, settings: PipelineSettings
) -> tuple[Diagnosis, ...]:
    """One record a pipeline, in order. A shared call counts for each pipeline, but once in `Transcript.counts`."""
    plans = _plans(transcript)
    return tuple(_diagnosis(name, own, lists, plans, transcript, settings) for name, own in by_pipeline(traces).items())


def _plans(transcript: Transcript) -> dict[str, int]:
    """The hops planned by each planning call, by its digest, also those beyond the limit; 0 for an unreadable plan."""
    both = zip(transcript.calls, transcript.predictions, strict=True)
    read = {call.digest: read_plan(prediction, "", sys.maxsize) for call, prediction in both if call.stage == PLANNING}
    return {name: len(plan.hops) if plan.placeholders else 0 for name, plan in read.items()}


def _planned(trace: Trace, plans: Mapping[str, int]) -> int:
    """The number of hops planned for a question; for a pipeline without our planning call, those of its trace."""
    return next((plans[call] for call in trace.calls if call in plans), len(trace.hops))


def _diagnosis(
    name: str,
    traces: Sequence[Trace],
    lists: Lists,
    plans: Mapping[str, int],
    transcript: Transcript,
    settings: PipelineSettings,
) -> Diagnosis:
    own = [lists[digest] for trace in traces for digest in lists_of(trace)]
    seen = [len(usable(listed, settings)) for listed in own]
    failed = [next((hop.number for hop in trace.hops if hop.outcome != "answered"), None) for trace in traces]
    planned = [_planned(trace, plans) for trace in traces if trace.hops]
    numbers = Counter(number for number in failed if number is not None)
    return Diagnosis(
        pipeline=name,
        questions=len(traces),
        abstained=sum(trace.answered_by == "none" for trace in traces),
        fallbacks=sum(trace.answered_by == "fallback" for trace in traces),
        faults=sum(trace.fault is not None for trace in traces),
        noted=sum(trace.note is not UNSET for trace in traces),
        lists=len(own),
        empty=seen.count(0),
        candidates=sum(seen),
        foreign=sum(candidate.foreign is not None for listed in own for candidate in listed.candidates),
        contested=sum(is_contested(trace, lists, settings) for trace in traces),
        planned=sum(planned),
        unplanned=planned.count(0),
        executed=sum(hop.outcome in ("answered", "empty") for trace in traces for hop in trace.hops),
        first_failed={str(number): numbers[number] for number in sorted(numbers)},
        costs=transcript.counts(calls_of(traces)),
    )
