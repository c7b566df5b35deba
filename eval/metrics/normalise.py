"""The scorer's normalisation and answer parsing, as released with MemoryAgentBench (spec §3, §8).

Reproduced exactly, quirks included, for comparable scores. Entity keys use another normalisation (offline/entity_keys.py).
"""

import re
import string
from collections.abc import Sequence

from offline.errors import LabelError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ANSWER = re.compile(r"answer:", re.IGNORECASE)
# The released pattern's `^` and `$` are per line; a line ends at \n.
_AFTER_ANSWER = re.compile(r"answer:(.*?)(?:\n|$)", re.IGNORECASE)


def normalise_answer(text: str) -> str:
    """Lowercase, delete ASCII punctuation, replace the words a, an, the by a space, collapse white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def parse_answer(output: str) -> str:
    """Text after the first `Answer:` (any case) up to the line's end, else the first line; minus one more leading mark."""
    match = _AFTER_ANSWER.search(output)
    parsed = match[1].strip() if match else output.strip().split("\n", 1)[0].strip()
    again = _ANSWER.match(parsed)
    return parsed[again.end() :].strip() if again else parsed


def checked_golds(golds: Sequence[str]) -> list[str]:
    """The golds; LabelError if there are none, or if one normalises to nothing and would match everything."""
    if isinstance(golds, str):
        raise LabelError(f"golds must be a list of strings, not the string {golds!r}")
    if not golds:
        raise LabelError("a question without a gold answer cannot be scored; every answer would count as right")
    for gold in golds:
        if not normalise_answer(gold):
            raise LabelError(f"the gold answer {gold!r} normalises to nothing and would match every output; mend the label")
    return list(golds)
