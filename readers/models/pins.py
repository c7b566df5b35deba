"""Model pins: a repository with a 40-digit commit, a fingerprinted local folder, an embedded or a served model.

A branch or tag is refused, because it moves. Weights, tokenizer, chat template and configuration come from one folder, hence
from one commit; every file that can change an output is hashed.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import UNSET

from offline.canonical import digest_of, file_digest
from offline.config.models import Encoder, Reader, Reranker
from offline.errors import ConfigurationError, ModelError
from offline.run.manifest import MANIFEST
from offline.run.opened import OpenRun
from readers.embedded import embedded_folder
from readers.models.hub import download, download_small, look_up
from readers.models.served import CODEC_FOLDER
from readers.records import Model, ModelFile

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = ("embedded", "folder", "repository", "served")  # a pin names exactly one
# A model's files. Pickled weights (.bin, .pt) are left out on purpose: safetensors only.
WEIGHTS = ".safetensors"
PATTERNS = ("*.json", f"*{WEIGHTS}", "*.jinja", "*.txt", "*.model", "*.tiktoken")
# sentence-transformers' folders of further modules: 1_Pooling, 2_Normalize, 2_Dense, 1_LogitScore.
MODULES = ("[0-9]_*/*.json", f"[0-9]_*/*{WEIGHTS}")
MODULES_FILE = "modules.json"
PICKLED = "pytorch_model.bin"  # weights of an encoder whose commit has no others

Pinned = Reader | Encoder | Reranker


def kind_of(pinned: Pinned) -> str:
    """The kind of a pinned model, for messages: reader, encoder or reranker."""
    return type(pinned).__name__.lower()


def patterns_of(pinned: Pinned) -> tuple[str, ...]:
    """Name patterns of a model's files."""
    if isinstance(pinned, Reader):
        return PATTERNS
    # Pickled weights are read by torch's restricted unpickler, and only if the configuration names the file.
    pickled = (pinned.weights, f"[0-9]_*/{pinned.weights}") if pinned.weights.endswith(".bin") else ()
    return (*PATTERNS, *MODULES, *pickled)


def patterns_among(names: Sequence[str], pinned: Pinned | None = None) -> tuple[str, ...]:
    """The same for a model to be pinned, whose weights may be pickled if there are no others.

    Without a configuration, modules.json or a module's folder marks a model of sentence-transformers.
    """
    if isinstance(pinned, Reader) or (pinned is not None and pinned.weights == PICKLED):
        return patterns_of(pinned)
    if pinned is None and not any(name == MODULES_FILE or is_model_file(name, MODULES) for name in names):
        return PATTERNS
    pickled = [] if any(name.endswith(WEIGHTS) and "/" not in name for name in names) else [PICKLED, f"[0-9]_*/{PICKLED}"]
    return (*PATTERNS, *MODULES, *pickled)


def check_pin(reader: Pinned) -> None:
    """ConfigurationError or ModelError unless the pin names exactly one immutable model."""
    pin, whose = reader.model, f"{kind_of(reader)} {reader.name!r}"
    given = [name for name in _KINDS if getattr(pin, name) not in (None, UNSET)]
    if len(given) != 1:
        raise ConfigurationError(f"{whose}: model gives {', '.join(given) or 'nothing'}; give one of {', '.join(_KINDS)}")
    if pin.served is not UNSET and not isinstance(reader, Reader):
        raise ConfigurationError(f"{whose}: only a reader can be a served model; give a folder or a repository")
    if pin.served == "" or (pin.served is not UNSET and pin.fingerprint is not UNSET):
        raise ConfigurationError(
            f"{whose}: `served` is the name that a server lists the model by, and no files are here that a "
            "fingerprint could cover; give the name alone"
        )
    if pin.repository is None:
        if pin.revision is not None:
            raise ConfigurationError(f"{whose}: a revision goes with a repository, not with {given[0]}")
    elif pin.revision is None or not _COMMIT.fullmatch(pin.revision):
        raise ModelError(
            f"{whose}: {pin.repository} at revision {pin.revision!r} is not pinned; branches and tags move: "
            f"give the 40-digit commit, or let `coldread pin {shlex.quote(pin.repository)} --write FILE` fill it into the "
            f"{kind_of(reader)}'s file"
        )
    if pin.fingerprint is not UNSET and not _SHA256.fullmatch(pin.fingerprint):
        raise ModelError(f"{whose}: fingerprint {pin.fingerprint!r} is no sha256 of 64 digits; `coldread pin` prints it")


def locate(reader: Pinned, *, fetch: bool = True) -> Path:
    """The folder of a pinned model on this machine; ModelError if it is not available.

    A repository is downloaded at its commit if missing and `fetch`. A served model's folder only says what its ids are.
    """
    check_pin(reader)
    pin = reader.model
    if pin.embedded is not None:
        return embedded_folder(pin.embedded)
    if pin.folder is not None:
        folder = Path(pin.folder).expanduser()
        if not folder.is_dir():
            raise ModelError(
                f"{kind_of(reader)} {reader.name!r}: model folder {folder} is not there; check `folder` in its configuration"
            )
        return folder
    if pin.served is not UNSET:
        return CODEC_FOLDER
    whose = f"{kind_of(reader)} {reader.name!r}: "
    return download(str(pin.repository), str(pin.revision), list(patterns_of(reader)), whose=whose, fetch=fetch)


def model_for_step(run: OpenRun, step: str, inputs: Mapping[str, str], pinned: Pinned) -> tuple[Path, Model] | None:
    """Folder and files of the model that makes a step; None if the step was made from these inputs and can stay."""
    made = run.has(step) and inputs.items() <= run.need(step).inputs.items()
    if made and pinned.model.repository is not None:
        return None  # A commit does not change, and the inputs name it.
    try:
        folder = locate(pinned)
    except ModelError:
        if made:
            return None
        raise
    return folder, identify(pinned, folder)


@dataclass(frozen=True)
class Missing:
    """What a reader's repository lacks on this machine."""

    model: str
    size: int | None  # bytes to download; None if the hub cannot be asked
    tokenizer: Path | None  # folder of the small files, downloaded to count tokens
    note: str  # why the hub cannot be asked


def missing(reader: Pinned) -> Missing | None:
    """What reading would download, without downloading weights; None for a model that is on no hub."""
    repository, revision = reader.model.repository, reader.model.revision
    if repository is None or revision is None:
        return None
    name = f"{repository}@{revision}"
    try:
        files = [file for file in look_up(repository, revision).files if is_model_file(file.name, patterns_of(reader))]
        small = [file.name for file in files if not file.name.endswith((WEIGHTS, PICKLED))]
        return Missing(name, sum(file.size for file in files), download_small(repository, revision, small), "")
    except (ConfigurationError, ModelError) as error:
        return Missing(name, None, None, str(error))


@dataclass(frozen=True)
class AtHand:
    """What is available to count tokens with."""

    folder: Path | None  # with the tokenizer; None if not available
    lacking: Missing | None  # what reading would download; None for a model that is here, or on no hub
    note: str  # why there is no folder


def find_tokenizer(reader: Reader) -> AtHand:
    """A folder with a reader's tokenizer; of a missing repository only the small files are downloaded."""
    try:
        return AtHand(locate(reader, fetch=False), None, "")
    except ModelError as error:
        lacking = missing(reader)
        if lacking is None:
            return AtHand(None, None, str(error))
        return AtHand(lacking.tokenizer, lacking, lacking.note)


def tokenizer_of(reader: Reader) -> Path:
    """The folder of `find_tokenizer`; ModelError if there is none."""
    found = find_tokenizer(reader)
    if found.folder is None:
        raise ModelError(found.note if found.lacking is None else f"reader {reader.name!r}: {found.note}")
    return found.folder


def is_model_file(name: str, patterns: Sequence[str] = PATTERNS) -> bool:
    """Whether a file of this name belongs to a model; a run's manifest does not."""
    alike = (pattern for pattern in patterns if pattern.count("/") == name.count("/"))
    return name != MANIFEST and any(fnmatchcase(name, pattern) for pattern in alike)


def model_files(folder: Path, patterns: Sequence[str] = PATTERNS) -> list[Path]:
    """Every model file of a folder, by name."""
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if is_model_file(path.relative_to(folder).as_posix(), patterns))


def tokenizer_files(folder: Path) -> list[Path]:
    """The model files that are not weights: tokenizer, chat template, configuration."""
    return [path for path in model_files(folder) if path.suffix != WEIGHTS]


def fingerprint(folder: Path, patterns: Sequence[str] = PATTERNS) -> Model:
    """Hash every model file of a folder; ModelError if it holds no model."""
    files = tuple(
        ModelFile(name=path.relative_to(folder).as_posix(), sha256=file_digest(path), size=path.stat().st_size)
        for path in model_files(folder, patterns)
    )
    return model_of(files, str(folder))


def model_of(files: tuple[ModelFile, ...], where: str) -> Model:
    """The model made of these files, sorted by name; ModelError if config.json is not among them."""
    if not any(file.name == "config.json" for file in files):
        raise ModelError(f"{where} holds no config.json, so no model; check `model` in its configuration")
    return Model(fingerprint=digest_of(files), files=files)


def served_model(name: str) -> Model:
    """A model behind a server, known only by its name."""
    return Model(fingerprint=digest_of(("served", name)), files=())


def identify(reader: Pinned, folder: Path) -> Model:
    """Hash the model in a folder; ModelError if its pin expects another fingerprint."""
    if reader.model.served is not UNSET:
        return served_model(reader.model.served)
    model, expected = fingerprint(folder, patterns_of(reader)), reader.model.fingerprint
    if expected is not UNSET and model.fingerprint != expected:
        raise ModelError(
            f"{kind_of(reader)} {reader.name!r}: the model files in {folder} have the fingerprint {model.fingerprint}, the pin "
            f"expects {expected}: a file was changed, added or left out; restore the folder (a download: remove it, and it is "
            f"fetched again), or, if these files are meant, put what `coldread pin {shlex.quote(str(folder))}` prints into the "
            f"{kind_of(reader)}'s file"
        )
    return model
