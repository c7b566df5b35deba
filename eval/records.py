"""The records of evaluation. `Label` and `Score` live here, so that nothing upstream can even name an answer."""

from typing import Literal

from offline.canonical import Record
from offline.records import HopClass, Status
from readers.records import StageCounts


class Label(Record, frozen=True):
    """The gold answers of one question; any of them counts."""

    question: str
    golds: tuple[str, ...]
    format: Literal[1] = 1


class LabelOpening(Record, frozen=True):
    """One entry of a run's ledger: which command opened the labels, and the seal roots there were by then.

    `previous` is the digest of the entry before (empty for the first), `digest` that of this entry with an empty digest.
    """

    number: int
    command: str
    seals: dict[str, str]
    previous: str
    digest: str = ""
    format: Literal[1] = 1


class Score(Record, frozen=True):
    """One scheduled question of one reader and view, scored by every metric.

    cut: records that the input cap cut; of a pipeline, retrieved ones that its calls left out, to the evidence budget or to the
    input cap.
    """

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
    cut: int
    metrics: dict[str, bool]
    format: Literal[1] = 1


class Cell(Record, frozen=True):
    """Counts of one reader, view, hop class and history length, and a Wilson 95 % interval of `subem`.

    length: None where all lengths are pooled. cut: questions with a `cut` above 0. low, high: percent, two decimals, as
    strings. blind: whether the reader was sealed before any label was opened.
    """

    reader: str
    view: str
    hop_class: str
    length: str | None
    questions: int
    cut: int
    correct: dict[str, int]
    low: str
    high: str
    blind: bool
    format: Literal[1] = 1


class Link(Record, frozen=True):
    """One assertion of a chain; `record` is the line that states it, `current` whether nothing overwrites it."""

    position: int
    subject: str
    relation: str
    value: str
    record: str
    current: bool


class AskedExtractor(Record, frozen=True):
    """The model that a frontend asked: the name of its reader, its pin as people write it, its engine.

    fingerprint: of its files; of a served model, of what its server is asked for. stages: what its calls cost, in `unit`.
    catalogue: digest of the names that a person edited, None without. environments: what the engines resolved that answered.
    """

    name: str
    model: str
    fingerprint: str
    engine: str
    stages: dict[str, StageCounts]
    unit: Literal["tokens", "bytes"]
    catalogue: str | None
    environments: tuple[dict[str, str], ...]


class ExtractedBy(Record, frozen=True):
    """What made a run's triples. statements: those of all histories by status. extractor: None if no model was asked."""

    frontend: str
    grammar: str | None
    statements: dict[Status, int]
    extractor: AskedExtractor | None


class Finding(Record, frozen=True):
    """What one label screen found about one gold of a question; `chain` are the assertions that show it, in reading order."""

    question: str
    screen: str
    gold: str
    detail: str
    chain: tuple[Link, ...] = ()
