"""Tables and lines that fit 100 columns."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eval.wording import printable

_WIDTH = 100  # columns


def new_table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: left-aligned columns of words, then right-aligned columns of numbers.

    If the table is too wide, only the first column wraps; numbers are never truncated.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=bool(table.columns), overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def line(console: Console, text: str) -> None:
    """Print one line of untrusted text."""
    console.out(printable(text), highlight=False)


def short_line(console: Console, text: str) -> None:
    """Print one line of untrusted text, truncated to 100 columns."""
    shown = Text(printable(text))
    shown.truncate(_WIDTH, overflow="ellipsis")
    console.out(shown.plain, highlight=False)


def more(console: Console, count: int, what: str, indent: str = "  ") -> None:
    """Print how many items of a list were omitted, if any."""
    if count > 0:
        console.out(f"{indent}… {count} more {what} (--json prints all)", highlight=False)
