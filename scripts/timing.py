"""Clocks of the benchmarks."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any


def timed(call: Callable[..., Any], *arguments: Any, clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """Seconds of one call, by the wall clock unless another is given, and its result."""
    began, result = clock(), call(*arguments)
    return clock() - began, result


def time_each(call: Callable[[Any], Any], items: Sequence[Any]) -> list[float]:
    """Seconds of a call for each item, with the garbage collector off, as under timeit."""
    gc.collect()
    gc.disable()
    try:
        return [timed(call, item)[0] for item in items]
    finally:
        gc.enable()
