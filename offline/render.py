"""Rendering: chosen records to one evidence text under a character budget (spec §5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from offline.records import Statement

# Every character that a reader or editor may take for a line break, with its escape: one record, one line.
_LINE_BREAKS = {ord(c): c.encode("unicode_escape").decode() for c in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


def one_line(text: str) -> str:
    """A text with its line breaks written as escapes, as a record's line shows it."""
    return text.translate(_LINE_BREAKS)


def record_line(statement: Statement) -> str:
    """The line of one record: `[position] text`, a dated one `[position] (time) text`."""
    time = f"({statement.time}) " if statement.time is not None else ""
    return one_line(f"[{statement.position}] {time}{statement.text}")


@dataclass(frozen=True)
class Line:
    """A record's position and its rendered line."""

    position: int
    text: str


@dataclass(frozen=True)
class Rendered:
    """An evidence text."""

    text: str
    positions: tuple[int, ...]  # of the records shown, ascending
    dropped: int  # chosen records that the budget left out

    @property
    def truncated(self) -> bool:
        """True if the budget left out a record."""
        return self.dropped > 0


def _newest_suffix(lines: Sequence[Line], room: int) -> Sequence[Line]:
    """The newest contiguous run of whole lines that fits `room` characters, a line break before each line counted."""
    used = 0
    for index in range(len(lines) - 1, -1, -1):
        used += 1 + len(lines[index].text)
        if used > room:
            return lines[index + 1 :]
    return lines


def _size(lines: Sequence[Line]) -> int:
    return sum(1 + len(line.text) for line in lines)


def render(chosen: Sequence[Line], unresolved: Sequence[Line], heading: str, budget: int, unresolved_percent: int) -> Rendered:
    """The evidence text of chosen and unresolved records, each given in position order.

    budget: characters, heading and line breaks included; -1 = unlimited. If it binds, each kind keeps its newest contiguous run
    of whole records: unresolved ones within their percentage of the room or what the chosen ones leave free, chosen ones in the
    rest. A newest record that exceeds its room leaves its kind empty. Without a record the text is empty, heading included.
    """
    shown = {line.position for line in chosen}
    rest = [line for line in unresolved if line.position not in shown]
    total = len(chosen) + len(rest)
    kept: Sequence[Line] = chosen
    if budget >= 0:
        room = budget - len(heading)
        chosen_size, rest_size = _size(chosen), _size(rest)
        if chosen_size + rest_size > room:
            share = max(room * unresolved_percent // 100, room - chosen_size)
            rest = list(_newest_suffix(rest, share))
            kept = _newest_suffix(chosen, room - _size(rest))
    lines = sorted([*kept, *rest], key=lambda line: line.position) if rest else kept
    text = "\n".join([heading, *(line.text for line in lines)]) if lines else ""
    return Rendered(text, tuple(line.position for line in lines), total - len(lines))
