"""Output of `coldread coverage`, within 100 columns."""

from collections.abc import Iterator

from msgspec import UNSET
from rich.console import Console
from rich.markup import escape

from eval.analysis.coverage import ByHops, Counts, Coverage
from eval.console.layout import new_table
from eval.wording import percent

# Two-line headings, so that eight columns fit beside the view's name.
_NUMBERS = ("\nasked", "gold in\nevidence", "as\nvalue", "cmc's\nkeys %", "\ncomplete", "\nrecords")


def coverage(console: Console, result: Coverage, by: str | None) -> None:
    """Print the evidence table and, if requested, the curve."""
    _evidence(console, result, by)
    if result.curve is not UNSET:
        _curve(console, result.curve)


def _evidence(console: Console, result: Coverage, by: str | None) -> None:
    """Print coverage by view and hop class; by `length`: also by history length; by `hops`: by exact number of hops.

    cmc's keys %: share of cmc's records that the view shows; complete: questions with all of them. records and tokens are means
    (characters, without a tokenizer); truncated and fallback count packets, and fallback appears only if there are any.
    """
    if by == "hops" and result.by_hops is UNSET:
        console.print("no question of this run says its number of hops", highlight=False)
        return
    rows = list(_rows(result, by))
    counted = all(cell.tokens is not None for _, cell in rows)
    size = "tokens" if counted else "characters"
    heads = ("\nview", "\nlength", "\nhops") if by == "length" else ("\nview", "\nhops")
    fallback = any(cell.fallbacks for _, cell in rows)
    table = new_table("what evidence holds", heads, (*_NUMBERS, f"\n{size}", "\ntruncated", *["fall-\nback"] * fallback))
    table.padding = 0
    for names, cell in rows:
        table.add_row(
            *map(escape, names),
            str(cell.questions),
            str(cell.gold_in_evidence),
            str(cell.gold_as_value),
            percent(cell.cmc_keys_shown, cell.cmc_keys),
            str(cell.complete),
            f"{cell.records / cell.questions:.1f}",
            f"{((cell.tokens or 0) if counted else cell.characters) / cell.questions:.0f}",
            str(cell.truncated),
            *[str(cell.fallbacks)] * fallback,
        )
    console.print(table)


def _rows(result: Coverage, by: str | None) -> Iterator[tuple[tuple[str, ...], Counts]]:
    if by == "length":
        for view, lengths in result.by_length.items():
            for length, cells in lengths.items():
                yield from (((view, length, name), cell) for name, cell in cells.items())
    else:
        for view, found in (result.by_hops if by == "hops" and result.by_hops else result.views).items():
            yield from (((view, name), cell) for name, cell in found.items() if isinstance(cell, Counts))


def _curve(console: Console, views: dict[str, dict[str, ByHops]]) -> None:
    """Print the percentage of questions with gold in evidence, by view and hop class, at each number of passages."""
    if not views:
        console.print("no view of this run shows the best passages of a ranking, so there is no curve", highlight=False)
        return
    at = sorted({k for points in views.values() for k in points}, key=int)
    table = new_table("gold in evidence, %, at K passages", ("view", "hops"), tuple(at))
    for view, points in views.items():
        for hop_class in next(iter(points.values())):
            cells = [points[k][hop_class] if k in points else None for k in at]
            shares = ["-" if cell is None else percent(cell.gold_in_evidence, cell.questions) for cell in cells]
            table.add_row(view, hop_class, *shares)
    console.print(table)
