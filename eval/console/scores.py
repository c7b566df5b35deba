"""Output of `coldread score`."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eval.analysis.fallbacks import fallback_lines
from eval.analysis.provenance import extraction_words
from eval.analysis.summary import ScoreSummary
from eval.console.layout import new_table
from eval.metrics import HEADLINE
from eval.records import Cell
from eval.wording import blind_text, percent, printable


def scores(console: Console, summary: ScoreSummary) -> None:
    """Print one table per reader (accuracy by view, hop class and history length, with Wilson intervals) and the extraction.

    `cut` counts a view's questions with evidence cut to the input cap, and a pipeline's with a call that left out retrieved
    records (evidence budget or input cap). Lines below report answers ended by the output cap, and fallbacks.
    """
    for name, cells in summary.cells.items():
        seal = summary.seals[name]
        console.print(_table(f"{name}: {blind_text(seal.sealed_blind)}", cells))
        for view, count in seal.capped.items():
            cap = f"the output cap of {seal.output_cap} tokens"
            line = f"{name}, {view}: {count} of {summary.questions} answers ended by {cap}, scored as they stand"
            console.print(escape(line), highlight=False, soft_wrap=True)
    for line in fallback_lines(summary.shown_instead, summary.questions):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(printable(f"extraction: {extraction_words(summary.extraction)}"), markup=False, highlight=False)


def _table(title: str, cells: tuple[Cell, ...]) -> Table:
    others = [name for name in cells[0].correct if name != HEADLINE]
    several = len({cell.length for cell in cells if cell.length}) > 1
    headings = ("questions", "cut", HEADLINE, f"{HEADLINE} %", "Wilson 95 %", *others)
    table = new_table(title, ("view", "hops", *["length"] * several), headings)
    for cell in cells:
        if cell.length and not several:
            continue
        right = cell.correct[HEADLINE]
        table.add_row(
            *(cell.view, cell.hop_class, *[escape(cell.length or "all")] * several),
            *(str(cell.questions), str(cell.cut), str(right), percent(right, cell.questions), f"{cell.low}-{cell.high}"),
            *(str(cell.correct[name]) for name in others),
        )
    return table
