"""Entity keys: the normalisation that compares subjects, objects and questions. The scorer has its own (eval/metrics)."""

import re
import unicodedata
from functools import lru_cache

# 's or ’s, at the end of a word if `_in_word` says so. NFKC leaves both apostrophes as they are.
_POSSESSIVE = re.compile(r"['’]s")
# Everything that is neither letter nor digit; the underscore is neither, though \w holds it.
_SEPARATORS = re.compile(r"(?:[^\w]|_)+")


def _in_word(character: str) -> bool:
    """True for a character of a word: `\\w`, or a mark on a letter, which `\\w` does not hold; False for none."""
    return bool(character) and (character.isalnum() or character == "_" or unicodedata.category(character).startswith("M"))


def _drop_possessive(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    ends_a_word = start > 0 and _in_word(text[start - 1]) and not _in_word(text[end : end + 1])
    return "" if ends_a_word else match[0]


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@lru_cache(maxsize=1 << 18)
def entity_key(text: str) -> str:
    """NFKC, casefold, drop a possessive at a word's end, runs of non-alphanumerics to one space, strip.

    Casefolding can leave NFKC form (ΐ and friends), hence a second NFKC. Accents and marks that NFKC cannot compose are kept.
    """
    folded = _POSSESSIVE.sub(_drop_possessive, unicodedata.normalize("NFKC", _fold(text)))
    if folded.isascii():
        return _SEPARATORS.sub(" ", folded).strip()
    kept = [c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded]
    return " ".join("".join(kept).split())


def entity_words(text: str) -> tuple[str, ...]:
    """The words of `entity_key(text)`; empty for a text without letters or digits."""
    return tuple(entity_key(text).split())
