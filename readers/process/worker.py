"""The process of one reader: token ids in and out through pipes.

It is started by parent.py through offline/packages.py, knows no path of the run except the forbidden ones, and ends when its
input ends. Whatever a library prints goes to standard error.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import BinaryIO

import msgspec

from offline.canonical import Record, encode
from offline.errors import ColdreadError, ConfigurationError
from readers.engines import Engine, EngineStart, find_engine
from readers.process.guard import Forbidden, check, forbid
from readers.records import Decoding, Output


class Start(Record, frozen=True, tag="start"):
    """First message to the worker."""

    engine: EngineStart
    forbidden: Forbidden


class Batch(Record, frozen=True, tag="batch"):
    """Inputs to generate from."""

    inputs: tuple[tuple[int, ...], ...]
    warm: bool = False  # False: the engine first forgets what it keeps of earlier batches
    decoding: Decoding | None = None  # for calls of an algorithm; None: by the reader's settings


class Weigh(Record, frozen=True, tag="weigh"):
    """Request for the log probabilities of these tokens after these ids."""

    ids: tuple[int, ...]
    tokens: tuple[int, ...]


class Ready(Record, frozen=True, tag="ready"):
    """The worker's first answer."""

    environment: dict[str, str]
    forgets: bool  # the engine keeps a cache between batches and can empty it
    served_by: dict[str, str] | None = None  # a server's process and model; None if there is none, or it does not say


class Done(Record, frozen=True, tag="done"):
    """Outputs of one batch, in order."""

    outputs: tuple[Output, ...]


class Weighed(Record, frozen=True, tag="weighed"):
    """Log probabilities as decimals; None if the engine does not report them."""

    logprobs: tuple[str, ...] | None


class Failed(Record, frozen=True, tag="failed"):
    """The worker's last message."""

    message: str
    exit_code: int  # of the error's class, else 0


ToWorker = Start | Batch | Weigh
FromWorker = Ready | Done | Weighed | Failed


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer batches until the source ends."""

    def send(message: FromWorker) -> None:
        sink.write(encode(message) + b"\n")
        sink.flush()

    try:
        start = msgspec.json.decode(source.readline(), type=ToWorker)
        assert isinstance(start, Start)
        forbid(start.forbidden)
        engine = find_engine(start.engine.settings.reader.engine)(start.engine)
        check()
        environment = {**engine.environment(), "coldread": version("coldread")}
        served_by: Callable[[], dict[str, str] | None] = getattr(engine, "served_by", lambda: None)
        send(Ready(environment=environment, forgets=hasattr(engine, "forget"), served_by=served_by()))
        for line in source:
            answer = _answer(engine, msgspec.json.decode(line, type=ToWorker))
            check()
            send(answer)
    except ColdreadError as error:
        send(Failed(message=str(error), exit_code=error.exit_code))
    except Exception as error:
        traceback.print_exc()
        send(Failed(message=f"{type(error).__name__}: {error}{cure(error)}", exit_code=0))


def cure(error: Exception, smaller: str = "batch_size, or batch_tokens,") -> str:
    """Advice if an error says that memory ran out. smaller: the settings that help."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return f" (memory ran out: set a smaller {smaller} in its configuration)"
    return ""


def _answer(engine: Engine, message: ToWorker) -> Done | Weighed:
    # Optional methods: see `Engine`.
    forget: Callable[[], None] = getattr(engine, "forget", lambda: None)
    logprobs: Callable[..., list[float] | None] = getattr(engine, "logprobs", lambda ids, tokens: None)
    if isinstance(message, Weigh):
        found = logprobs(message.ids, message.tokens)
        return Weighed(logprobs=None if found is None else tuple(f"{value:.6f}" for value in found))
    assert isinstance(message, Batch)
    if not message.warm:
        # Outputs then depend on the batch alone, and a resumed read repeats an undisturbed one.
        forget()
    if message.decoding is None:
        return Done(outputs=tuple(engine.generate(message.inputs)))
    complete: Callable[..., list[Output]] | None = getattr(engine, "complete", None)
    if complete is None:
        raise ConfigurationError(
            "this engine only reads: it has no `complete`, which extraction by a model and pipelines need; choose another"
        )
    return Done(outputs=tuple(complete(message.inputs, message.decoding)))


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere its input ends, a batch later."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def main() -> None:
    """Reserve the pipes: for all else in and below this process, input is empty and output goes to standard error."""
    die_with_parent()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(source, sink)
