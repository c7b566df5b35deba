"""Strict exact match: the parsed output equals a gold."""

from collections.abc import Sequence

from eval.metrics import explained
from eval.metrics.normalise import checked_golds, normalise_answer, parse_answer


@explained("The parsed output, normalised, is a gold, normalised.")
def strict_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the parsed output equals a gold after the scorer's normalisation; LabelError for a void gold."""
    parsed = normalise_answer(parse_answer(prediction))
    return any(normalise_answer(gold) == parsed for gold in checked_golds(golds))


METRIC = strict_exact_match
