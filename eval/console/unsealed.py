"""Output of `coldread score --predictions`, within 100 columns."""

from rich.console import Console
from rich.markup import escape

from eval.analysis.unsealed import UnsealedScores
from eval.console.layout import line, new_table
from eval.metrics import HEADLINE
from eval.wording import percent, printable


def unsealed(console: Console, result: UnsealedScores) -> None:
    """Print one row per system and hop class; the title and a line below say that the predictions are unsealed."""
    others = [name for name in next(iter(result.systems.values())).cells[0].correct if name != HEADLINE]
    headings = ("questions", "missing", HEADLINE, f"{HEADLINE} %", "Wilson 95 %", *others)
    table = new_table(escape(printable(f"{result.name}: not sealed")), ("system", "hops"), headings)
    for system, found in result.systems.items():
        pooled = [cell for cell in found.cells if cell.length is None]
        for number, cell in enumerate(pooled):
            table.add_row(
                "" if number else escape(printable(system)),
                cell.hop_class,
                str(cell.questions),
                str(cell.missing),
                str(cell.correct[HEADLINE]),
                percent(cell.correct[HEADLINE], cell.questions),
                f"{cell.low:.2f}-{cell.high:.2f}",
                *(str(cell.correct[name]) for name in others),
            )
    console.print(table)
    line(console, "not sealed: nothing shows when or from what these answers were made")
    line(console, f"file {result.file}, sha256 {result.sha256}")
    if missing := sum(found.missing for found in result.systems.values()):
        line(console, f"missing: {missing} questions have no prediction and count as wrong")
