"""The main table as grids: two for readers (views, models), one flat for programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eval.analysis.main_table import MainTable, TableRow
from eval.analysis.provenance import extraction_words
from eval.results import as_json
from eval.typeset.grid import Entry, Grid, Row, comma_separated, typeset
from offline.records import HopClass


@dataclass(frozen=True)
class _Cost:
    """A column of costs."""

    name: str  # CSV heading
    heading: str
    of: Callable[[TableRow], int | float]
    sized: bool = False  # the heading is followed by the unit
    note: str = ""  # of a column shown only if a row counts any


_COSTS = (
    _Cost("input_mean", "input", lambda row: row.input_mean, sized=True),
    _Cost("output_mean", "output", lambda row: row.output_mean, sized=True),
    _Cost("requests", "requests", lambda row: row.requests),
    _Cost("truncated", "truncated", lambda row: row.truncated),
    _Cost(
        "fallbacks",
        "fallback",
        lambda row: row.fallbacks,
        note="fallback: questions for which the view chose nothing, or might not choose because a record is unresolved; "
        "they were shown latest_state or raw_history instead, and their answers are not of the view's own choice.",
    ),
    _Cost("cut", "cut", lambda row: row.cut),
    _Cost("failed", "failed", lambda row: row.failed),
    _Cost(
        "capped",
        "capped",
        lambda row: row.capped,
        note="capped: answers that ended by the reader's output cap; one that was still thinking, or had not come to the "
        "point, is scored as it stands.",
    ),
)


class _Numbers(NamedTuple):
    """An accuracy; published ones have neither count nor interval."""

    questions: int
    correct: int | None
    percent: str
    low: str | None
    high: str | None


@dataclass(frozen=True)
class _Line:
    """A row of this run, or a published one without costs."""

    view: str
    reader: str
    length: str
    sealed: str
    accuracy: Mapping[HopClass, _Numbers]
    costs: TableRow | None
    source: str
    extraction: str


def _ours(table: MainTable) -> Iterator[_Line]:
    extraction = extraction_words(table.extraction)
    for row in table.rows:
        numbers = {
            name: _Numbers(found.questions, found.correct, found.percent, found.low, found.high)
            for name, found in row.accuracy.items()
        }
        length, sealed = row.length or "all", _sealed(row.sealed_blind)
        yield _Line(row.view, row.reader, length, sealed, numbers, row, "this run", extraction)


def _theirs(table: MainTable) -> Iterator[_Line]:
    given = table.published
    if given is None:
        return
    for row in given.rows:
        numbers = {name: _Numbers(given.questions[name], None, shown, None, None) for name, shown in row.percent.items()}
        reader, sealed = f"{row.reader}, {row.extraction} extraction", f"published, {row.where}"
        source = f"published: {given.source}, {row.where}"
        yield _Line(row.view, reader, "all", sealed, numbers, None, source, row.extraction)


def render(table: MainTable, form: str) -> str:
    """The table in markdown, latex, csv or json."""
    if form == "json":
        return as_json(table) + "\n"
    return comma_separated(flat(table)) if form == "csv" else typeset(form, grids(table))


def grids(table: MainTable) -> tuple[Grid, Grid]:
    """The table of views and hop classes, published rows last, and the table of readers."""
    ours, theirs = list(_ours(table)), list(_theirs(table))
    lengths = any(row.length for row in table.rows)
    of = {name: _same_questions(name, [*ours, *theirs]) for name in table.hop_classes}
    units = sorted({row.unit for row in table.rows})
    mixed = len(units) > 1
    columns = _columns(table)

    def cost(row: TableRow | None, column: _Cost) -> Entry:
        if row is None:
            return None
        return f"{column.of(row)} {row.unit}" if mixed and column.sized else column.of(row)

    def shown(line: _Line) -> Row:
        accuracies = (_shown(line.accuracy.get(name), of[name]) for name in of)
        costs = (cost(line.costs, column) for column in columns)
        return (line.view, line.reader, *[line.length] * lengths, line.sealed, *accuracies, *costs)

    percents = (f"{name} % (n = {questions})" if questions else f"{name} %" for name, questions in of.items())
    costs = (column.heading if mixed or not column.sized else f"{column.heading} {units[0]}" for column in columns)
    headings = ("view", "reader", *["length"] * lengths, "sealed", *percents, *costs)
    groups = tuple(tuple(map(shown, lines)) for lines in (ours, theirs) if lines)
    return Grid(headings, groups, 3 + lengths, _notes(table)), _readers(table)


def flat(table: MainTable) -> Grid:
    """One column per number of the table; `source` distinguishes this run's rows from published ones."""
    columns = _columns(table)

    def costs(row: TableRow | None) -> Row:
        return (None,) * (len(columns) + 1) if row is None else (row.unit, *(column.of(row) for column in columns))

    def reader(row: TableRow | None) -> Row:
        return (None, None) if row is None else (table.readers[row.reader].requests, table.readers[row.reader].seconds)

    def shown(line: _Line) -> Row:
        numbers = (n for name in table.hop_classes for n in line.accuracy.get(name, (None,) * len(_Numbers._fields)))
        whole = (line.sealed, *reader(line.costs), line.source, line.extraction)
        return (line.view, line.reader, line.length, table.metric, *numbers, *costs(line.costs), *whole)

    numbers = (f"{name}_{number}" for name in table.hop_classes for number in _Numbers._fields)
    whole = ("sealed", "reader_requests", "reader_seconds", "source", "extraction")
    headings = ("view", "reader", "length", "metric", *numbers, "unit", *(column.name for column in columns), *whole)
    return Grid(headings, (tuple(map(shown, (*_ours(table), *_theirs(table)))),), 4)


def _columns(table: MainTable) -> list[_Cost]:
    return [column for column in _COSTS if not column.note or any(map(column.of, table.rows))]


def _readers(table: MainTable) -> Grid:
    calls = any(reader.calls for reader in table.readers.values())
    rows = tuple(
        (
            *(name, reader.model, _sealed(reader.sealed_blind), f"{reader.root[:12]}…", reader.requests),
            *((reader.calls,) if calls else ()),
            reader.seconds,
        )
        for name, reader in table.readers.items()
    )
    note = "requests, seconds: of all views of a reader together; views share requests, and their seconds cannot be told apart."
    more = " calls: of all its pipelines together; `coldread pipelines` tells what they took." if calls else ""
    headings = ("reader", "model", "sealed", "seal", "requests", *["calls"] * calls, "seconds")
    return Grid(headings, (rows,), 4, (note + more,))


def _same_questions(hop_class: HopClass, lines: Sequence[_Line]) -> int | None:
    """The number of questions of a hop class if all rows have the same; else None."""
    counts = {line.accuracy[hop_class].questions for line in lines if hop_class in line.accuracy}
    return counts.pop() if len(counts) == 1 else None


def _shown(accuracy: _Numbers | None, of: int | None) -> str | None:
    """Percentage and interval, and the number of questions if the heading cannot give it."""
    if accuracy is None:
        return None
    interval = f" ({accuracy.low}-{accuracy.high})" if accuracy.low else ""
    questions = "" if of else f" of {accuracy.questions}"
    return f"{accuracy.percent}{interval}{questions}"


def _sealed(blind: bool) -> str:
    return "blind" if blind else "after labels were opened"


def _notes(table: MainTable) -> tuple[str, ...]:
    ours = (
        f"{table.experiment}: {table.metric}, percent (Wilson 95 %). input, output: means over questions. requests: "
        "distinct ones that the model was given. truncated: packets cut to the evidence budget. cut: questions whose packet "
        "was cut further, to the reader's input cap. failed: questions that a fault left without an answer, counted as wrong."
    )
    pipelines = (
        "A pipeline asks several times: its input and output are those of all calls that an answer rests on, shared ones "
        "counted for each; its requests are distinct calls. It has no packets, so none are truncated; cut are questions with a "
        "call that left out records retrieved for it, be it to the evidence budget or to the input cap."
    )
    sampled = ", ".join(dict.fromkeys(row.view for row in table.rows if row.sampled))
    given = table.published
    notes = (
        ours,
        *(column.note for column in _columns(table)),
        f"extraction: {extraction_words(table.extraction)}.",
        any(row.pipeline for row in table.rows) and pipelines,
        sampled and f"Sampled, where all else is decoded greedily: {sampled}.",
        given and f"published: substring match as reported in {given.source}; not measured here.",
    )
    return tuple(note for note in notes if note)
