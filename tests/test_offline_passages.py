from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from worlds import RealWorld, memory

from offline.passages import WINDOW_CHARACTERS, WINDOW_OVERLAP, Chunk, Passage, cut, cut_characters, passages
from offline.render import Line

# Texts of every length about the limits below, at positions with gaps: a history's positions need only rise.
LINES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=25).map(
    lambda pairs: [
        Line(sum(gap for gap, _ in pairs[: at + 1]), (f"{at}" + "abcdefghij" * 3)[:size]) for at, (_, size) in enumerate(pairs)
    ]
)
LIMITS = st.integers(1, 40)
LIMITS_AND_OVERLAPS = LIMITS.flatmap(lambda limit: st.tuples(st.just(limit), st.integers(0, limit - 1)))


def _lines(*texts: str) -> list[Line]:
    return [Line(position, text) for position, text in enumerate(texts)]


def _in_order(chunks: Sequence[Chunk], lines: Sequence[Line]) -> list[Passage]:
    """What the chunks say, oldest first."""
    return passages(chunks, lines)[::-1]


def _texts(chunks: Sequence[Chunk], lines: Sequence[Line]) -> list[str]:
    return [passage.text for passage in _in_order(chunks, lines)]


# By hand


def test_a_chunk_is_as_many_whole_lines_as_fit_the_line_breaks_between_them_counted() -> None:
    lines = _lines("aaaa", "bbb", "cc", "d")
    # "aaaa\nbbb" has eight characters and "cc\nd" has four; with seven, "bbb" goes to the second: "bbb\ncc" six, "d" one more.
    assert _texts(cut_characters("h", lines, 8), lines) == ["aaaa\nbbb", "cc\nd"]
    assert _texts(cut_characters("h", lines, 7), lines) == ["aaaa", "bbb\ncc", "d"]


def test_a_line_of_exactly_the_limit_is_a_chunk_and_is_not_cut() -> None:
    lines = _lines("a", "bbbbb", "c")
    assert cut_characters("h", lines, 5) == [Chunk("h", 0, 0), Chunk("h", 1, 1), Chunk("h", 2, 2)]
    # As the only line, too, where no line break follows.
    assert cut_characters("h", _lines("bbbbb"), 5) == [Chunk("h", 0, 0)]


def test_a_line_of_one_more_than_the_limit_is_cut_and_its_neighbours_are_not_drawn_in() -> None:
    lines = _lines("a", "bbbbbc", "d", "e")
    assert cut_characters("h", lines, 5) == [
        Chunk("h", 0, 0),
        Chunk("h", 1, 1, begin=0, end=5),
        Chunk("h", 1, 1, begin=5, end=6),
        Chunk("h", 2, 3),
    ]
    assert _texts(cut_characters("h", lines, 5), lines) == ["a", "bbbbb", "c", "d\ne"]


def test_a_window_begins_with_the_last_lines_of_the_one_before_it_that_fit_the_overlap() -> None:
    lines = _lines("aaa", "bb", "cc", "dd", "ee", "ff")
    # "cc" and its line break are 3 of the 4 characters that may be shared; with "bb" there were 6.
    assert _texts(cut_characters("h", lines, 9, 4), lines) == ["aaa\nbb\ncc", "cc\ndd\nee", "ee\nff"]
    # An overlap that no line fits leaves the windows side by side.
    assert _texts(cut_characters("h", lines, 9, 2), lines) == ["aaa\nbb\ncc", "dd\nee\nff"]


def test_nothing_is_repeated_that_would_leave_no_room_for_the_next_line() -> None:
    # "bb" could be shared, but with it the nine characters of the next line would not fit ten.
    lines = _lines("aaaa", "bb", "ccccccccc", "d")
    assert _texts(cut_characters("h", lines, 10, 5), lines) == ["aaaa\nbb", "ccccccccc", "d"]


def test_the_last_window_is_not_followed_by_one_of_repeated_lines_alone() -> None:
    lines = _lines("aa", "bb", "cc")
    assert _texts(cut_characters("h", lines, 8, 5), lines) == ["aa\nbb\ncc"]


def test_the_pieces_of_a_long_line_overlap_and_the_lines_beside_it_are_not_repeated_in_them() -> None:
    lines = _lines("xx", "abcdefghij", "yy")
    # Steps of 5 - 2 = 3: characters 0 to 5, 3 to 8, and from 6 to the end.
    assert _texts(cut_characters("h", lines, 5, 2), lines) == ["xx", "abcde", "defgh", "ghij", "yy"]


def test_a_line_that_ends_just_behind_a_piece_gets_one_more_piece() -> None:
    lines = _lines("abcdef")
    assert _texts(cut_characters("h", lines, 5, 2), lines) == ["abcde", "def"]


@pytest.mark.parametrize("overlap", [0, 3])
def test_an_empty_history_has_no_chunk_and_one_short_statement_is_one(overlap: int) -> None:
    assert cut_characters("h", [], 10, overlap) == []
    assert cut_characters("h", _lines("abc"), 10, overlap) == [Chunk("h", 0, 0)]
    assert passages([], []) == []


def test_an_empty_line_is_a_line() -> None:
    lines = _lines("", "a", "")
    assert _texts(cut_characters("h", lines, 1), lines) == ["", "a", ""]
    assert _texts(cut_characters("h", lines, 3), lines) == ["\na\n"]


def test_the_newest_passage_comes_first_and_the_last_piece_of_a_record_is_its_newest() -> None:
    lines = [Line(4, "a"), Line(7, "bbbbbc"), Line(9, "d")]
    found = passages(cut_characters("h", lines, 5), lines)
    assert found == [
        Passage((9,), "d", "d"),
        Passage((7,), "c", "c"),
        Passage((7,), "bbbbb", "bbbbb"),
        Passage((4,), "a", "a"),
    ]


def test_the_sizes_need_not_be_characters() -> None:
    # As tokens: two of the first three lines fit five, and the last is cut where its `pieces` say.
    lines = _lines("one", "two", "three", "very long")
    chunks = cut("h", lines, [2, 3, 1, 9], 5, lambda text: [(0, 4), (5, len(text))])
    assert _texts(chunks, lines) == ["one\ntwo", "three", "very", "long"]


# For any lines


@given(LINES, LIMITS_AND_OVERLAPS)
def test_no_chunk_is_longer_than_the_limit(lines: list[Line], numbers: tuple[int, int]) -> None:
    limit, overlap = numbers
    assert all(len(text) <= limit for text in _texts(cut_characters("h", lines, limit, overlap), lines))


@given(LINES, LIMITS)
def test_without_overlap_the_chunks_are_the_history_cut_at_line_breaks(lines: list[Line], limit: int) -> None:
    chunks = cut_characters("h", lines, limit)
    # A short record is in one chunk, and the texts, put together again, are those of the history.
    whole = [
        position for passage in _in_order([c for c in chunks if c.begin is UNSET], lines) for position in passage.positions
    ]
    assert whole == [line.position for line in lines if len(line.text) <= limit]
    together = ""
    for chunk, text in zip(chunks, _texts(chunks, lines), strict=True):
        together += text if chunk.begin not in (UNSET, 0) else "\n" + text
    assert together == "".join("\n" + line.text for line in lines)


@given(LINES, LIMITS)
def test_a_chunk_ends_only_where_the_next_line_does_not_fit(lines: list[Line], limit: int) -> None:
    chunks = cut_characters("h", lines, limit)
    for chunk, text in zip(chunks, _texts(chunks, lines), strict=True):
        after = next((line for line in lines if line.position > chunk.last), None)
        if chunk.begin is UNSET and after is not None:
            assert len(text) + 1 + len(after.text) > limit


@given(LINES, LIMITS_AND_OVERLAPS)
def test_with_overlap_every_window_adds_a_record_leaves_none_out_and_repeats_no_more_than_it_may(
    lines: list[Line], numbers: tuple[int, int]
) -> None:
    limit, overlap = numbers
    chunks = cut_characters("h", lines, limit, overlap)
    place = {line.position: at for at, line in enumerate(lines)}
    if lines:
        assert (chunks[0].first, chunks[-1].last) == (lines[0].position, lines[-1].position)
    for chunk, following in pairwise(chunks):
        if chunk.begin is not UNSET and following.begin is not UNSET and chunk.first == following.first:
            continue  # two pieces of one record
        assert place[following.last] > place[chunk.last]
        assert place[following.first] > place[chunk.first]
        assert place[following.first] <= place[chunk.last] + 1
        shared = "\n".join(line.text for line in lines[place[following.first] : place[chunk.last] + 1])
        assert len(shared) <= overlap


@given(LINES, LIMITS_AND_OVERLAPS)
def test_the_pieces_of_a_record_cover_it_and_stand_for_it_alone(lines: list[Line], numbers: tuple[int, int]) -> None:
    limit, overlap = numbers
    chunks = cut_characters("h", lines, limit, overlap)
    found = _in_order(chunks, lines)
    for line in lines:
        pieces = [chunk for chunk in chunks if chunk.begin is not UNSET and chunk.first == line.position]
        if len(line.text) <= limit:
            assert not pieces
            continue
        spans = [(int(piece.begin or 0), int(piece.end or 0)) for piece in pieces]
        assert (spans[0][0], spans[-1][1]) == (0, len(line.text))
        # Each piece begins `overlap` before the end of the one before it, and ends behind it.
        assert all(after[0] == before[1] - overlap and after[1] > before[1] for before, after in pairwise(spans))
        standing = [passage for passage in found if passage.positions == (line.position,)]
        assert [passage.text for passage in standing] == [line.text[begin:end] for begin, end in spans]
    assert all(
        passage.positions == (chunk.first,) for chunk, passage in zip(chunks, found, strict=True) if chunk.begin is not UNSET
    )


@given(LINES, LIMITS_AND_OVERLAPS)
def test_a_passages_text_is_that_of_the_records_that_it_stands_for(lines: list[Line], numbers: tuple[int, int]) -> None:
    chunks = cut_characters("h", lines, *numbers)
    text_at = {line.position: line.text for line in lines}
    for chunk, passage in zip(chunks, _in_order(chunks, lines), strict=True):
        shown = "\n".join(text_at[position] for position in passage.positions)
        assert passage.text == passage.words
        assert passage.text == (shown if chunk.begin is UNSET else shown[chunk.begin : chunk.end])


# Units of a memory


def test_a_passages_lines_are_those_that_evidence_shows() -> None:
    compiled = memory([(3, "Ada leads\nto Bo."), (8, "Bo leads to Cy.")])
    assert [passage.text for passage in compiled.corpus("chunk4096").passages] == [
        "[3] Ada leads\\nto Bo.\n[8] Bo leads to Cy.",
    ]


@pytest.mark.real_data
def test_the_real_windows_are_at_most_2048_characters_and_neighbours_share_at_most_256(real_world: RealWorld) -> None:
    # Compiler paper, appendix I.
    assert (WINDOW_CHARACTERS, WINDOW_OVERLAP) == (2_048, 256)
    small = next(history for history in real_world.histories if history.length == "6k")
    compiled = real_world.memories[small.id]
    windows = list(compiled.corpus("window").passages)[::-1]
    assert {position for window in windows for position in window.positions} == {line.position for line in compiled.lines}
    for window, following in pairwise(windows):
        shared = sorted(set(window.positions) & set(following.positions))
        assert len(window.text) <= 2_048
        # A real record has some 60 characters: windows are nearly full and neighbours really share lines.
        assert len(window.text) > 1_700
        assert 100 < len("\n".join(compiled.line(position) for position in shared)) <= 256
    assert len(windows[-1].text) <= 2_048
