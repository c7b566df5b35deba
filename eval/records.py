"""The records of evaluation. `Label` and `Score` live here, so that nothing upstream can even name an answer."""

from typing import Literal

from msgspec import UNSET, UnsetType

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


class Contrast(Record, frozen=True):
    """A against B on the questions of one population and hop class (`all`: pooled): two views of `reader`, or, where `view` is
    given, two readers of it.

    both .. neither: questions by who answered them, by `metric`. cut_a .. failed_b: questions of each side with a `cut` above
    0, and those that a fault left without an answer. clusters: distinct question texts. points: A's percentage less
    B's; low, high: its bootstrap 95 % interval, percentage points; two decimals, as strings. chi_square: two decimals.
    mcnemar_p (exact), chi_square_p, holm_p: four significant digits. holm_p: corrected for the declared contrasts of the
    reader; None where the contrast is exploratory. declared: whether the experiment declared it, before anything was read.
    fallbacks: questions of which A's and B's packets show a fallback, not the view's own choice; unset if none does.
    no_width: set where all question texts have one and the same difference, as where none is discordant: low and high are then
    equal because no resample can differ, and say nothing of how sure the points are.
    """

    a: str
    b: str
    reader: str | None
    view: str | None
    population: str
    hop_class: HopClass
    metric: str
    questions: int
    clusters: int
    both: int
    only_a: int
    only_b: int
    neither: int
    cut_a: int
    cut_b: int
    failed_a: int
    failed_b: int
    points: str
    low: str
    high: str
    mcnemar_p: str
    chi_square: str
    chi_square_p: str
    holm_p: str | None
    declared: bool
    format: Literal[1] = 1
    fallbacks: tuple[int, ...] | UnsetType = UNSET
    no_width: Literal[True] | UnsetType = UNSET


class Interaction(Record, frozen=True):
    """(a - b) - (c - d) of four views of a reader: right answers of each, and the contrast in points with its interval.

    points, low, high: as in `Contrast`; fallbacks too, of a, b, c and d; and no_width.
    """

    a: str
    b: str
    c: str
    d: str
    reader: str
    population: str
    hop_class: HopClass
    metric: str
    questions: int
    clusters: int
    correct: tuple[int, int, int, int]
    points: str
    low: str
    high: str
    declared: bool
    format: Literal[1] = 1
    fallbacks: tuple[int, ...] | UnsetType = UNSET
    no_width: Literal[True] | UnsetType = UNSET


class SideEvidence(Record, frozen=True):
    """What the evidence of one side of a contrast explains.

    held: questions whose packet holds the gold (`coverage.Counts.gold_in_evidence`); answered: of these, those answered. lost:
    questions that only the other side answered; of these, `lacking_record` whose packet lacks a record that the other side's
    shows, and `lacking_gold` whose packet lacks the gold.
    """

    held: int
    answered: int
    lost: int
    lacking_record: int
    lacking_gold: int


class EvidenceOutcomes(Record, frozen=True):
    """Accuracy given evidence, and evidence by paired outcome, of the contrast that the first fields name."""

    a: str
    b: str
    reader: str | None
    view: str | None
    population: str
    hop_class: HopClass
    metric: str
    questions: int
    of_a: SideEvidence
    of_b: SideEvidence
    format: Literal[1] = 1
