"""Tables in Markdown, LaTeX and CSV. In all of them a cell is data."""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

from eval.wording import printable

Entry = str | int | float | None
Row = tuple[Entry, ...]

_MARKDOWN = re.compile(r"[\\`*\[\]<>|&#~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# After a line's end, `[` and `*` would be parsed as its argument.
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "*": "{*}",
}
_FORMULA = tuple("=+-@\t")  # first characters of a formula in spreadsheets


@dataclass(frozen=True)
class Grid:
    """Rows under headings."""

    headings: tuple[str, ...]
    groups: tuple[tuple[Row, ...], ...]  # of rows, separated by rules in LaTeX; CSV has no groups
    words: int  # number of leading text columns; the others hold numbers
    notes: tuple[str, ...] = ()  # sentences below the table; omitted in CSV


def typeset(form: str, grids: Iterable[Grid]) -> str:
    """Grids one after another, in LaTeX or Markdown."""
    return "\n".join(map(latex if form == "latex" else markdown, grids))


def markdown(grid: Grid) -> str:
    """A GitHub and pandoc table, padded so that the source is readable."""
    rows = [[_markdown(entry) for entry in row] for row in (grid.headings, *(row for group in grid.groups for row in group))]
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(grid.headings))]
    rule = [("-" * width if column < grid.words else "-" * (width - 1) + ":") for column, width in enumerate(widths)]
    lines = [
        [entry.ljust(width) if column < grid.words else entry.rjust(width) for column, (entry, width) in enumerate(pairs)]
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))
    return table + "".join(f"\n{_markdown(note)}\n" for note in grid.notes)


def _markdown(entry: Entry) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", _text(entry))


def latex(grid: Grid) -> str:
    """A tabular with booktabs rules, then its notes."""
    width = len(grid.headings)
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{'l' * grid.words}{'r' * (width - grid.words)}}}",
        "\\toprule",
    ]
    lines += [_latex_row(grid.headings)]
    for group in grid.groups:
        lines += ["\\midrule", *map(_latex_row, group)]
    lines += ["\\bottomrule"]
    lines += [f"\\multicolumn{{{width}}}{{p{{0.95\\linewidth}}}}{{\\footnotesize {_latex(note)}}} \\\\" for note in grid.notes]
    return "\n".join([*lines, "\\end{tabular}", ""])


def _latex_row(row: Row) -> str:
    return " & ".join(map(_latex, row)) + " \\\\"


def _latex(entry: Entry) -> str:
    return "".join(_LATEX.get(c, c) for c in _text(entry))


def comma_separated(grid: Grid) -> str:
    """RFC 4180 (lines end in CR LF). Text that spreadsheets would read as a formula gets an apostrophe."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerows(
        [_plain(entry) for entry in row] for row in (grid.headings, *(row for group in grid.groups for row in group))
    )
    return stream.getvalue()


def _plain(entry: Entry) -> str:
    text = _text(entry)
    return f"'{text}" if isinstance(entry, str) and text.startswith(_FORMULA) else text


def _text(entry: Entry) -> str:
    return "" if entry is None else printable(str(entry))
