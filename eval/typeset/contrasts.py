"""Contrasts and interactions as grids: for reports and papers, and flat for programs."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from eval.analysis.contrasts import Contrast, ContrastSummary, Interaction
from eval.results import as_json
from eval.statistics import REPLICATES, SEED
from eval.typeset.grid import Entry, Grid, Row, comma_separated, typeset
from eval.wording import NO_WIDTH, NO_WIDTH_NOTE

_NOTE = (
    "The same questions, paired. points: A's percentage less B's, with a bootstrap interval over question texts "
    f"({REPLICATES:,} replicates, seed {SEED}). exact p: McNemar's test. Holm p: corrected for all rows of a reader's declared "
    "contrasts. What the experiment did not declare before reading is exploratory, and its p is not corrected."
)

_FALLBACK = (
    "fallback: questions of which that side's packet shows latest_state or raw_history and not the view's own choice, because "
    "it chose nothing or a record is unresolved."
)


def render(result: ContrastSummary, form: str) -> str:
    """The contrasts in markdown, latex, csv (without interactions) or json."""
    if form == "json":
        return as_json(result) + "\n"
    if form == "csv":
        return comma_separated(flat(result.contrasts))
    crossed = [interaction_grid(result.interactions)] if result.interactions else []
    return typeset(form, [contrast_grid([result.contrasts]), *crossed])


def contrast_grid(groups: Sequence[Sequence[Contrast]]) -> Grid:
    """One row per contrast and hop class, in groups."""
    names = ("A", "B", "of", "population", "hops", "status", "asked", "both", "only A", "only B", "neither")
    given = [row for group in groups for row in group]
    fallback = _any_fallback(given)
    more = ("fallback A", "fallback B") if fallback else ()
    rows = tuple(tuple(_line(row, fallback) for row in group) for group in groups if group)
    headings = (*names, *more, "points (95 %)", "exact p", "Holm p")
    return Grid(headings, rows, 6, (_NOTE, *_notes(given)))


def _any_fallback(rows: Sequence[Contrast | Interaction]) -> bool:
    return any(row.fallbacks is not UNSET for row in rows)


def _any_no_width(rows: Sequence[Contrast | Interaction]) -> bool:
    return any(row.no_width is not UNSET for row in rows)


def _notes(rows: Sequence[Contrast | Interaction]) -> tuple[str, ...]:
    return (_FALLBACK,) * _any_fallback(rows) + (NO_WIDTH_NOTE,) * _any_no_width(rows)


def _fallbacks(row: Contrast | Interaction, sides: int, shown: bool) -> tuple[int, ...]:
    return (row.fallbacks or (0,) * sides) if shown else ()


def _line(row: Contrast, fallback: bool) -> Row:
    of = row.reader or f"view {row.view}"
    counts = (row.questions, row.both, row.only_a, row.only_b, row.neither, *_fallbacks(row, 2, fallback))
    return (row.a, row.b, of, row.population, row.hop_class, _status(row), *counts, _points(row), row.mcnemar_p, row.holm_p)


def interaction_grid(rows: Sequence[Interaction]) -> Grid:
    """One row per interaction and hop class."""
    fallback = _any_fallback(rows)
    lines: tuple[Row, ...] = tuple(
        (
            f"({row.a} - {row.b}) - ({row.c} - {row.d})",
            row.reader,
            row.population,
            row.hop_class,
            _status(row),
            row.questions,
            *_fallbacks(row, 4, fallback),
            _points(row),
        )
        for row in rows
    )
    headings = ("interaction", "reader", "population", "hops", "status", "asked")
    more = tuple(f"fallback {side}" for side in ("A", "B", "C", "D") if fallback)
    return Grid((*headings, *more, "points (95 %)"), (lines,), 5, _notes(rows))


def flat(rows: Sequence[Contrast]) -> Grid:
    """One column per field of a contrast, named as in the JSON; optional fields only if set in some row."""
    names = [name for name in Contrast.__struct_fields__ if name not in ("format", "fallbacks", "no_width", "evidence")]
    fallback, width = _any_fallback(rows), _any_no_width(rows)
    headings = (*names, *(("fallback_a", "fallback_b") if fallback else ()), *["no_width"] * width)

    def line(row: Contrast) -> Row:
        return (*_cells(row, names), *_fallbacks(row, 2, fallback), *[row.no_width is not UNSET] * width)

    return Grid(headings, (tuple(map(line, rows)),), 6)


def _cells(row: Contrast, names: Sequence[str]) -> Row:
    found: dict[str, Entry] = msgspec.structs.asdict(row)
    decimals = {"points", "low", "high", "mcnemar_p", "chi_square", "chi_square_p", "holm_p"}
    # Decimal strings become numbers.
    return tuple(float(str(found[n])) if n in decimals and found[n] is not None else found[n] for n in names)


def _points(row: Contrast | Interaction) -> str:
    return f"{row.points} ({row.low} to {row.high}){NO_WIDTH * (row.no_width is not UNSET)}"


def _status(row: Contrast | Interaction) -> str:
    return "declared before reading" if row.declared else "exploratory"
