"""Engines: token ids in, token ids out. Text stays outside.

An engine is made by a factory `(EngineStart) -> Engine`, registered by name; `coldread.engines` is the entry point
group. Heavy libraries are imported inside the factory. An engine runs in a process of its own (readers/process/worker.py).
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from offline.canonical import Record, digest_of
from offline.config.models import Reader
from offline.errors import ConfigurationError
from offline.registry import Registry
from readers.records import Decoding, Output, Settings

Options = TypeVar("Options", bound=Record)


class EngineStart(Record, frozen=True):
    """What an engine is given: the frozen settings, the folder of the model on this machine, and the longest input's tokens.

    structured: it will be asked to hold answers to a JSON Schema.
    """

    settings: Settings
    model_folder: str
    longest: int
    structured: bool = False


class Engine(Protocol):
    """Generates greedily.

    An engine may also offer `forget() -> None`, which empties whatever it keeps from one batch to the next (a prefix cache),
    and `logprobs(ids, tokens) -> list[float] | None`, natural logarithms of the probabilities of these tokens after these
    ids. The determinism certificate uses both where they are.

    An engine that asks a server may offer `served_by() -> dict[str, str] | None`: what tells the server's process, and the
    model in it, from every other; None if the server does not say. Only with it are answers used again (calls/).

    An engine that can serve the calls of algorithms (calls/caller.py) offers `complete(batch, decoding) -> list[Output]`: one
    output for each input, in order, decoded as a `Decoding` says, which may hold it to a JSON Schema. Where it samples, each
    input does so with the seed that `seed_of` gives.
    """

    def environment(self) -> dict[str, str]:
        """What this engine resolved: library versions, device, dtype, attention. No time, no path."""
        ...

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """One output for each input, in order: greedy, capped, ended by a stop id."""
        ...


ENGINES: Registry[Callable[[EngineStart], Engine]] = Registry("engine", "coldread.engines")
# The record of an engine's options, for engines that declare one; options can then be checked before anything runs.
OPTIONS: dict[str, type[Record]] = {}
# Engines that load a model's files, and so cannot read with a served one.
LOCAL: set[str] = set()
# Engines that ask a server, which chose dtype, device and attention when it was started.
REMOTE: set[str] = set()


def engine_options(reader: Reader, kind: type[Options]) -> Options:
    """A reader's `options` as its engine's record; ConfigurationError names what does not fit."""
    try:
        return msgspec.convert(reader.options, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"reader {reader.name!r}: options of the {reader.engine} engine: {error}; it knows "
            + ", ".join(field.name for field in msgspec.structs.fields(kind))
        ) from error


def seed_of(decoding: Decoding, ids: Sequence[int]) -> int:
    """The seed that one input samples with, 0..2^63-1: the first 63 bits of a digest of the decoding's seed and the input ids.

    So a draw hangs on neither batch nor order, and different inputs draw independently; equal ones draw alike.
    """
    return int(digest_of((decoding.seed, tuple(ids)))[:16], 16) >> 1


def schema_error(reader: Reader, schema: str, error: Exception) -> ConfigurationError:
    """What to raise for a JSON Schema that the library which holds answers to it does not take."""
    return ConfigurationError(
        f"reader {reader.name!r}: xgrammar cannot hold answers to this JSON Schema: {str(error).strip()[:300]}; write it in "
        f"simpler terms, or set constrained: false ({schema[:200]})"
    )


def check_engine(reader: Reader) -> None:
    """ConfigurationError unless there is the reader's engine and its options fit; a plug-in's code is not loaded."""
    _register()
    if reader.engine not in ENGINES.names():
        ENGINES.get(reader.engine)
    if reader.engine in LOCAL and reader.model.served is not msgspec.UNSET:
        raise ConfigurationError(
            f"reader {reader.name!r}: the {reader.engine} engine loads a model's files, and a served model has none here; use "
            "engine: openai"
        )
    if reader.engine in REMOTE:
        check_remote(reader)
    if reader.engine in OPTIONS:
        engine_options(reader, OPTIONS[reader.engine])


def asks_server(reader: Reader) -> bool:
    """Whether a reader's answers come from a server, whose weights nobody here can hash."""
    _register()
    return reader.model.served is not msgspec.UNSET or reader.engine in REMOTE


def check_remote(reader: Reader) -> None:
    """ConfigurationError if a reader of a server names a device or an attention, which no request could ask for."""
    given = [f"{name}: {value}" for name in ("device", "attention") if (value := getattr(reader, name)) != "auto"]
    if given:
        raise ConfigurationError(
            f"reader {reader.name!r}: the {reader.engine} engine cannot choose {', '.join(given)}; the server does, so tell it "
            "there and leave both out here"
        )


def find_engine(name: str) -> Callable[[EngineStart], Engine]:
    """The factory called `name`; ConfigurationError if there is none."""
    _register()
    return ENGINES.get(name)


def _register() -> None:
    from readers.engines import openai, recorded, transformers, vllm  # noqa: F401  (they register themselves)
