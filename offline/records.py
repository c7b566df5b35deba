"""The records that several packages share. `format` is the version of the stored form.

`gc=False`: a long history holds millions of these, none in a cycle, so the collector need not visit them.
"""

from typing import Literal

from offline.canonical import Record

HopClass = Literal["sh", "mh", "all"]
Status = Literal["facts", "unresolved", "no_fact"]
Fallback = Literal["raw_history", "latest_state"]


class Statement(Record, frozen=True, gc=False):
    """One line of a history."""

    position: int  # larger is newer
    text: str  # the original wording
    time: str | None = None  # as the source wrote it, for dated histories, whose positions are ranks


class History(Record, frozen=True):
    """An ordered list of statements."""

    id: str
    length: str  # label of its size (`6k`)
    statements: tuple[Statement, ...]  # positions strictly increasing
    format: Literal[1] = 1


class Question(Record, frozen=True):
    """One question about the final state of one history."""

    id: str  # unique in a run
    row: str  # the raw row that it came from
    history: str
    text: str
    hop_class: HopClass = "all"  # the stratum that it is reported in
    hops: int | None = None  # exact number, where the source gives it
    format: Literal[1] = 1


class Triple(Record, frozen=True, gc=False):
    """A fact, with subject and object as they stand in the statement."""

    subject: str
    relation: str  # the aligned name
    object: str


class StatementExtraction(Record, frozen=True, gc=False):
    """A frontend's reading of one distinct statement text."""

    text: str
    status: Status
    triples: tuple[Triple, ...] = ()
    reason: str | None = None  # why the status is not `facts`
    format: Literal[1] = 1


class Relation(Record, frozen=True):
    """A relation of an extraction's catalogue."""

    name: str
    words: str  # its sentence form without the slots
    format: Literal[1] = 1


class Extraction(Record, frozen=True):
    """A frozen extraction: each distinct text once, in order of first appearance, and the relation catalogue."""

    statements: tuple[StatementExtraction, ...]
    relations: tuple[Relation, ...]


class Evidence(Record, frozen=True):
    """A rendered evidence text, stored once."""

    digest: str
    positions: tuple[int, ...]  # of the records shown, ascending
    text: str
    format: Literal[1] = 1


class Packet(Record, frozen=True):
    """One view's choice for one question, frozen. Its digest is that of its canonical line."""

    question: str
    question_digest: str  # of the question's record
    history_digest: str  # of the history's record
    view: str
    prompt: str  # digest of the reader prompt
    evidence: str  # digest of the evidence text
    records: int  # shown
    characters: int  # of the evidence text
    dropped: int  # chosen records that the budget left out
    truncated: bool
    fallback: Fallback | None
    format: Literal[1] = 1


class Message(Record, frozen=True):
    """One chat message."""

    role: Literal["system", "user"]
    content: str
