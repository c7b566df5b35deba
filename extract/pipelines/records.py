"""Records of query-time pipelines."""

from typing import Literal

from msgspec import UNSET, UnsetType

from offline.canonical import Record
from readers.records import StageCounts

# The answer of a pipeline that found none.
NO_ANSWER = "no answer"


class Candidate(Record, frozen=True):
    """One record that a model lists as matching a query."""

    position: int
    text: str  # the record's, as the model gave it
    entity: str  # the answer that it holds
    time: str | None = None  # of the record, as its source wrote it; None if it is undated or was not shown
    foreign: str | None = None  # why policies do not see it: position not shown, entity not in the record, text no part of it


class CandidateList(Record, frozen=True):
    """All that one call listed for one query, shared by every policy. Its digest is that of its canonical line."""

    query: str
    call: str  # digest of the call
    shown: tuple[int, ...]  # positions of the records shown, ascending
    dropped: int  # retrieved records left out, oldest first, to meet the evidence budget or the input cap
    candidates: tuple[Candidate, ...]
    fault: str | None = None  # why records may be missing (the call failed, the answer is cut off or not JSON, …)
    format: Literal[1] = 1
    note: str | UnsetType = UNSET  # what else was not as asked for, without consequences (text after the JSON)


HopOutcome = Literal["answered", "empty", "skipped", "stopped"]
AnsweredBy = Literal["policy", "model", "fallback", "none"]


class Hop(Record, frozen=True):
    """One planned hop."""

    number: int  # from 1
    query: str  # with placeholders
    resolved: str | None  # after substitution; None if that was not done
    candidates: str | None  # digest of the `CandidateList`; None if none was asked for
    answer: str | None
    outcome: HopOutcome  # empty: no answer; skipped: a dependency is missing; stopped: an earlier hop ended the chain
    reason: str | None = None  # of `skipped` and `stopped`, in words
    chosen: int | None = None  # as in `Trace`


class Trace(Record, frozen=True):
    """How one pipeline came to its answer to one question."""

    pipeline: str
    question: str
    answer: str  # what is scored; "no answer" where a structured pipeline abstains
    answered_by: AnsweredBy  # `fallback` is the direct answer of a `_fallback` pipeline
    calls: tuple[str, ...]  # digests of every call behind the answer, each once, in order, shared ones included
    evidence: tuple[int, ...]  # positions of the records that those calls showed, ascending
    dropped: int = 0  # retrieved records that they left out
    chosen: int | None = None  # position of the candidate taken; None if no single one was
    candidates: str | None = None  # digest of the list given to the policy (of the last hop that had one)
    fault: str | None = None  # of the first model answer that may have cost the answer (failed, cut off, unreadable)
    hops: tuple[Hop, ...] = ()  # of a decomposed question
    format: Literal[1] = 1
    note: str | UnsetType = UNSET  # the first thing that was not as asked for, without consequences


def lists_of(trace: Trace) -> tuple[str, ...]:
    """Digests of the candidate lists that a trace names, each once, in order."""
    names = (*(hop.candidates for hop in trace.hops), trace.candidates)
    return tuple(dict.fromkeys(name for name in names if name is not None))


class Diagnosis(Record, frozen=True):
    """Label-free counts of one pipeline's work."""

    pipeline: str
    questions: int
    abstained: int  # questions without an answer
    fallbacks: int  # questions with a direct fallback
    faults: int  # questions with a fault that may have cost the answer
    noted: int  # questions with a note
    lists: int  # candidate lists, each once a question
    empty: int  # lists without a candidate that a policy sees
    candidates: int  # in all lists, seen by a policy
    foreign: int  # with a reason why a policy should not see it
    contested: int  # questions with a list of two or more positions to choose from
    planned: int  # hops of readable plans, also beyond the limit
    unplanned: int  # questions with an unreadable plan, which are their own one hop
    executed: int  # hops that were looked up, planned or not
    first_failed: dict[str, int]  # questions by the number of their first hop without an answer
    costs: dict[str, StageCounts]  # by stage, of distinct calls
