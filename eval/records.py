"""Records of evaluation. `Label` and `Score` are defined here, so that upstream packages cannot reference an answer."""

from typing import Literal

from offline.canonical import Record
from offline.records import HopClass, Status
from readers.records import StageCounts


class Label(Record, frozen=True):
    """The gold answers of one question; matching any of them counts."""

    question: str
    golds: tuple[str, ...]
    format: Literal[1] = 1


class LabelOpening(Record, frozen=True):
    """One entry of a run's ledger: the command that opened the labels, and the seals made by then."""

    number: int
    command: str
    seals: dict[str, str]  # seal roots by reader
    previous: str  # digest of the previous entry; empty for the first
    digest: str = ""  # of this entry with an empty digest
    format: Literal[1] = 1


class Score(Record, frozen=True):
    """One scheduled question of one reader and view, scored by every metric."""

    reader: str
    view: str
    question: str
    row: str
    hop_class: HopClass
    hops: int | None
    length: str
    prediction: str
    finish_reason: str
    golds: tuple[str, ...]
    cut: int  # records cut to the input cap; of a pipeline, retrieved ones that its calls left out (input cap or budget)
    metrics: dict[str, bool]
    format: Literal[1] = 1


class Cell(Record, frozen=True):
    """Counts of one reader, view, hop class and history length."""

    reader: str
    view: str
    hop_class: str
    length: str | None  # None: pooled
    questions: int
    cut: int  # questions with a `cut` above 0
    correct: dict[str, int]  # by metric
    low: str  # Wilson 95 % interval of `subem`: percent, two decimals
    high: str
    blind: bool  # sealed before any label was opened
    format: Literal[1] = 1


class Link(Record, frozen=True):
    """One assertion of a chain."""

    position: int
    subject: str
    relation: str
    value: str
    record: str  # the line that states it
    current: bool  # not overwritten


class AskedExtractor(Record, frozen=True):
    """The model used by a frontend."""

    name: str  # of its reader
    model: str  # its pin, as written by people
    fingerprint: str  # of its files; for a served model, of what the server is asked for
    engine: str
    stages: dict[str, StageCounts]  # calls, in `unit`
    unit: Literal["tokens", "bytes"]
    catalogue: str | None  # digest of the edited names; None without edits
    environments: tuple[dict[str, str], ...]  # resolved by the answering engines


class ExtractedBy(Record, frozen=True):
    """Provenance of a run's triples."""

    frontend: str
    grammar: str | None
    statements: dict[Status, int]  # of all histories
    extractor: AskedExtractor | None  # None if no model was used


class Finding(Record, frozen=True):
    """A label screen's finding about one gold of a question."""

    question: str
    screen: str
    gold: str
    detail: str
    chain: tuple[Link, ...] = ()  # supporting assertions, in reading order
