"""Metrics: `(prediction, golds) -> bool`; `coldread.metrics` is the entry point group.

Each module here except `normalise` is one metric, named after it, with its function `METRIC`. Its attribute `explanation`, if
set, describes how it judges. `METRICS.names()` are the columns of every table.
"""

from collections.abc import Callable, Iterable, Sequence
from pkgutil import iter_modules
from typing import TypeVar

from offline.registry import Registry

Metric = Callable[[str, Sequence[str]], bool]
Function = TypeVar("Function", bound=Metric)
METRICS: Registry[Metric] = Registry(
    "metric",
    "coldread.metrics",
    {name: f"eval.metrics.{name}:METRIC" for _, name, _ in iter_modules(__path__) if name != "normalise"},
)
HEADLINE = "subem"  # where only one metric is shown


def explained(text: str) -> Callable[[Function], Function]:
    """Decorator that attaches an explanation of how a metric judges."""

    def enter(metric: Function) -> Function:
        metric.explanation = text  # type: ignore[attr-defined]
        return metric

    return enter


def explanation(name: str) -> str | None:
    """How a metric judges; None if it gives no explanation or is not installed."""
    return getattr(METRICS.get(name), "explanation", None) if name in METRICS else None


def find_metrics(names: Iterable[str] | None = None) -> dict[str, Metric]:
    """These metrics by name, default all; ConfigurationError for one that is not installed."""
    return {name: METRICS.get(name) for name in (METRICS.names() if names is None else names)}
