"""Engines: token ids in, token ids out. Text stays outside.

An engine is made by a factory `(EngineStart) -> Engine`, registered by name; `coldread.engines` is the entry point
group. Heavy libraries are imported inside the factory. An engine runs in a process of its own (readers/worker.py).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from offline.canonical import Record
from offline.registry import Registry
from readers.records import Output, Settings


class EngineStart(Record, frozen=True):
    """What an engine is given: the frozen settings and the folder of the model on this machine."""

    settings: Settings
    model_folder: str


class Engine(Protocol):
    """Generates greedily."""

    def environment(self) -> dict[str, str]:
        """What this engine resolved: library versions, device, dtype, attention. No time, no path."""
        ...

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """One output for each input, in order: greedy, capped, ended by a stop id."""
        ...


ENGINES: Registry[Callable[[EngineStart], Engine]] = Registry("engine", "coldread.engines")


def check_engine(name: str) -> None:
    """ConfigurationError unless there is an engine of that name; its code is not loaded."""
    from readers.engines import recorded, transformers  # noqa: F401  (they register themselves)

    if name not in ENGINES.names():
        ENGINES.get(name)


def find_engine(name: str) -> Callable[[EngineStart], Engine]:
    """The factory called `name`; ConfigurationError if there is none."""
    from readers.engines import recorded, transformers  # noqa: F401  (they register themselves)

    return ENGINES.get(name)
