"""Description of a model to pin: commit, fingerprint, licence, and what its chat template does.

Only the small files of a repository are downloaded; the hub states the sha256 of the weights.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from offline.canonical import Record, file_digest
from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, ModelError
from readers.models.hub import Listing, card_of, download_small, licence_of, look_up
from readers.models.pins import MODULES_FILE, PICKLED, WEIGHTS, Pinned, fingerprint, is_model_file, model_of, patterns_among
from readers.records import Model, ModelFile
from readers.tokens.chat import ChatTokenizer

MAIN = "main"  # a repository's default branch
# Weight formats that can run code, or that no engine here loads.
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf", ".h5", ".msgpack")


class Description(Record, frozen=True):
    """A model as `coldread pin` shows it; None where tokenizer and template could not be tried."""

    model: Pin
    line: str  # the `model:` line of a reader file
    licence: str  # "" if none is stated
    gated: str | None  # none, auto or manual; None for a local folder
    weights: int  # bytes of all weights
    files: tuple[ModelFile, ...]
    architecture: str
    dtype: str
    window: int  # positions, -1 if config.json gives none
    stop_ids: tuple[int, ...] | None
    thinking: Literal["off", "on", "no switch", "ignored"] | None
    clock: bool | None  # whether the template asks for today's date
    bos: int | None  # beginning-of-sequence ids at the start of an input
    findings: tuple[str, ...]  # what a user of this model must know, one sentence each


@dataclass(frozen=True)
class _Found:
    """A model's files: the hashes of all, the small ones in `folder`."""

    pin: Pin
    model: Model
    folder: Path
    licence: str
    gated: str | None


def describe(model: str, revision: str = MAIN, pinned: Pinned | None = None) -> Description:
    """Look up a local folder or hub repository; ModelError if it cannot be pinned. pinned: None = inferred from its files."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if revision != MAIN:
            raise ConfigurationError(
                f"{model} is a folder on this machine; --revision goes with a hub repository: leave it out"
            )
        return _describe(_local(model, folder, pinned), pinned)
    if model.startswith(("/", "./", "../", "~")):
        raise ModelError(f"the model folder {folder} is not there; check the path, or name a hub repository (owner/name)")
    return _describe(_from_hub(model, look_up(model, revision), pinned), pinned)


def model_line(pin: Pin) -> str:
    """The line of a reader file that pins a model."""
    return yaml.safe_dump(
        {"model": {name: value for name, value in msgspec.to_builtins(pin).items() if value is not None}},
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    ).strip()


def _local(given: str, folder: Path, pinned: Pinned | None) -> _Found:
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    patterns = patterns_among(names, pinned)
    _check_weights(names, patterns, str(folder))
    model = fingerprint(folder, patterns)
    licence = licence_of(card_of(folder / "README.md")) if (folder / "README.md").is_file() else ""
    if not licence:
        licence = ", ".join(sorted(path.name for path in folder.iterdir() if fnmatch(path.name.upper(), "LICEN[CS]E*")))
    path = given if given.startswith("~") else str(folder.absolute())
    return _Found(Pin(folder=path, fingerprint=model.fingerprint), model, folder, licence, None)


def _from_hub(repository: str, listing: Listing, pinned: Pinned | None) -> _Found:
    """The files of a commit: weights hashed by the hub, the others downloaded and hashed here."""
    where = f"{repository} at {listing.commit}"
    names = [file.name for file in listing.files]
    patterns = patterns_among(names, pinned)
    _check_weights(names, patterns, where)
    wanted = sorted((file for file in listing.files if is_model_file(file.name, patterns)), key=lambda file: file.name)
    here = [file for file in wanted if file.sha256 is None or not _is_weights(file.name)]
    folder = download_small(repository, listing.commit, [file.name for file in here])
    files = []
    for file in wanted:
        sha256, size = file.sha256, file.size
        if file in here:
            sha256, size = file_digest(folder / file.name), (folder / file.name).stat().st_size
            if file.sha256 not in (None, sha256):
                raise ModelError(
                    f"{where}: {file.name} has sha256 {sha256}, the hub says {file.sha256}; remove {folder} and retry"
                )
        files.append(ModelFile(name=file.name, sha256=str(sha256), size=size))
    model = model_of(tuple(files), where)
    pin = Pin(repository=repository, revision=listing.commit, fingerprint=model.fingerprint)
    return _Found(pin, model, folder, listing.licence, listing.gated)


def _is_weights(name: str) -> bool:
    return name.endswith(WEIGHTS) or name == PICKLED


def _check_weights(names: list[str], patterns: Sequence[str], where: str) -> None:
    """ModelError unless there are weights in a supported format."""
    if any(is_model_file(name, patterns) and _is_weights(name) for name in names):
        return
    others = sorted(name for name in names if name.endswith(_OTHER_WEIGHTS))
    instead = f", only {', '.join(others)}" if others else ""
    raise ModelError(
        f"{where} cannot be used: it holds no {WEIGHTS} weights{instead}; pickled "
        "weights can run code and are refused: choose a repository with safetensors, or convert the weights"
    )


def _describe(found: _Found, pinned: Pinned | None) -> Description:
    findings: list[str] = []
    config = _config(found.folder)
    names = {file.name for file in found.model.files}
    of_retrieval = MODULES_FILE in names if pinned is None else not isinstance(pinned, Reader)
    tried = _of_encoder(found.folder) if of_retrieval else _try(found.folder, findings)
    if PICKLED in names and getattr(pinned, "weights", None) != PICKLED:
        findings.append(f"its weights are pickled: the file that configures it must say `weights: {PICKLED}`")
    if found.gated not in (None, "none"):
        findings.append(f"gated ({found.gated}): whoever repeats a run needs access of their own")
    return Description(
        model=found.pin,
        line=model_line(found.pin),
        licence=found.licence,
        gated=found.gated,
        weights=sum(file.size for file in found.model.files if _is_weights(file.name)),
        files=found.model.files,
        architecture=", ".join(config.get("architectures") or ()) or "not stated",
        dtype=str(_setting(config, "dtype") or _setting(config, "torch_dtype") or "not stated"),
        findings=tuple(dict.fromkeys(findings)),
        **tried,
    )


def _of_encoder(folder: Path) -> dict[str, Any]:
    """Fields of a retrieval model, which has no chat template: only the window is known."""
    try:
        window = int(json.loads((folder / "sentence_bert_config.json").read_bytes())["max_seq_length"])
    except (OSError, ValueError, KeyError, TypeError):
        window = -1
    return {"thinking": None, "clock": None, "bos": None, "stop_ids": None, "window": window}


def _try(folder: Path, findings: list[str]) -> dict[str, Any]:
    """Try out tokenizer and template; append remarks and errors to `findings`."""

    def attempt(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ModelError as error:
            findings.append(str(error))
            return None

    tokenizer = attempt(lambda: ChatTokenizer(folder, date="2000-01-01"))  # any date will do
    if tokenizer is None:
        return {"thinking": None, "clock": None, "bos": None, "stop_ids": None, "window": -1}
    thinking, clock, bos = map(attempt, (tokenizer.thinking_switch, tokenizer.asks_clock, tokenizer.leading_bos))
    if thinking == "ignored":
        findings.append(
            "the chat template writes thinking marks and ignores enable_thinking=False: a reader with `thinking: false` is "
            "refused, since its answers would be cut off"
        )
    if clock:
        findings.append("the chat template asks the clock: give `date: YYYY-MM-DD` in the reader file")
    if bos is not None and bos > 1:
        findings.append(f"an input opens with {bos} beginning-of-sequence tokens: the chat template writes too many")
    return {
        "thinking": thinking,
        "clock": clock,
        "bos": bos,
        "stop_ids": attempt(tokenizer.stop_ids),
        "window": tokenizer.window(),
    }


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _setting(config: dict[str, Any], name: str) -> Any:
    """A setting of the model, or else of its text part."""
    return config.get(name) or (config.get("text_config") or {}).get(name)
