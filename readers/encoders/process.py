"""A process with one retrieval model: the parent calls the model's methods and gets their results."""

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

Call = Callable[..., Any]  # call(method, *arguments) runs a method of the model in its process
_model: Any = None


@contextmanager
def model_process(load: Callable[..., Any], *arguments: Any, whose: str) -> Iterator[Call]:
    """Load a model in a new process by `load(*arguments)`, a module-level function.

    Re-raises ColdreadErrors of the process; EngineError for any other exception, and if the process ends.
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
    """Make a new process run offline/packages.py first, instead of the caller's script again."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    sys.modules["__main__"].__file__ = str(LAUNCHER)
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _prepare() -> None:
    """Go offline, end with the parent, and leave standard output to the command."""
    die_with_parent()
    parent = parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)  # The parent ended before it could be watched.
    os.dup2(2, 1)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def _run(whose: str, function: Callable[..., Any], *values: Any) -> Any:
    """Convert library exceptions here: some cannot be pickled."""
    with guarded(whose, EngineError, lambda error: cure(error, "batch_size")):
        return function(*values)


def _load(load: Callable[..., Any], *arguments: Any) -> None:
    global _model
    _model = load(*arguments)


def _call(method: str, *values: Any) -> Any:
    return getattr(_model, method)(*values)
