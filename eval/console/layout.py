"""Tables and lines that fit 100 columns."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval.wording import printable

# Columns of a line that is cut.
_WIDTH = 100


def new_table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of words to the left, then columns of numbers to the right.

    The first word, which names a row and may be long, is folded where the table would be too wide; no number is cut.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=bool(table.columns), overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def line(console: Console, text: str) -> None:
    """One line of text that others may have written."""
    console.out(printable(text), highlight=False)


def short_line(console: Console, text: str) -> None:
    """The same, cut to 100 columns."""
    shown = Text(printable(text))
    shown.truncate(_WIDTH, overflow="ellipsis")
    console.out(shown.plain, highlight=False)


def more(console: Console, count: int, what: str, indent: str = "  ") -> None:
    """How much of a list is not printed; nothing if all is."""
    if count > 0:
        console.out(f"{indent}… {count} more {what} (--json prints all)", highlight=False)
