"""The records of query-time pipelines."""

from typing import Literal

from offline.canonical import Record


class Candidate(Record, frozen=True):
    """One record that a model says matches a query: its position, its text as the model gave it, and the answer it holds.

    foreign: why policies do not see it (its position was not shown, its entity does not stand in that record), None if they do.
    """

    position: int
    text: str
    entity: str
    foreign: str | None = None


class CandidateList(Record, frozen=True):
    """Everything that one call listed for one query, shared by every policy. Its digest is that of its canonical line.

    call: digest of the call. shown: positions of the records it was shown, ascending. fault: what was wrong with the answer
    as a whole (not JSON, cut off, …), None if nothing was; what could be read of it is kept.
    """

    query: str
    call: str
    shown: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    fault: str | None = None
    format: Literal[1] = 1


HopOutcome = Literal["answered", "empty", "skipped", "stopped"]


class Hop(Record, frozen=True):
    """One planned hop. query: with placeholders; resolved: after substitution, None if that could not be done.

    candidates: digest of the `CandidateList`, None if none was asked for. outcome: `answered`; `empty`: no candidate;
    `skipped`: a dependency had no answer, or was no earlier hop; `stopped`: an earlier hop ended the chain. reason: in words,
    for the last two.
    """

    number: int
    query: str
    resolved: str | None
    candidates: str | None
    answer: str | None
    outcome: HopOutcome
    reason: str | None = None


class Trace(Record, frozen=True):
    """How one pipeline came to its answer to one question.

    answer: what is scored; the text "no answer" where a structured pipeline abstains. answered_by: `policy`, `model` (its
    text as it is), `fallback` or `none`. calls: digests of every call that the answer rests on, in order, shared ones too.
    evidence: positions of the records retrieved for the question itself, ascending. candidates: digest of the list that the
    policy was given, of the last hop that had one. fault: why a call that it rests on failed, None if none did. hops: of a
    decomposed question.
    """

    pipeline: str
    question: str
    answer: str
    answered_by: Literal["policy", "model", "fallback", "none"]
    calls: tuple[str, ...]
    evidence: tuple[int, ...]
    candidates: str | None = None
    fault: str | None = None
    hops: tuple[Hop, ...] = ()
    format: Literal[1] = 1
