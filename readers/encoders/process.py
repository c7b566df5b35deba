"""A process with one retrieval model in it: the parent calls the model's methods, results come back."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from types import ModuleType
from typing import Any

from offline.errors import EngineError, guarded
from offline.packages import FILE as LAUNCHER
from readers.process.worker import cure, die_with_parent

# call(method, *arguments): calls a method of the model in its process.
Call = Callable[..., Any]
_model: Any = None


@contextmanager
def model_process(load: Callable[..., Any], *arguments: Any, whose: str) -> Iterator[Call]:
    """Load a model in a new process by `load(*arguments)`, a function at the top of a module.

    ColdreadErrors of the process come back as they are; EngineError for any other, and for a process that ends.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare) as pool:

        def run(function: Callable[..., Any], *values: Any) -> Any:
            try:
                with _launcher_as_main():
                    future = pool.submit(_run, whose, function, *values)
                return future.result()
            except BrokenProcessPool as error:
                raise EngineError(
                    f"{whose}: its process was killed, by hand or because memory ran out (then set a smaller batch_size); "
                    "the same command resumes"
                ) from error

        run(_load, load, *arguments)
        yield lambda method, *values: run(_call, method, *values)


@contextmanager
def _launcher_as_main() -> Iterator[None]:
    """Let a process that starts run offline/packages.py first, where it would run the caller's script once more."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    sys.modules["__main__"].__file__ = str(LAUNCHER)
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _prepare() -> None:
    """Offline, ended with its parent, and silent on standard output, which is the command's."""
    die_with_parent()
    parent = parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)  # It ended before it could be watched.
    os.dup2(2, 1)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def _run(whose: str, function: Callable[..., Any], *values: Any) -> Any:
    """A library's errors end here: some of them cannot be sent through a pipe."""
    with guarded(whose, EngineError, lambda error: cure(error, "batch_size")):
        return function(*values)


def _load(load: Callable[..., Any], *arguments: Any) -> None:
    global _model
    _model = load(*arguments)


def _call(method: str, *values: Any) -> Any:
    return getattr(_model, method)(*values)
