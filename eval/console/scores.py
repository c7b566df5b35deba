"""What `coldread score` prints."""

from rich.console import Console
from rich.markup import escape

from eval.analysis.fallbacks import fallback_lines, fallbacks
from eval.analysis.provenance import extracted_by, extraction_words
from eval.console.layout import new_table
from eval.metrics import HEADLINE
from eval.score import read_cells
from eval.wording import blind_text, percent, printable
from offline.run.opened import OpenRun
from readers.sealed import sealed_reader


def scores(console: Console, run: OpenRun) -> None:
    """One table a reader: accuracy by view, hop class and, where there are several, history length, with Wilson intervals; and
    what made the triples.

    `cut` counts questions of a view whose evidence was cut to the reader's input cap, and of a pipeline those with a call that
    left out retrieved records, to the evidence budget or to its input cap. Below, a line for each view of which the output cap
    ended answers, or that shows fallbacks.
    """
    questions = len(run.data.questions)
    for plan in run.experiment.readers:
        cells = read_cells(run, plan.reader.name)
        blind = blind_text(all(cell.blind for cell in cells))
        others = [name for name in cells[0].correct if name != HEADLINE]
        headings = ("questions", "cut", HEADLINE, f"{HEADLINE} %", "Wilson 95 %", *others)
        several = len({cell.length for cell in cells if cell.length}) > 1
        words = ("view", "hops", "length") if several else ("view", "hops")
        table = new_table(f"{plan.reader.name}: {blind}", words, headings)
        for cell in cells:
            if cell.length and not several:
                continue
            counts = [str(cell.correct[name]) for name in others]
            table.add_row(
                cell.view,
                cell.hop_class,
                *([escape(cell.length or "all")] if several else []),
                str(cell.questions),
                str(cell.cut),
                str(cell.correct[HEADLINE]),
                percent(cell.correct[HEADLINE], cell.questions),
                f"{cell.low}-{cell.high}",
                *counts,
            )
        console.print(table)
        for view, count in sealed_reader(run, plan.reader.name).ended_by_cap.items():
            cap = f"the output cap of {plan.reader.output_cap} tokens"
            line = f"{plan.reader.name}, {view}: {count} of {questions} answers ended by {cap}, scored as they stand"
            console.print(escape(line), highlight=False, soft_wrap=True)
    views = list(dict.fromkeys(view for plan in run.experiment.readers for view in plan.views))
    for line in fallback_lines(fallbacks(run, views), questions):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(printable(f"extraction: {extraction_words(extracted_by(run))}"), markup=False, highlight=False)
