"""Output of `coldread contrast`, within 100 columns."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape

from eval.analysis.contrasts import Contrast, ContrastSummary, Interaction
from eval.analysis.evidence import SideEvidence
from eval.console.layout import new_table
from eval.wording import NO_WIDTH, NO_WIDTH_NOTE, blind_text, percent

# Two-line headings keep the columns narrow.
_COUNTS = ("\nasked", "\nboth", "only\nA", "only\nB", "\nneither")
_NUMBERS = (*_COUNTS, "\npoints", "bootstrap\n95 %", "exact\np", "\nchi²", "chi²\np", "Holm\np")
_EVIDENCE = ("\nheld", "\nanswered", "\n%", "\nlost", "lacking\na record", "lacking\nthe gold")


def contrast(console: Console, result: ContrastSummary) -> None:
    """Print each contrast by hop class, with its evidence if requested, then its cut and failed questions.

    held: questions whose packet contains the gold; answered: of these. lost: questions answered only by the other side, with
    those whose packet lacks a record of the other's, or the gold.
    """
    for title, paired in groupby(result.contrasts, lambda row: _title(result, row)):
        _contrast(console, title, list(paired))
    for title, crossed in groupby(result.interactions, lambda row: _interaction_title(result, row)):
        _interaction(console, title, list(crossed))
    console.print(
        f"bootstrap over question texts: {result.bootstrap.replicates} replicates, seed {result.bootstrap.seed}; Holm over the "
        "rows of a reader's declared contrasts",
        highlight=False,
        soft_wrap=True,
    )
    rows: tuple[Contrast | Interaction, ...] = (*result.contrasts, *result.interactions)
    if any(row.no_width for row in rows):
        console.print(NO_WIDTH_NOTE, highlight=False, markup=False)


def _contrast(console: Console, title: str, rows: Sequence[Contrast]) -> None:
    table = new_table(title, ("\nhops",), _NUMBERS)
    explained = new_table("", ("\nside", "\nhops"), _EVIDENCE)
    for row in rows:
        counts = map(str, (row.questions, row.both, row.only_a, row.only_b, row.neither))
        p_values = (_p(row.mcnemar_p), f"{float(row.chi_square):.1f}", _p(row.chi_square_p), _p(row.holm_p))
        table.add_row(row.hop_class, *counts, f"{float(row.points):+.2f}", _interval(row), *p_values)
        if row.evidence:
            explained.add_row(escape(f"A {row.a}"), row.hop_class, *_side(row.evidence.of_a))
            explained.add_row(escape(f"B {row.b}"), row.hop_class, *_side(row.evidence.of_b))
    console.print(table)
    pooled = rows[-1]
    lost = f"A cut {pooled.cut_a}, failed {pooled.failed_a}; B cut {pooled.cut_b}, failed {pooled.failed_b}"
    console.print(f"{lost}, of {pooled.questions} questions", highlight=False, soft_wrap=True)
    _say_fallbacks(console, pooled, {"A": pooled.a, "B": pooled.b})
    if explained.rows:
        console.print(explained)


def _interaction(console: Console, title: str, rows: Sequence[Interaction]) -> None:
    table = new_table(title, ("hops",), ("asked", "A", "B", "C", "D", "points", "bootstrap 95 %"))
    for row in rows:
        counts = map(str, (row.questions, *row.correct))
        table.add_row(row.hop_class, *counts, f"{float(row.points):+.2f}", _interval(row))
    console.print(table)
    pooled = rows[-1]
    _say_fallbacks(console, pooled, {"A": pooled.a, "B": pooled.b, "C": pooled.c, "D": pooled.d})


def _say_fallbacks(console: Console, pooled: Contrast | Interaction, sides: dict[str, str]) -> None:
    """Print fallbacks, if any. sides: display names."""
    if pooled.fallbacks:
        counts = ", ".join(f"{s} {name} {count}" for (s, name), count in zip(sides.items(), pooled.fallbacks, strict=True))
        console.print(
            escape(f"of {pooled.questions} questions, shown a fallback and not the view's own choice: {counts}"),
            highlight=False,
        )


def _title(result: ContrastSummary, row: Contrast) -> str:
    who = f"view {row.view}" if row.reader is None else row.reader
    return escape(
        f"{result.metric}, A {row.a} against B {row.b}: {who}, {_sealed(result, *row.readers)}, population {row.population}, "
        f"{_declared(row)}"
    )


def _interaction_title(result: ContrastSummary, row: Interaction) -> str:
    return escape(
        f"{result.metric}, (A {row.a} - B {row.b}) - (C {row.c} - D {row.d}): {row.reader}, {_sealed(result, row.reader)}, "
        f"population {row.population}, {_declared(row)}"
    )


def _sealed(result: ContrastSummary, *readers: str) -> str:
    return blind_text(all(result.sealed_blind[name] for name in readers))


def _declared(row: Contrast | Interaction) -> str:
    return "declared before reading" if row.declared else "EXPLORATORY"


def _interval(row: Contrast | Interaction) -> str:
    return f"[{row.low}, {row.high}]{NO_WIDTH * bool(row.no_width)}"


def _p(p: str | None) -> str:
    return "-" if p is None else f"{float(p):.2g}"


def _side(found: SideEvidence) -> tuple[str, ...]:
    counts = (str(found.lost), str(found.lacking_record), str(found.lacking_gold))
    return (str(found.held), str(found.answered), percent(found.answered, found.held), *counts)
