"""Metrics: `(prediction, golds) -> bool`, one small file each, registered by name.

`coldread.metrics` is the entry point group. `METRICS.names()` are the columns of every table.
"""

from collections.abc import Callable, Iterable, Sequence

from offline.registry import Registry

Metric = Callable[[str, Sequence[str]], bool]
METRICS: Registry[Metric] = Registry("metric", "coldread.metrics")
# The metric of what shows one alone: the report, and what pipelines are worth.
HEADLINE = "subem"


def find_metrics(names: Iterable[str] | None = None) -> dict[str, Metric]:
    """These metrics by name, or all there are; ConfigurationError for one that is not installed."""
    from eval.metrics import strict_em, subem, subem_words  # noqa: F401  (they register themselves)

    return {name: METRICS.get(name) for name in (METRICS.names() if names is None else names)}
