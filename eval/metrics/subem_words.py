"""Substring match on word boundaries: "Wil" is not in "will", "NBC" is not in "CNBC"."""

import re
import unicodedata
from collections.abc import Sequence

from eval.metrics import explained
from eval.metrics.normalise import checked_golds, normalise_answer, parse_answer


def _words(text: str) -> str:
    return normalise_answer(unicodedata.normalize("NFKC", text))


@explained("As subem, after NFKC, and the gold may not be part of a longer word.")
def substring_words_match(prediction: str, golds: Sequence[str]) -> bool:
    """As `subem`, after NFKC and with a gold bounded by non-word characters; LabelError for a void gold."""
    outputs = [_words(prediction), _words(parse_answer(prediction))]
    return any(
        re.search(rf"(?<!\w){re.escape(_words(gold))}(?!\w)", output) is not None
        for gold in checked_golds(golds)
        for output in outputs
    )


METRIC = substring_words_match
