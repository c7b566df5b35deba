"""Shared wording and number formats of results."""

import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# The mark after an interval, and its meaning.
NO_WIDTH = "*"
NO_WIDTH_NOTE = (
    "* every question came out with the same difference, as where none is discordant: no resample can differ, so the interval "
    "has no width, and says nothing of how sure the points are."
)


def percent(count: int, of: int) -> str:
    """Percentage with two decimals; "-" if `of` is 0."""
    return f"{100 * count / of:.2f}" if of else "-"


def blind_text(blind: bool) -> str:
    """How tables state whether a reader was sealed before any label was opened."""
    return "sealed blind" if blind else "sealed after labels were opened"


def printable(text: str) -> str:
    """A text with control and text-direction characters, which could steer a terminal, escaped."""
    return "".join(
        c.encode("unicode_escape").decode() if c in _DIRECTIONS or (unicodedata.category(c) == "Cc" and c != "\t") else c
        for c in text
    )
