"""The records of query-time pipelines."""

from typing import Literal

from msgspec import UNSET, UnsetType

from offline.canonical import Record
from readers.records import StageCounts

# What a pipeline answers that found nothing.
NO_ANSWER = "no answer"


class Candidate(Record, frozen=True):
    """One record that a model says matches a query: its position, its text as the model gave it, and the answer it holds.

    time: of the record, as its source wrote it; None where it is undated or was not shown. foreign: why policies do not see
    the candidate (its position was not shown, its entity does not stand in that record, its text is no part of it), None if
    they do.
    """

    position: int
    text: str
    entity: str
    time: str | None = None
    foreign: str | None = None


class CandidateList(Record, frozen=True):
    """Everything that one call listed for one query, shared by every policy. Its digest is that of its canonical line.

    call: digest of the call. shown: positions of the records it was shown, ascending; dropped: how many retrieved ones were
    left out, oldest first, to meet the evidence budget or the input cap. fault: why records may be missing from it (the call
    failed, its answer was cut off, is not JSON, …), None if none can be; what could be read is kept. note: what else was not
    as asked for and costs nothing (text after the JSON), unset if nothing was.
    """

    query: str
    call: str
    shown: tuple[int, ...]
    dropped: int
    candidates: tuple[Candidate, ...]
    fault: str | None = None
    format: Literal[1] = 1
    note: str | UnsetType = UNSET


HopOutcome = Literal["answered", "empty", "skipped", "stopped"]
AnsweredBy = Literal["policy", "model", "fallback", "none"]


class Hop(Record, frozen=True):
    """One planned hop, numbered from 1. query: with placeholders; resolved: after substitution, None if that was not done.

    candidates: digest of the `CandidateList`, None if none was asked for. chosen: as in `Trace`. outcome: `answered`; `empty`:
    no answer; `skipped`: a dependency had no answer, or was no earlier hop; `stopped`: an earlier hop ended the chain.
    reason: in words, for the last two.
    """

    number: int
    query: str
    resolved: str | None
    candidates: str | None
    answer: str | None
    outcome: HopOutcome
    reason: str | None = None
    chosen: int | None = None


class Trace(Record, frozen=True):
    """How one pipeline came to its answer to one question.

    answer: what is scored; the text "no answer" where a structured pipeline abstains. answered_by: `policy`, `model` (its
    text as it is), `fallback` or `none`. calls: digests of every call that the answer rests on, each once, in order, shared
    ones too. evidence: positions of the records that those calls showed, ascending; dropped: how many retrieved ones they
    left out. chosen: position of the candidate that was taken, None if no single one was. candidates: digest of the list
    that the policy was given, of the last hop that had one. fault: what was wrong with the first model answer that may have
    cost the answer (a failed call, a list or plan that is cut off or cannot be read), None if none was. note: the first thing
    that was not as asked for and can cost nothing, unset if there is none. hops: of a decomposed question.
    """

    pipeline: str
    question: str
    answer: str
    answered_by: AnsweredBy
    calls: tuple[str, ...]
    evidence: tuple[int, ...]
    dropped: int = 0
    chosen: int | None = None
    candidates: str | None = None
    fault: str | None = None
    hops: tuple[Hop, ...] = ()
    format: Literal[1] = 1
    note: str | UnsetType = UNSET


def lists_of(trace: Trace) -> tuple[str, ...]:
    """Digests of the candidate lists that a trace names, each once, in order."""
    names = (*(hop.candidates for hop in trace.hops), trace.candidates)
    return tuple(dict.fromkeys(name for name in names if name is not None))


class Diagnosis(Record, frozen=True):
    """What one pipeline did to its questions, counted, without a label.

    abstained: questions without an answer. fallbacks: answered by the direct answer instead. faults: with one that may have
    cost the answer. noted: with a note. lists: candidate lists that they rest on, each once a question; empty: those without a
    candidate that a policy sees. candidates: of all lists, that a policy sees; foreign: with a reason why it should not.
    contested: questions with a list of two or more positions to choose from. planned: hops of the plans that could be read,
    beyond the limit too; unplanned: questions whose plan could not be, so that they are the one hop; executed: hops that were
    looked up, of either. first_failed: by number of a question's first hop without an answer, how many questions. costs: by
    stage, of distinct calls.
    """

    pipeline: str
    questions: int
    abstained: int
    fallbacks: int
    faults: int
    noted: int
    lists: int
    empty: int
    candidates: int
    foreign: int
    contested: int
    planned: int
    unplanned: int
    executed: int
    first_failed: dict[str, int]
    costs: dict[str, StageCounts]
