"""What `coldread contrast` prints for people, inside 100 columns."""

from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape

from eval.console.layout import new_table
from eval.wording import NO_WIDTH, NO_WIDTH_NOTE, blind_text, percent

# Two lines each and narrow, so that all fit.
_COUNTS = ("\nasked", "\nboth", "only\nA", "only\nB", "\nneither")
_NUMBERS = (*_COUNTS, "\npoints", "bootstrap\n95 %", "exact\np", "\nchi²", "chi²\np", "Holm\np")
_EVIDENCE = ("\nheld", "\nanswered", "\n%", "\nlost", "lacking\na record", "lacking\nthe gold")


def contrast(console: Console, result: dict[str, Any]) -> None:
    """A table for each contrast: its rows by hop class, and what evidence explains of them, if that was asked for.

    Below it, of all its questions, those whose evidence was cut and those that failed, side by side.

    held: questions whose packet holds the gold; answered: of these. lost: questions that only the other side answered; of
    these, those whose packet lacks a record of the other's, or the gold.
    """
    evidence = iter(result.get("evidence", ()))
    for title, rows in groupby(result["contrasts"], lambda row: _title(result, row)):
        table = new_table(title, ("\nhops",), _NUMBERS)
        explained = new_table("", ("\nside", "\nhops"), _EVIDENCE)
        for row in rows:
            numbers = [str(row[name]) for name in ("questions", "both", "only_a", "only_b", "neither")]
            p_values = [_p(row["mcnemar_p"]), f"{float(row['chi_square']):.1f}", _p(row["chi_square_p"]), _p(row["holm_p"])]
            table.add_row(row["hop_class"], *numbers, f"{float(row['points']):+.2f}", _interval(row), *p_values)
            if "evidence" in result:
                found = next(evidence)
                for side in ("a", "b"):
                    explained.add_row(escape(f"{side.upper()} {row[side]}"), row["hop_class"], *_side(found[f"of_{side}"]))
        console.print(table)
        # The last row pools them.
        sides = (f"{s.upper()} cut {row[f'cut_{s}']}, failed {row[f'failed_{s}']}" for s in ("a", "b"))
        console.print(f"{'; '.join(sides)}, of {row['questions']} questions", highlight=False, soft_wrap=True)
        _say_fallbacks(console, row, "ab")
        if "evidence" in result:
            console.print(explained)
    for title, rows in groupby(result["interactions"], lambda row: _interaction_title(result, row)):
        table = new_table(title, ("hops",), ("asked", "A", "B", "C", "D", "points", "bootstrap 95 %"))
        for row in rows:
            counts = [str(count) for count in (row["questions"], *row["correct"])]
            table.add_row(row["hop_class"], *counts, f"{float(row['points']):+.2f}", _interval(row))
        console.print(table)
        _say_fallbacks(console, row, "abcd")
    bootstrap = result["bootstrap"]
    console.print(
        f"bootstrap over question texts: {bootstrap['replicates']} replicates, seed {bootstrap['seed']}; Holm over the rows of "
        "a reader's declared contrasts",
        highlight=False,
        soft_wrap=True,
    )
    if any("no_width" in row for row in (*result["contrasts"], *result["interactions"])):
        console.print(NO_WIDTH_NOTE, highlight=False, markup=False)


def _say_fallbacks(console: Console, row: dict[str, Any], sides: str) -> None:
    """Of the last row, which is of all questions of the population, unless no side shows a fallback."""
    if "fallbacks" in row:
        counts = ", ".join(f"{s.upper()} {row[s]} {count}" for s, count in zip(sides, row["fallbacks"], strict=True))
        console.print(
            escape(f"of {row['questions']} questions, shown a fallback and not the view's own choice: {counts}"),
            highlight=False,
        )


def _title(result: dict[str, Any], row: dict[str, Any]) -> str:
    who = f"view {row['view']}" if row["reader"] is None else row["reader"]
    readers = (row["a"], row["b"]) if row["reader"] is None else (row["reader"],)
    return escape(
        f"{result['metric']}, A {row['a']} against B {row['b']}: {who}, {_sealed(result, *readers)}, population "
        f"{row['population']}, {_declared(row)}"
    )


def _interaction_title(result: dict[str, Any], row: dict[str, Any]) -> str:
    return escape(
        f"{result['metric']}, (A {row['a']} - B {row['b']}) - (C {row['c']} - D {row['d']}): {row['reader']}, "
        f"{_sealed(result, row['reader'])}, population {row['population']}, {_declared(row)}"
    )


def _sealed(result: dict[str, Any], *readers: str) -> str:
    return blind_text(all(result["sealed_blind"][name] for name in readers))


def _declared(row: dict[str, Any]) -> str:
    return "declared before reading" if row["declared"] else "EXPLORATORY"


def _interval(row: dict[str, Any]) -> str:
    return f"[{row['low']}, {row['high']}]{NO_WIDTH * ('no_width' in row)}"


def _p(p: str | None) -> str:
    return "-" if p is None else f"{float(p):.2g}"


def _side(found: dict[str, int]) -> tuple[str, ...]:
    counts = [str(found[name]) for name in ("lost", "lacking_record", "lacking_gold")]
    return (str(found["held"]), str(found["answered"]), percent(found["answered"], found["held"]), *counts)
