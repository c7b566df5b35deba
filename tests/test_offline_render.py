from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.records import Statement
from offline.render import Line, Rendered, record_line, render

HEADING = "Records:"


def _lines(*sizes: tuple[int, int]) -> list[Line]:
    """Lines given as (position, characters)."""
    return [Line(position, "x" * size) for position, size in sizes]


# One record, one line


def test_a_record_is_its_position_in_brackets_and_its_text() -> None:
    assert record_line(Statement(12, "Ada leads to Bo.")) == "[12] Ada leads to Bo."


def test_a_dated_record_shows_its_time_as_the_source_wrote_it() -> None:
    assert record_line(Statement(0, "Ada left.", "2026-01-31T12:00")) == "[0] (2026-01-31T12:00) Ada left."


@pytest.mark.parametrize(
    ("character", "escape"),
    [
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\v", r"\x0b"),
        ("\f", r"\x0c"),
        ("\x1c", r"\x1c"),
        ("\x1d", r"\x1d"),
        ("\x1e", r"\x1e"),
        ("\x85", r"\x85"),
        ("\u2028", r"\u2028"),
        ("\u2029", r"\u2029"),
    ],
)
def test_every_line_break_inside_a_text_is_escaped(character: str, escape: str) -> None:
    assert record_line(Statement(1, f"a{character}[2] b")) == f"[1] a{escape}[2] b"
    assert record_line(Statement(1, "a", f"now{character}")) == f"[1] (now{escape}) a"


@given(st.text(), st.none() | st.text())
def test_a_record_is_one_line_whatever_its_text_and_time(text: str, time: str | None) -> None:
    assert len(record_line(Statement(0, text, time)).splitlines()) == 1


@given(st.text())
def test_a_text_without_line_breaks_is_shown_letter_for_letter(text: str) -> None:
    if len(f".{text}.".splitlines()) == 1:
        assert record_line(Statement(7, text)) == f"[7] {text}"


# The budget, counted by hand


def test_a_budget_that_just_fits_shows_everything() -> None:
    # Heading 8, then a line break and 5 characters, then a line break and 3: 8 + 6 + 4 = 18.
    rendered = render(_lines((0, 5), (1, 3)), [], HEADING, 18, 25)
    assert rendered == Rendered("Records:\nxxxxx\nxxx", (0, 1), 0)
    assert len(rendered.text) == 18
    assert not rendered.truncated


def test_one_character_less_drops_the_oldest_record() -> None:
    rendered = render(_lines((0, 5), (1, 3)), [], HEADING, 17, 25)
    assert rendered == Rendered("Records:\nxxx", (1,), 1)
    assert rendered.truncated


def test_an_old_record_that_would_still_fit_behind_a_cut_one_is_not_shown() -> None:
    # Room 20 - 8 = 12. From the newest: 4 + 1 = 5, then 20 + 1 > 12: the suffix ends, though record 0 (1 + 1) would fit.
    rendered = render(_lines((0, 1), (1, 20), (2, 4)), [], HEADING, 20, 25)
    assert (rendered.positions, rendered.dropped) == ((2,), 2)


def test_a_newest_record_that_alone_exceeds_the_budget_leaves_the_evidence_empty_and_truncated() -> None:
    rendered = render(_lines((0, 1), (1, 100)), [], HEADING, 50, 25)
    assert rendered == Rendered("", (), 2)
    assert rendered.truncated


def test_a_heading_that_alone_exceeds_the_budget_leaves_the_evidence_empty_and_truncated() -> None:
    assert render(_lines((0, 1)), _lines((1, 1)), HEADING, 5, 100) == Rendered("", (), 2)


def test_no_record_is_an_empty_text_that_is_not_truncated() -> None:
    assert render([], [], HEADING, 60_000, 25) == Rendered("", (), 0)
    assert not render([], [], HEADING, 60_000, 25).truncated


def test_no_budget_shows_everything() -> None:
    lines = _lines((0, 70_000), (1, 70_000))
    assert render(lines, [], HEADING, -1, 25).positions == (0, 1)


# Unresolved records beside chosen ones


def test_chosen_and_unresolved_records_stand_in_position_order_each_once() -> None:
    rendered = render(_lines((1, 1), (5, 1)), _lines((0, 1), (3, 1), (5, 1)), HEADING, 100, 25)
    assert rendered.positions == (0, 1, 3, 5)


def test_a_flood_of_unresolved_records_gets_its_share_and_leaves_the_chosen_ones_whole() -> None:
    # Room 108 - 8 = 100. Chosen: 70. Unresolved: ten lines of 9 + 1. Share: max(25 % of 100, 100 - 70) = 30: three lines.
    chosen = _lines((0, 69))
    rendered = render(chosen, _lines(*((p, 9) for p in range(1, 11))), HEADING, 108, 25)
    assert (rendered.positions, rendered.dropped) == ((0, 8, 9, 10), 7)


def test_unresolved_records_keep_their_share_where_the_chosen_ones_alone_fill_the_budget() -> None:
    # Room 100, share 25: two unresolved lines of 10. Chosen: ten lines of 10 in the other 80: the eight newest.
    chosen = _lines(*((p, 9) for p in range(10)))
    rendered = render(chosen, _lines(*((p, 9) for p in range(10, 20))), HEADING, 108, 25)
    assert (rendered.positions, rendered.dropped) == ((2, 3, 4, 5, 6, 7, 8, 9, 18, 19), 10)


def test_a_share_of_nought_shows_unresolved_records_only_where_the_chosen_ones_leave_room() -> None:
    chosen = _lines(*((p, 9) for p in range(10)))
    unresolved = _lines((10, 9))
    assert render(chosen, unresolved, HEADING, 108, 0).positions == tuple(range(10))
    assert render(chosen[1:], unresolved, HEADING, 108, 0).positions == tuple(range(1, 11))


def test_an_unresolved_record_too_large_for_its_share_leaves_all_the_room_to_the_chosen_ones() -> None:
    chosen = _lines(*((p, 9) for p in range(10)))
    assert render(chosen, _lines((10, 50)), HEADING, 108, 25).positions == tuple(range(10))


# Any input


def _longest_suffix(lines: Sequence[Line], room: int) -> list[Line]:
    """Of all suffixes, the longest that fits."""
    fitting = [lines[i:] for i in range(len(lines) + 1) if sum(1 + len(line.text) for line in lines[i:]) <= room]
    return list(max(fitting, key=len, default=[]))


def _naive(chosen: list[Line], unresolved: list[Line], budget: int, percent: int) -> Rendered:
    """The rule, written down without looking for a fast way."""
    taken = {line.position for line in chosen}
    rest = [line for line in unresolved if line.position not in taken]
    everything = sorted(chosen + rest, key=lambda line: line.position)
    shown = everything
    if budget != -1 and len("\n".join([HEADING, *(line.text for line in everything)])) > budget:
        room = budget - len(HEADING)
        free = room - sum(1 + len(line.text) for line in chosen)
        kept_rest = _longest_suffix(rest, max(room * percent // 100, free))
        kept = _longest_suffix(chosen, room - sum(1 + len(line.text) for line in kept_rest))
        shown = sorted(kept + kept_rest, key=lambda line: line.position)
    text = "\n".join([HEADING, *(line.text for line in shown)]) if shown else ""
    return Rendered(text, tuple(line.position for line in shown), len(everything) - len(shown))


@st.composite
def _records(draw: st.DrawFn) -> list[Line]:
    positions = sorted(draw(st.sets(st.integers(0, 30), max_size=8)))
    return [Line(p, f"[{p}] " + "x" * (p * 7 % 11)) for p in positions]


@given(_records(), _records(), st.integers(-1, 120), st.integers(0, 100))
def test_rendering_is_what_the_rule_says(chosen: list[Line], unresolved: list[Line], budget: int, percent: int) -> None:
    rendered = render(chosen, unresolved, HEADING, budget, percent)
    assert rendered == _naive(chosen, unresolved, budget, percent)


@given(_records(), _records(), st.integers(0, 120), st.integers(0, 100))
def test_a_text_never_exceeds_its_budget(chosen: list[Line], unresolved: list[Line], budget: int, percent: int) -> None:
    assert len(render(chosen, unresolved, HEADING, budget, percent).text) <= budget
