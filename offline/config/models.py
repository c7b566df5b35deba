"""Pinned models as they are configured: which one exactly, and how it is run. Nothing here loads one."""

from datetime import date
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from offline.canonical import Record
from offline.config.yaml import check


class Pin(Record, frozen=True):
    """Which model, exactly: one of `embedded`, `folder`, `served`, or `repository` with a 40-digit `revision`.

    `served`: the name of a model behind a server, whose files and tokenizer nobody here can see. `fingerprint`: what the
    model's files must hash to, as `coldread pin` prints it.
    """

    embedded: str | None = None
    folder: str | None = None
    repository: str | None = None
    revision: str | None = None
    served: str | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET


def pin_text(pin: Pin) -> str:
    """A model's pin as people write it: `embedded NAME`, `folder PATH`, `repository NAME@COMMIT`, `served NAME`."""
    given = {name: value for name, value in asdict(pin).items() if isinstance(value, str)}
    revision = f"@{given['revision']}" if "revision" in given else ""
    return next(f"{name} {given[name]}{revision}" for name in ("embedded", "folder", "repository", "served") if name in given)


class Reader(Record, frozen=True):
    """One pinned reader and how it generates.

    `output_cap`: new tokens at most, -1 = the regime's. `input_cap`: input tokens at most, before the model's own window binds.
    `batch_size`: requests generated together. `thinking`: what a template's switch is set to. `options` go to the engine,
    each of which names its own. `attention`: an implementation by the engine's own name for it, `auto` = the engine's choice.
    `input_rate`, `output_rate`: tokens a second, measured, for the estimate of `--dry-run` alone; 0 = unknown.
    `batch_tokens`: padded input tokens that a batch may hold besides; unset = any number.
    `date`: what the chat template takes for today, YYYY-MM-DD; a template that asks the clock is refused without it.

    The rest cannot change an output. `probe`: requests that the determinism certificate samples, 0 = none, unset = 8.
    `data_parallel`: processes that share the batches. `start_seconds`, `batch_seconds`: how long an engine may take to load,
    and to answer a batch, before it counts as hanging.
    """

    name: str
    engine: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    attention: str = "auto"
    batch_size: int = 16
    output_cap: int = -1
    # The papers' cap: 262,144 tokens (spec §7).
    input_cap: int = 262_144
    thinking: bool = False
    options: dict[str, str | int | bool] = {}
    input_rate: int = 0
    output_rate: int = 0
    batch_tokens: int | UnsetType = UNSET
    date: str | UnsetType = UNSET
    probe: int | UnsetType = UNSET
    data_parallel: int | UnsetType = UNSET
    start_seconds: int | UnsetType = UNSET
    batch_seconds: int | UnsetType = UNSET


# Processes that may share a reader's batches: far more than one machine has GPUs.
MOST_PROCESSES = 1_024


def check_reader(reader: Reader, where: str) -> None:
    """ConfigurationError for numbers with which no reader could generate, and for a date that is none."""
    whose = f"{where}: reader {reader.name!r}"
    check(
        reader.output_cap > 0 and reader.batch_size > 0 and reader.input_cap > 0,
        f"{whose}: output_cap, input_cap and batch_size must be positive",
    )
    check(
        reader.date is UNSET or _is_day(reader.date),
        f"{whose}: date {reader.date!r} is no day of the calendar written YYYY-MM-DD",
    )
    for name in ("batch_tokens", "data_parallel", "start_seconds", "batch_seconds"):
        value = getattr(reader, name)
        check(value is UNSET or value > 0, f"{whose}: {name} must be positive")
    check((reader.data_parallel or 1) <= MOST_PROCESSES, f"{whose}: data_parallel goes up to {MOST_PROCESSES}")
    check(
        reader.probe is UNSET or reader.probe == 0 or reader.probe >= 2,
        f"{whose}: probe must be 0 or at least 2: one request has no company",
    )


def _is_day(text: str) -> bool:
    """Whether a text is a day in the one form YYYY-MM-DD; the calendar's own parser reads several."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


class Encoder(Record, frozen=True):
    """One pinned embedding model (sentence-transformers) and how it encodes. Everything here can change a vector's last bits.

    `max_tokens`: a text's tokens at most, before the model's own window binds (BGE-M3's cap: the compiler paper, appendix I).
    `query_prompt`, `passage_prompt`: what precedes a text; unset = what the model's own files say. `pooling`: for a folder that
    does not say how it pools; unset = its own modules. `weights`: the file that holds them, if they are not safetensors.
    """

    name: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    batch_size: int = 32
    max_tokens: int = 8_192
    query_prompt: str | UnsetType = UNSET
    passage_prompt: str | UnsetType = UNSET
    pooling: Literal["cls", "mean", "lasttoken"] | UnsetType = UNSET
    weights: Literal["safetensors", "pytorch_model.bin"] = "safetensors"


class Reranker(Record, frozen=True):
    """One pinned reranker (sentence-transformers' CrossEncoder): a sequence classifier, or a causal model that says yes or no.

    `max_tokens`: a pair's tokens at most, before the model's own window binds. `instruction`: what the template takes for its
    system message. `template`: a chat template with the roles `query` and `document`, for a causal model that ships none.
    """

    name: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    batch_size: int = 16
    max_tokens: int = 8_192
    instruction: str | UnsetType = UNSET
    template: str | UnsetType = UNSET
    weights: Literal["safetensors", "pytorch_model.bin"] = "safetensors"
