"""Engines: token ids in, token ids out; no text.

A factory `(EngineStart) -> Engine` makes an engine; the entry point group is `coldread.engines`. Heavy libraries are imported
inside the factory. Each engine runs in its own process (readers/process/worker.py).
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
    """What an engine is started with."""

    settings: Settings
    model_folder: str  # on this machine
    longest: int  # tokens of the longest input
    structured: bool = False  # it will be asked to constrain answers to JSON Schemas


class Engine(Protocol):
    """Generates greedily. Optional methods:

    - `forget() -> None`: empties what is kept between batches (a prefix cache); used by the determinism certificate.
    - `logprobs(ids, tokens) -> list[float] | None`: natural log probabilities of these tokens after these ids; likewise.
    - `served_by() -> dict[str, str] | None`: identifies a server's process and model; if None, answers are not cached (calls/).
    - `complete(batch, decoding) -> list[Output]`: serves the calls of algorithms (calls/caller.py), one output per input in
      order, perhaps constrained to a JSON Schema. If it samples, each input's seed comes from `seed_of`.
    """

    def environment(self) -> dict[str, str]:
        """What this engine resolved: library versions, device, dtype, attention. No time, no path."""
        ...

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """One output per input, in order: greedy, capped, ended by a stop id."""
        ...


@dataclass(frozen=True)
class EngineKind:
    """What is known of an engine before it starts; engines of other packages have the defaults."""

    make: str = ""  # factory, as module:object
    options: str = ""  # record of its options, likewise; without one the engine checks them itself
    local: bool = False  # loads a model's files, so it cannot use a served model
    remote: bool = False  # asks a server, which has already chosen dtype, device and attention
    prefix_cache: str = ""  # option, on by default, that keeps a cache between batches
    gpus: str = "tensor_parallel_size"  # option for the GPUs of one process, 1 by default


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
    """The kind of a reader's engine."""
    return KINDS.get(reader.engine, EngineKind())


def keeps_prefix_cache(reader: Reader) -> bool:
    """Whether a reader's engine keeps a prefix cache; the certificate then also reads its sample warm."""
    option = engine_kind(reader).prefix_cache
    return bool(option and reader.options.get(option, True))


def gpus_of_process(reader: Reader) -> int:
    """GPUs of one process of a reader."""
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
    """The sampling seed of one input, 0..2^63-1: the first 63 bits of a digest of the decoding's seed and the input ids.

    A draw depends on neither batch nor order; different inputs draw independently, equal ones alike.
    """
    return int(digest_of((decoding.seed, tuple(ids)))[:16], 16) >> 1


def schema_error(reader: Reader, schema: str, error: Exception) -> ConfigurationError:
    """The error for a JSON Schema that the grammar library rejects."""
    return ConfigurationError(
        f"reader {reader.name!r}: xgrammar cannot hold answers to this JSON Schema: {str(error).strip()[:300]}; write it in "
        f"simpler terms, or set constrained: false ({schema[:200]})"
    )


def check_engine(reader: Reader) -> None:
    """ConfigurationError unless the reader's engine exists and its options are valid; loads no plug-in code."""
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
    """Whether a reader's answers come from a server, whose weights cannot be hashed here."""
    return reader.model.served is not msgspec.UNSET or engine_kind(reader).remote


def check_remote(reader: Reader) -> None:
    """ConfigurationError if a server's reader sets device or attention, which no request can choose."""
    given = [f"{name}: {value}" for name in ("device", "attention") if (value := getattr(reader, name)) != "auto"]
    if given:
        raise ConfigurationError(
            f"reader {reader.name!r}: the {reader.engine} engine cannot choose {', '.join(given)}; the server does, so tell it "
            "there and leave both out here"
        )
