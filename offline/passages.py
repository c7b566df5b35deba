"""Passages: the units that a retriever ranks, and how a history is cut into them.

A passage is ranked by its text and shown by its records. A chunk is a run of whole records; only a record that is itself too
long is cut, for ranking alone, into pieces that each stand for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from offline.canonical import Record
from offline.render import Line

# Sliding windows of the compiler paper (appendix I): characters of a window, and of the overlap.
WINDOW_CHARACTERS, WINDOW_OVERLAP = 2_048, 256


@dataclass(frozen=True)
class Passage:
    """The unit that a retriever ranks."""

    positions: tuple[int, ...]  # of the records that it stands for
    text: str  # for a model
    words: str  # for BM25


class Chunk(Record, frozen=True, gc=False):
    """A run of records of one history, or a piece of one record."""

    history: str
    first: int  # position of the first record
    last: int  # position of the last record
    begin: int | UnsetType = UNSET  # first character of a piece
    end: int | UnsetType = UNSET  # behind its last character


# Cuts one overlong text: (begin, end) of its pieces, in characters.
Cutter = Callable[[str], Sequence[tuple[int, int]]]


def cut(history: str, lines: Sequence[Line], sizes: Sequence[int], limit: int, pieces: Cutter, overlap: int = 0) -> list[Chunk]:
    """Runs of whole lines, in order, each as long as fits `limit`.

    sizes: int[lines], each line's share of the limit. overlap: a chunk repeats the last lines of the one before it, up to this
    size. A line beyond the limit gives one chunk for each of its `pieces`.
    """
    chunks: list[Chunk] = []
    start = 0
    while start < len(lines):
        if sizes[start] > limit:
            position, text = lines[start].position, lines[start].text
            chunks += [Chunk(history, position, position, begin, end) for begin, end in pieces(text)]
            start += 1
            continue
        end, used = start, 0
        while end < len(lines) and used + sizes[end] <= limit:
            used += sizes[end]
            end += 1
        chunks.append(Chunk(history, lines[start].position, lines[end - 1].position))
        shared, again = 0, end
        # Repeated lines must leave room for the next one. A whole chunk never does, or it would have been longer.
        while end < len(lines) and shared + sizes[again - 1] <= min(overlap, limit - sizes[end]):
            again -= 1
            shared += sizes[again]
        start = again
    return chunks


def cut_characters(history: str, lines: Sequence[Line], limit: int, overlap: int = 0) -> list[Chunk]:
    """Chunks of at most `limit` characters, line breaks between records counted."""
    step = limit - overlap

    def pieces(text: str) -> list[tuple[int, int]]:
        return [(begin, min(begin + limit, len(text))) for begin in range(0, max(1, len(text) - overlap), step)]

    # A line break after each line but the last: one more in the sizes, one more in the limit.
    return cut(history, lines, [len(line.text) + 1 for line in lines], limit + 1, pieces, overlap)


def passages(chunks: Sequence[Chunk], lines: Sequence[Line]) -> list[Passage]:
    """The passages of one history's chunks, newest first; `lines` are all of its lines, in order."""
    place = {line.position: index for index, line in enumerate(lines)}
    found = []
    for chunk in reversed(chunks):
        run = lines[place[chunk.first] : place[chunk.last] + 1]
        text = "\n".join(line.text for line in run)
        if chunk.begin is not UNSET and chunk.end is not UNSET:
            text = text[chunk.begin : chunk.end]
        found.append(Passage(tuple(line.position for line in run), text, text))
    return found
