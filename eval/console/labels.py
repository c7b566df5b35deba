"""Output of `coldread labels`, within 100 columns."""

from collections.abc import Sequence

from msgspec import UNSET
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eval.analysis.label_audit import LabelAudit, Sensitivity, unresolved_line
from eval.console.layout import more, new_table, short_line
from eval.records import Finding
from eval.wording import percent, printable

# Findings per screen, and links per chain, printed; --json prints all.
_FINDINGS, _LINKS = 8, 8
_MEANING = {
    "superseded": "a gold is an earlier value that the history overwrites",
    "in_question": "a gold occurs in its own question",
    "inside_word": "a gold is a part of a word of some current value",
    "void": "a gold normalises to nothing",
}


def labels(console: Console, result: LabelAudit) -> None:
    """Print counts by screen, populations, findings with their chains, and headlines without flagged questions."""
    hops = list(next(iter(result.screens.values())))
    screens = new_table("questions that a label screen flags", ("screen", "meaning"), hops)
    for name, counts in result.screens.items():
        screens.add_row(name, _MEANING[name], *(str(counts[hop_class]) for hop_class in hops))
    console.print(screens)
    if line := unresolved_line(result.unresolved):
        console.print(printable(line), markup=False, highlight=False)
    sizes = new_table("populations", ("name",), hops)
    for name, counts in result.populations.items():
        sizes.add_row(escape(printable(name)), *(str(counts[hop_class]) for hop_class in hops))
    console.print(sizes)
    for name in result.screens:
        _findings(console, name, [finding for finding in result.findings if finding.screen == name])
    if result.note is not UNSET:
        console.print(f"without sensitivity of the headlines: {printable(result.note)}", markup=False, highlight=False)
    else:
        for reader, views in (result.sensitivity or {}).items():
            table = _sensitivity(reader, views)
            console.print(
                table if table.row_count else f"{escape(reader)}: no question is flagged, so no headline depends on it"
            )


def _findings(console: Console, screen: str, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.out(f"{screen}: {_MEANING[screen]}", highlight=False)
    for finding in findings[:_FINDINGS]:
        short_line(console, f"  {finding.question}  gold {finding.gold!r}")
        short_line(console, f"    {finding.detail}")
        for link in finding.chain[:_LINKS]:
            short_line(console, f"    {'current' if link.current else 'earlier'}  {link.record}")
        more(console, len(finding.chain) - _LINKS, "records", "    ")
    more(console, len(findings) - _FINDINGS, "findings")
    console.out("")


def _sensitivity(reader: str, views: dict[str, dict[str, dict[str, Sensitivity]]]) -> Table:
    """subem as scored, over unflagged questions only, and its bounds; screens that flag nothing are omitted."""
    headings = ("\nasked", "\nsubem", "\n%", "\nflagged", "right of\nunflagged", "\n%", "lowest\n%", "highest\n%")
    title = f"{reader}: subem without flagged questions, and if all of them were wrong or right"
    table = new_table(escape(title), ("\nview", "\nhops", "\nscreen"), headings)
    for view, cells in views.items():
        for hop_class, screens in cells.items():
            for screen, cell in screens.items():
                if cell.flagged:
                    table.add_row(escape(view), hop_class, screen, *_numbers(cell))
    return table


def _numbers(cell: Sensitivity) -> tuple[str, ...]:
    asked = cell.questions
    return (
        str(asked),
        str(cell.correct),
        percent(cell.correct, asked),
        str(cell.flagged),
        str(cell.correct_unflagged),
        percent(cell.correct_unflagged, cell.unflagged),
        percent(cell.lowest, asked),
        percent(cell.highest, asked),
    )
