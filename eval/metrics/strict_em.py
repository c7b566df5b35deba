"""Strict exact match: the parsed output is a gold."""

from collections.abc import Sequence

from eval.metrics.normalise import checked_golds, normalise_answer, parse_answer


def strict_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """Whether the parsed output equals a gold after the scorer's normalisation; LabelError for a void gold."""
    parsed = normalise_answer(parse_answer(prediction))
    return any(normalise_answer(gold) == parsed for gold in checked_golds(golds))
