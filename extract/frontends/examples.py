"""Source examples in a call: as many of them, and as much of each, as it has room for."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from readers.calls.caller import Ask, Caller

# Characters kept on each side of an example's subject and object if it does not fit whole, most first.
WIDTHS = (256, 64, 16)
ELLIPSIS = "…"

T = TypeVar("T")


def excerpt(text: str, ends: Iterable[str], width: int | None) -> str:
    """A text around the first place of each of `ends`, `width` characters on each side (None: all), ellipses for the rest."""
    if width is None:
        return text
    parts: list[tuple[int, int]] = []
    for at, length in sorted((text.index(end), len(end)) for end in ends):
        start, stop = max(0, at - width), min(len(text), at + length + width)
        if parts and start <= parts[-1][1]:
            before = parts.pop()
            start, stop = before[0], max(before[1], stop)
        parts.append((start, stop))
    opening, closing = ELLIPSIS * (parts[0][0] > 0), ELLIPSIS * (parts[-1][1] < len(text))
    return opening + ELLIPSIS.join(text[start:stop] for start, stop in parts) + closing


def first_with_room(caller: Caller, variants: Iterable[tuple[T, Sequence[Ask]]]) -> tuple[T, Sequence[Ask]]:
    """The first of these variants, fullest first, whose calls all fit; the last if none does. There must be one."""
    for variant in variants:
        if all(map(caller.fits, variant[1])):
            break
    return variant
