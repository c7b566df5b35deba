"""Model pins: a repository with a 40-digit commit, a fingerprinted local folder, or the embedded model.

A branch or tag is refused, because it moves. Weights, tokenizer, chat template and configuration come from one folder,
hence from one commit; every file that can change an output is hashed.
"""

import re
from pathlib import Path
from typing import Any

from msgspec import UNSET

from offline.canonical import digest_of, file_digest
from offline.errors import ConfigurationError, ModelError
from offline.experiment import Pin, Reader
from offline.run_folder import MANIFEST
from readers.embedded import embedded_folder
from readers.records import Model, ModelFile
from readers.served import CODEC_FOLDER

_COMMIT = re.compile(r"[0-9a-f]{40}")
# The fields of a pin that name a model.
KINDS = ("embedded", "folder", "repository", "served")
# Files that make a model what it is. Pickled weights (.bin, .pt) are left out on purpose: safetensors only.
WEIGHTS = ".safetensors"
PATTERNS = ("*.json", f"*{WEIGHTS}", "*.jinja", "*.txt", "*.model", "*.tiktoken")


def check_pin(reader: Reader) -> None:
    """ConfigurationError or ModelError unless the pin names exactly one immutable thing."""
    pin = reader.model
    given = [name for name in KINDS if getattr(pin, name) not in (None, UNSET)]
    if len(given) != 1:
        raise ConfigurationError(
            f"reader {reader.name!r}: model gives {', '.join(given) or 'nothing'}; give one of {', '.join(KINDS)}"
        )
    if pin.served == "":
        raise ConfigurationError(f"reader {reader.name!r}: `served` is empty; give the name that the server lists the model by")
    if pin.repository is None:
        if pin.revision is not None:
            raise ConfigurationError(f"reader {reader.name!r}: a revision goes with a repository, not with {given[0]}")
    elif pin.revision is None or not _COMMIT.fullmatch(pin.revision):
        raise ModelError(
            f"reader {reader.name!r}: {pin.repository} at revision {pin.revision!r} is not pinned; branches and tags move: "
            "give the 40-digit commit"
        )


def locate(reader: Reader) -> Path:
    """The folder of a pinned model on this machine, downloaded at its commit if need be; ModelError if it is not to be had.

    A served model's files are not here: its folder is the one that says what its ids are.
    """
    check_pin(reader)
    pin = reader.model
    if pin.served is not UNSET:
        return CODEC_FOLDER
    if pin.embedded is not None:
        return embedded_folder(pin.embedded)
    if pin.folder is not None:
        folder = Path(pin.folder).expanduser()
        if not folder.is_dir():
            raise ModelError(f"reader {reader.name!r}: model folder {folder} is not there; check `folder` in its configuration")
        return folder
    return _download(reader, pin)


def _download(reader: Reader, pin: Pin) -> Path:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ConfigurationError(
            f"reader {reader.name!r}: models from the hub need a package that is not installed; "
            "run: pip install 'coldread[transformers]'"
        ) from error
    hub: Any = huggingface_hub
    try:
        return Path(hub.snapshot_download(pin.repository, revision=pin.revision, allow_patterns=list(PATTERNS)))
    except Exception as error:  # the hub client raises dozens of classes
        raise ModelError(
            f"reader {reader.name!r}: {pin.repository}@{pin.revision} could not be fetched: {error}; check the network and, "
            "for a gated model, that your account has access"
        ) from error


def model_files(folder: Path) -> list[Path]:
    """Every file of a folder (not below it) that makes a model what it is, by name. A run's manifest is none."""
    found = {path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.name != MANIFEST)


def tokenizer_files(folder: Path) -> list[Path]:
    """The model files that are not weights: tokenizer, chat template, configuration."""
    return [path for path in model_files(folder) if path.suffix != WEIGHTS]


def identify(reader: Reader, folder: Path) -> Model:
    """A reader's model as found in its folder; of a served one, a name is all that there is."""
    if reader.model.served is not UNSET:
        return Model(fingerprint=digest_of(("served", reader.model.served)), files=())
    return fingerprint(folder)


def fingerprint(folder: Path) -> Model:
    """Hash every model file of a folder; ModelError if it holds no model."""
    paths = model_files(folder)
    if not any(path.name == "config.json" for path in paths):
        raise ModelError(f"{folder} holds no config.json, so no model; check the reader's `folder`")
    files = tuple(ModelFile(name=p.name, sha256=file_digest(p), size=p.stat().st_size) for p in paths)
    return Model(fingerprint=digest_of(files), files=files)
