"""Substring exact match as released: the headline metric."""

from collections.abc import Sequence

from eval.metrics import explained
from eval.metrics.normalise import checked_golds, normalise_answer, parse_answer


@explained("A normalised gold is a substring of the normalised output, whole or parsed.")
def substring_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether a normalised gold is a substring of the normalised raw or parsed output; LabelError for a void gold."""
    outputs = [normalise_answer(prediction), normalise_answer(parse_answer(prediction))]
    return any(normalise_answer(gold) in output for gold in checked_golds(golds) for output in outputs)


METRIC = substring_exact_match
