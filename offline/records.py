"""The records that more than one package speaks of. `format` is the version of the stored form.

`gc=False`: a long history holds millions of these; none can be part of a cycle, so the collector need not visit them.
"""

from typing import Literal

from offline.canonical import Record

HopClass = Literal["sh", "mh", "all"]
Status = Literal["facts", "unresolved", "no_fact"]
Fallback = Literal["raw_history", "latest_state"]


class Statement(Record, frozen=True, gc=False):
    """One line of a history: `position` orders it (larger is newer), `text` is the original wording.

    `time` is the timestamp as the source wrote it, for dated histories whose position is the rank; else None.
    """

    position: int
    text: str
    time: str | None = None


class History(Record, frozen=True):
    """An ordered list of statements, positions strictly increasing. `length` is the label of its size (`6k`)."""

    id: str
    length: str
    statements: tuple[Statement, ...]
    format: Literal[1] = 1


class Question(Record, frozen=True):
    """One question about the final state of one history; `id` is unique in a run.

    `row` is the raw row it came from; `hop_class` the stratum it is reported in; `hops` its exact number of hops, where
    the source says so.
    """

    id: str
    row: str
    history: str
    text: str
    hop_class: HopClass = "all"
    hops: int | None = None
    format: Literal[1] = 1


class Triple(Record, frozen=True, gc=False):
    """Subject and object as they stand in the statement; `relation` is the aligned name."""

    subject: str
    relation: str
    object: str


class StatementExtraction(Record, frozen=True, gc=False):
    """What a frontend made of one distinct statement text. `reason` says why a text is not `facts`."""

    text: str
    status: Status
    triples: tuple[Triple, ...] = ()
    reason: str | None = None
    format: Literal[1] = 1


class Relation(Record, frozen=True):
    """A relation of an extraction's catalogue; `words` is its sentence form without the slots."""

    name: str
    words: str
    format: Literal[1] = 1


class Extraction(Record, frozen=True):
    """A frozen extraction: each distinct text once, in order of first appearance, and the relation catalogue."""

    statements: tuple[StatementExtraction, ...]
    relations: tuple[Relation, ...]


class Evidence(Record, frozen=True):
    """A rendered evidence text, stored once. `positions` are the records shown, ascending."""

    digest: str
    positions: tuple[int, ...]
    text: str
    format: Literal[1] = 1


class Packet(Record, frozen=True):
    """What one view chose for one question, frozen. Its digest is that of its canonical line.

    `question_digest`, `history_digest` and `prompt` bind the question's record, the history's record and the reader
    prompt; `evidence` is the digest of the evidence text. `dropped` counts the chosen records that the budget cut.
    """

    question: str
    question_digest: str
    history_digest: str
    view: str
    prompt: str
    evidence: str
    records: int
    characters: int
    dropped: int
    truncated: bool
    fallback: Fallback | None
    format: Literal[1] = 1


class Message(Record, frozen=True):
    """One chat message."""

    role: Literal["system", "user"]
    content: str
