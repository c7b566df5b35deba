"""Metrics: `(prediction, golds) -> bool`; `coldread.metrics` is the entry point group.

Each module here but `normalise` is one metric, named after it; its function is `METRIC`. A function may say how it judges in an
attribute `explanation`. `METRICS.names()` are the columns of every table.
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
# The metric of what shows one alone: the report, and what pipelines are worth.
HEADLINE = "subem"


def explained(text: str) -> Callable[[Function], Function]:
    """Decorator: how a metric judges, for people who read its verdicts."""

    def enter(metric: Function) -> Function:
        metric.explanation = text  # type: ignore[attr-defined]
        return metric

    return enter


def explanation(name: str) -> str | None:
    """How a metric judges; None for one that does not say, or is not installed."""
    return getattr(METRICS.get(name), "explanation", None) if name in METRICS else None


def find_metrics(names: Iterable[str] | None = None) -> dict[str, Metric]:
    """These metrics by name, or all there are; ConfigurationError for one that is not installed."""
    return {name: METRICS.get(name) for name in (METRICS.names() if names is None else names)}
