"""Configuration of pinned models: which one exactly, and how it is run. Nothing here loads one."""

from datetime import date
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from offline.canonical import Record
from offline.config.yaml import check


class Pin(Record, frozen=True):
    """Which model, exactly: one of `embedded`, `folder`, `served`, or `repository` with `revision`."""

    embedded: str | None = None
    folder: str | None = None
    repository: str | None = None
    revision: str | None = None  # 40-digit commit
    served: str | UnsetType = UNSET  # name of a model behind a server, whose files and tokenizer cannot be seen
    fingerprint: str | UnsetType = UNSET  # what the model's files must hash to, as `coldread pin` prints it


def pin_text(pin: Pin) -> str:
    """A pin as text: `embedded NAME`, `folder PATH`, `repository NAME@COMMIT`, `served NAME`."""
    given = {name: value for name, value in asdict(pin).items() if isinstance(value, str)}
    revision = f"@{given['revision']}" if "revision" in given else ""
    return next(f"{name} {given[name]}{revision}" for name in ("embedded", "folder", "repository", "served") if name in given)


class Reader(Record, frozen=True):
    """One pinned reader and how it generates. From `probe` on, no field can change an output."""

    name: str
    engine: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    attention: str = "auto"  # an implementation by the engine's own name; auto = the engine's choice
    batch_size: int = 16  # requests generated together
    output_cap: int = -1  # most new tokens; -1 = the regime's
    input_cap: int = 262_144  # most input tokens, before the model's own window binds (the papers' cap, spec §7)
    thinking: bool = False  # the switch of the chat template
    options: dict[str, str | int | bool] = {}  # named by the engine
    input_rate: int = 0  # tokens a second, measured, only for the estimate of `--dry-run`; 0 = unknown
    output_rate: int = 0  # the same
    batch_tokens: int | UnsetType = UNSET  # most padded input tokens of a batch; unset = any number
    date: str | UnsetType = UNSET  # today for the chat template, YYYY-MM-DD; needed if it asks the clock
    probe: int | UnsetType = UNSET  # requests that the determinism certificate samples; 0 = none, unset = 8
    data_parallel: int | UnsetType = UNSET  # processes that share the batches
    start_seconds: int | UnsetType = UNSET  # to load before the engine counts as hanging
    batch_seconds: int | UnsetType = UNSET  # to answer a batch before it does


# The most processes for one reader: far more than one machine has GPUs.
MOST_PROCESSES = 1_024


def check_reader(reader: Reader, where: str) -> None:
    """ConfigurationError for numbers that no reader can generate with, and for an invalid date."""
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
        f"{whose}: probe must be 0 or at least 2: one request has nothing to be compared with",
    )


def _is_day(text: str) -> bool:
    """True for a day in the one form YYYY-MM-DD; `date.fromisoformat` reads several."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


class Encoder(Record, frozen=True):
    """One pinned embedding model (sentence-transformers) and how it encodes; every field can change a vector's last bits."""

    name: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    batch_size: int = 32
    max_tokens: int = 8_192  # most tokens of a text, within the model's window (BGE-M3's cap: the compiler paper, appendix I)
    query_prompt: str | UnsetType = UNSET  # precedes a query; unset = as the model's own files say
    passage_prompt: str | UnsetType = UNSET  # precedes a passage; unset = as the model's own files say
    pooling: Literal["cls", "mean", "lasttoken"] | UnsetType = UNSET  # for a folder that does not say; unset = its own modules
    weights: Literal["safetensors", "pytorch_model.bin"] = "safetensors"  # the file that holds them


class Reranker(Record, frozen=True):
    """A pinned reranker (sentence-transformers' CrossEncoder): a sequence classifier, or a causal model that says yes or no."""

    name: str
    model: Pin
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    device: str = "auto"
    batch_size: int = 16
    max_tokens: int = 8_192  # most tokens of a pair, within the model's window
    instruction: str | UnsetType = UNSET  # system message of the template
    template: str | UnsetType = UNSET  # chat template with the roles `query` and `document`, for a causal model without one
    weights: Literal["safetensors", "pytorch_model.bin"] = "safetensors"
