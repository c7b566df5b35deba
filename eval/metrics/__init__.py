"""Metrics: `(prediction, golds) -> bool`, one small file each, registered by name.

`coldread.metrics` is the entry point group. `METRICS.names()` are the columns of every table.
"""

from collections.abc import Callable, Sequence

from offline.registry import Registry

Metric = Callable[[str, Sequence[str]], bool]
METRICS: Registry[Metric] = Registry("metric", "coldread.metrics")


def all_metrics() -> dict[str, Metric]:
    """Every metric by name."""
    from eval.metrics import strict_em, subem, subem_words  # noqa: F401  (they register themselves)

    return {name: METRICS.get(name) for name in METRICS.names()}
