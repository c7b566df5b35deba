"""Substring exact match as released: the headline metric."""

from collections.abc import Sequence

from eval.metrics.normalise import checked_golds, normalise_answer, parse_answer


def substring_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether a normalised gold is a substring of the normalised raw or parsed output; LabelError for a void gold."""
    outputs = [normalise_answer(prediction), normalise_answer(parse_answer(prediction))]
    return any(normalise_answer(gold) in output for gold in checked_golds(golds) for output in outputs)
