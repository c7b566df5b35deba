"""Engines: token ids in, token ids out. Text stays outside.

An engine is made by a factory `(EngineStart) -> Engine`; `coldread.engines` is the entry point group. Heavy libraries are
imported inside the factory. An engine runs in a process of its own (readers/process/worker.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
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


@dataclass(frozen=True)
class EngineKind:
    """What is known of an engine before it starts. An engine of another package has the defaults.

    make, options: its factory and the record of its options, as "module:object"; without a record the engine checks its options
    itself. local: it loads a model's files, and so cannot read with a served one. remote: it asks a server, which chose dtype,
    device and attention when it was started. prefix_cache: the option, on by default, that keeps what one batch computed for
    the next. gpus: the option that says how many GPUs one process takes, 1 by default.
    """

    make: str = ""
    options: str = ""
    local: bool = False
    remote: bool = False
    prefix_cache: str = ""
    gpus: str = "tensor_parallel_size"


KINDS = {
    "transformers": EngineKind(
        make="readers.engines.transformers:TransformersEngine",
        options="readers.engines.transformers:TransformersOptions",
        local=True,
    ),
    "vllm": EngineKind(
        make="readers.engines.vllm:VllmEngine",
        options="readers.engines.vllm:VllmOptions",
        local=True,
        prefix_cache="enable_prefix_caching",
    ),
    "openai": EngineKind(
        make="readers.engines.openai:OpenAIEngine",
        options="readers.engines.openai:OpenAIOptions",
        remote=True,
    ),
    "recorded": EngineKind(
        make="readers.engines.recorded:RecordedEngine",
        options="readers.engines.recorded:RecordedOptions",
    ),
}
ENGINES: Registry[Callable[[EngineStart], Engine]] = Registry(
    "engine", "coldread.engines", {name: kind.make for name, kind in KINDS.items()}
)
find_engine = ENGINES.get


def engine_kind(reader: Reader) -> EngineKind:
    """What is known of a reader's engine."""
    return KINDS.get(reader.engine, EngineKind())


def keeps_prefix_cache(reader: Reader) -> bool:
    """Whether a reader's engine keeps a prefix cache, through which the certificate then reads its sample too."""
    option = engine_kind(reader).prefix_cache
    return bool(option and reader.options.get(option, True))


def gpus_of_process(reader: Reader) -> int:
    """How many GPUs one process of a reader takes."""
    return int(reader.options.get(engine_kind(reader).gpus, 1))


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
    if reader.engine not in ENGINES:
        ENGINES.get(reader.engine)
    kind = engine_kind(reader)
    if kind.local and reader.model.served is not msgspec.UNSET:
        raise ConfigurationError(
            f"reader {reader.name!r}: the {reader.engine} engine loads a model's files, and a served model has none here; use "
            "engine: openai"
        )
    if kind.remote:
        check_remote(reader)
    if kind.options:
        engine_options(reader, resolve_name(kind.options))


def asks_server(reader: Reader) -> bool:
    """Whether a reader's answers come from a server, whose weights nobody here can hash."""
    return reader.model.served is not msgspec.UNSET or engine_kind(reader).remote


def check_remote(reader: Reader) -> None:
    """ConfigurationError if a reader of a server names a device or an attention, which no request could ask for."""
    given = [f"{name}: {value}" for name in ("device", "attention") if (value := getattr(reader, name)) != "auto"]
    if given:
        raise ConfigurationError(
            f"reader {reader.name!r}: the {reader.engine} engine cannot choose {', '.join(given)}; the server does, so tell it "
            "there and leave both out here"
        )
