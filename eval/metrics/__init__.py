"""Metrics: `(prediction, golds) -> bool`, one small file each, registered by name.

`coldread.metrics` is the entry point group. `METRICS.names()` are the columns of every table.
"""

from collections.abc import Callable, Iterable, Sequence

from offline.registry import Registry

Metric = Callable[[str, Sequence[str]], bool]
METRICS: Registry[Metric] = Registry(
    "metric",
    "coldread.metrics",
    {
        "subem": "eval.metrics.subem:substring_exact_match",
        "strict_em": "eval.metrics.strict_em:strict_exact_match",
        "subem_words": "eval.metrics.subem_words:substring_words_match",
    },
)
# The metric of what shows one alone: the report, and what pipelines are worth.
HEADLINE = "subem"


def find_metrics(names: Iterable[str] | None = None) -> dict[str, Metric]:
    """These metrics by name, or all there are; ConfigurationError for one that is not installed."""
    return {name: METRICS.get(name) for name in (METRICS.names() if names is None else names)}
