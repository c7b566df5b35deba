"""Contrasts and interactions as grids: to be read in a report or a paper, and flat for programs."""

from collections.abc import Sequence

import msgspec

from eval.grid import Entry, Grid, Row
from eval.records import Contrast, Interaction
from eval.statistics import REPLICATES, SEED

_NOTE = (
    "The same questions, paired. points: A's percentage less B's, with a bootstrap interval over question texts "
    f"({REPLICATES:,} replicates, seed {SEED}). exact p: McNemar's test. Holm p: corrected for all rows of a reader's declared "
    "contrasts. What the experiment did not declare before reading is exploratory, and its p is not corrected."
)


def contrast_grid(groups: Sequence[Sequence[Contrast]]) -> Grid:
    """One row a contrast and hop class, in groups."""
    headings = ("A", "B", "of", "population", "hops", "status", "asked", "both", "only A", "only B", "neither")
    rows = tuple(tuple(map(_line, group)) for group in groups if group)
    return Grid((*headings, "points (95 %)", "exact p", "Holm p"), rows, 6, (_NOTE,))


def _line(row: Contrast) -> Row:
    of = row.reader or f"view {row.view}"
    counts = (row.questions, row.both, row.only_a, row.only_b, row.neither)
    return (row.a, row.b, of, row.population, row.hop_class, _status(row), *counts, _points(row), row.mcnemar_p, row.holm_p)


def interaction_grid(rows: Sequence[Interaction]) -> Grid:
    """One row an interaction and hop class."""
    lines = tuple(
        (
            f"({row.a} - {row.b}) - ({row.c} - {row.d})",
            row.reader,
            row.population,
            row.hop_class,
            _status(row),
            row.questions,
            _points(row),
        )
        for row in rows
    )
    return Grid(("interaction", "reader", "population", "hops", "status", "asked", "points (95 %)"), (lines,), 5)


def flat(rows: Sequence[Contrast]) -> Grid:
    """Every field of a contrast in a column of its own, under the names of the JSON."""
    names = [name for name in Contrast.__struct_fields__ if name != "format"]
    return Grid(tuple(names), (tuple(_cells(row, names) for row in rows),), 6)


def _cells(row: Contrast, names: Sequence[str]) -> Row:
    found: dict[str, Entry] = msgspec.structs.asdict(row)
    decimals = {"points", "low", "high", "mcnemar_p", "chi_square", "chi_square_p", "holm_p"}
    # A decimal that travels as a string is a number all the same.
    return tuple(float(str(found[n])) if n in decimals and found[n] is not None else found[n] for n in names)


def _points(row: Contrast | Interaction) -> str:
    return f"{row.points} ({row.low} to {row.high})"


def _status(row: Contrast | Interaction) -> str:
    return "declared before reading" if row.declared else "exploratory"
