"""Entity keys: the one normalisation under which subjects, objects and questions meet.

The scorer has another one (eval/metrics); the two are never mixed.
"""

import re
import unicodedata
from functools import lru_cache

# 's or ’s at the end of a word. NFKC leaves both apostrophes as they are.
_POSSESSIVE = re.compile(r"(?<=\w)['’]s(?!\w)")
# Everything that is neither letter nor digit; the underscore is neither, though \w holds it.
_SEPARATORS = re.compile(r"(?:[^\w]|_)+")


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@lru_cache(maxsize=1 << 18)
def entity_key(text: str) -> str:
    """NFKC, casefold, drop a possessive at a word's end, runs of non-alphanumerics to one space, strip.

    Casefolding can leave NFKC form (ΐ and friends), so it is followed by a second NFKC; letters keep their accents.
    A combining mark that NFKC cannot compose is kept: it is part of a letter as written.
    """
    folded = _POSSESSIVE.sub("", unicodedata.normalize("NFKC", _fold(text)))
    if folded.isascii():
        return _SEPARATORS.sub(" ", folded).strip()
    kept = [c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded]
    return " ".join("".join(kept).split())


def entity_words(text: str) -> tuple[str, ...]:
    """The words of `entity_key(text)`; empty for a text without letters or digits."""
    return tuple(entity_key(text).split())
