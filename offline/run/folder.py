"""The run folder: steps, manifests, and the rule that nothing written is silently changed.

Each step owns one folder and one `manifest.json`, which lists every file with size and sha256, the digests of its
inputs, and its own digest. A step is written beside its place and renamed into it, so it is there whole or not at all.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from offline.canonical import (
    Record,
    digest,
    file_digest,
    read_bytes,
    read_record,
    self_digest,
    storage,
    write_bytes,
    write_record,
)
from offline.config.experiment import ResolvedExperiment
from offline.config.yaml import dump_yaml, parse_yaml
from offline.errors import AlteredError, ConfigurationError, StateError

MANIFEST = "manifest.json"
EXPERIMENT = "experiment.yaml"
# A page made from the run, which no step and no seal covers: it may be there or not, and is made again by `coldread report`.
REPORT = "report.html"
# What a step took, in a file that no manifest lists: the same work takes another time each time it is done.
SIDE = "timings.json"
# What to do about a file that is not what was written.
RESTORE = "restore it from a copy, or make the run again in another folder"
# The command that runs a step.
COMMANDS = {
    "data": "load",
    "labels": "load",
    "extraction": "extract",
    "vectors": "encode",
    "reranked": "encode",
    "packets": "freeze",
    "scores": "score",
}
# What may stand in a run's top folder.
STEP_FOLDERS = ("data", "labels", "extraction", "vectors", "reranked", "packets", "reads", "scores")
# Folders of tokenizers. A run may be published without their files: only what makes token ids, or text out of them, needs any.
TOKENIZERS = frozenset({"extraction/tokenizer", "reads/*/tokenizer"})


class FileEntry(Record, frozen=True):
    """A file of a step; `name` is relative to the step's folder, with forward slashes."""

    name: str
    sha256: str
    size: int


class Manifest(Record, frozen=True):
    """What a step wrote, from what. `digest` is that of this record with an empty digest."""

    step: str
    inputs: dict[str, str]
    files: tuple[FileEntry, ...]
    digest: str = ""
    format: Literal[1] = 1


def files_below(folder: Path) -> list[str]:
    """Names of all files below a folder, sorted; AlteredError for anything that is neither file nor folder."""
    names = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise AlteredError(f"{path}: neither a file nor a folder; remove it")
        if path.is_file():
            names.append(path.relative_to(folder).as_posix())
        elif not any(path.iterdir()):
            raise AlteredError(f"{path}: an empty folder that no manifest knows; remove it")
    return names


def make_manifest(folder: Path, step: str, inputs: Mapping[str, str], names: list[str]) -> Manifest:
    """The manifest of these files, its own digest filled in."""
    entries = tuple(
        FileEntry(name=name, sha256=file_digest(folder / name), size=(folder / name).stat().st_size) for name in names
    )
    manifest = Manifest(step=step, inputs=dict(inputs), files=entries)
    return msgspec.structs.replace(manifest, digest=self_digest(manifest, "digest"))


def read_manifest(folder: Path) -> Manifest:
    """A folder's manifest; AlteredError if its digest does not fit its content."""
    path = folder / MANIFEST
    if not path.is_file():
        raise AlteredError(f"{path} is missing; the folder is not whole")
    manifest = read_record(path, Manifest)
    if self_digest(manifest, "digest") != manifest.digest:
        raise AlteredError(f"{path}: its digest does not fit its content; the file was altered")
    return manifest


def check_files(folder: Path, expected: Iterable[str]) -> None:
    """AlteredError unless a step's manifest lists exactly the files that the step writes."""
    listed = {entry.name for entry in read_manifest(folder).files}
    for name in sorted(listed ^ {*expected}):
        what = "listed, but no file that this step writes" if name in listed else "this step writes it, but it is not listed"
        raise AlteredError(f"{folder / MANIFEST}: {name}: {what}; the folder was altered")


def verify_folder(
    folder: Path,
    *,
    beside: tuple[str, ...] = (),
    elsewhere: Mapping[str, Path] | None = None,
    may_lack: Collection[str] = (),
) -> Manifest:
    """Check every file of a step against its manifest and return it; AlteredError names the first one that differs.

    `beside`: names of files and folders in it that are checked elsewhere. `elsewhere`: for a folder in it (`.`: itself),
    another that holds the files listed below it (it may hold more), of which this one may then lack some or all. `may_lack`:
    folders in it (`.`: itself) of which any file may be missing, wherever it would lie.
    """
    manifest = read_manifest(folder)
    listed = {entry.name: entry for entry in manifest.files}
    present = {
        name for name in files_below(folder) if name != MANIFEST and name not in beside and name.split("/")[0] not in beside
    }
    present -= {SIDE} - set(listed)
    supplied: set[str] = set()
    for inside, other in (elsewhere or {}).items():
        below = _below(listed, inside)
        _compare(other, below, {name for name in below if (other / name).is_file()})
        supplied |= {entry.name for entry in below.values()}
    spared = {entry.name for inside in may_lack for entry in _below(listed, inside).values()}
    _compare(folder, listed, present, may_lack=supplied | spared)
    return manifest


def _below(listed: Mapping[str, FileEntry], inside: str) -> dict[str, FileEntry]:
    """The entries below a folder of the step, by their names in it."""
    paths = {PurePosixPath(name): entry for name, entry in listed.items()}
    return {path.relative_to(inside).as_posix(): entry for path, entry in paths.items() if path.is_relative_to(inside)}


def _compare(folder: Path, listed: Mapping[str, FileEntry], present: set[str], *, may_lack: Set[str] = frozenset()) -> None:
    for name in sorted(present | (set(listed) - may_lack)):
        path = folder / name
        if name not in listed:
            raise AlteredError(f"{path}: a file that the manifest does not list; remove it")
        if name not in present:
            raise AlteredError(f"{path} is missing, but the manifest lists it; {RESTORE}")
        if path.stat().st_size != listed[name].size or file_digest(path) != listed[name].sha256:
            raise AlteredError(
                f"{path}: differs from what was written (manifest sha256 {listed[name].sha256[:12]}…); {RESTORE}"
            )


class RunFolder:
    """One run on disk.

    elsewhere: for folders that the run was published without, by their names in it (`reads/NAME/tokenizer`), where their
    files lie. may_lack: folders whose files may be missing (`reads/*/tokenizer`); those that are there must match.
    """

    def __init__(
        self, path: Path, elsewhere: Mapping[str, Path] | None = None, *, may_lack: Collection[str] = frozenset()
    ) -> None:
        self.path = path
        self.elsewhere = dict(elsewhere or {})
        self.may_lack = may_lack

    def step_folder(self, step: str) -> Path:
        """The folder of a step, `packets` or `reads/NAME/requests`."""
        return self.path / step

    def files_of(self, folder: str) -> Path:
        """Where the files of a folder lie, in the run or elsewhere."""
        return self.elsewhere.get(folder, self.path / folder)

    def verify(self, folder: str, *, beside: tuple[str, ...] = ()) -> Manifest:
        """Check every file of a step, wherever it lies, and return its manifest; AlteredError names the first that differs."""
        elsewhere = {inside: other for name, other in self.elsewhere.items() if (inside := _inside(name, folder))}
        may_lack = [inside for name in self.may_lack if (inside := _inside(name, folder))]
        return verify_folder(self.path / folder, beside=beside, elsewhere=elsewhere, may_lack=may_lack)

    def lacks(self, folder: str) -> list[Path]:
        """Files of a folder that the run was published without and that do not lie elsewhere either."""
        place, other = self.path / folder, self.files_of(folder)
        owner = place if (place / MANIFEST).is_file() else place.parent
        below = _below({entry.name: entry for entry in read_manifest(owner).files}, place.relative_to(owner).as_posix())
        return [place / name for name in below if not (place / name).is_file() and not (other / name).is_file()]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for one process; StateError if another one has it. The lock is on the folder and leaves no file."""
        if not self.path.is_dir():
            raise StateError(f"{self.path} is no run folder; start one with `coldread run EXPERIMENT.yaml --out {self.path}`")
        with storage(self.path):
            descriptor = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StateError(f"{self.path} is in use by another coldread process; wait for it to end") from error
            with storage(self.path):
                self._clear_leftovers()
            yield
        finally:
            os.close(descriptor)

    def _clear_leftovers(self) -> None:
        """Under the lock, put away what a killed process left: its temporary files and half-made folders."""
        if not (self.path / EXPERIMENT).is_file():
            return
        for folder in (self.path, self.path / "labels", self.path / "reads", *self.path.glob("reads/*")):
            for path in folder.glob(".*") if folder.is_dir() else ():
                place = path.with_name(path.name.removesuffix(".old")[1:])
                if path.name.endswith(".old") and not place.exists():
                    path.rename(place)
                elif path.name.endswith(".old") or (path.name.endswith(".partial") and path.is_dir()):
                    shutil.rmtree(path)
                elif path.name.endswith(".partial"):
                    path.unlink()

    def make(self) -> bool:
        """Make the folder, True if it was not there; StateError for one that holds something and is no run."""
        with storage(self.path):
            there = self.path.is_dir()
            strangers = [path for path in self.path.glob("*") if not path.name.startswith(f".{EXPERIMENT}.")]
            if strangers and not (self.path / EXPERIMENT).exists():
                raise StateError(f"{self.path} is not empty and not a run; choose another --out")
            self.path.mkdir(parents=True, exist_ok=True)
        return not there

    def create(self, experiment: ResolvedExperiment) -> None:
        """Write experiment.yaml; the caller holds the lock. A sealed run keeps its experiment: StateError for another one."""
        self.make()
        path = self.path / EXPERIMENT
        content = _experiment_bytes(experiment)
        if path.exists():
            if read_bytes(path) == content:
                return
            self.experiment()
            if sealed := self.sealed_readers():
                raise StateError(
                    f"{self.path} is sealed (reader {', '.join(sealed)}) and holds another configuration; a sealed run is "
                    "never changed: choose another --out"
                )
        write_bytes(path, [content])

    def experiment(self) -> ResolvedExperiment:
        """The run's resolved experiment; AlteredError if the file is not exactly what was written."""
        path = self.path / EXPERIMENT
        if not path.is_file():
            raise StateError(f"{self.path} is no run: it has no {EXPERIMENT}; start one with `coldread run EXPERIMENT.yaml`")
        experiment = _experiment_of(read_bytes(path))
        if experiment is None:
            raise AlteredError(f"{path}: differs from what was written; restore it, or start another run")
        return experiment

    def experiment_digest(self) -> str:
        """What a seal records of the experiment."""
        return digest(_experiment_bytes(self.experiment()))

    def sealed_readers(self) -> list[str]:
        """Names of the readers that have a seal."""
        return sorted(path.parent.name for path in self.path.glob("reads/*/seal.json"))

    def has(self, step: str) -> bool:
        """Whether a step's folder is there."""
        return self.step_folder(step).is_dir()

    def need(self, step: str) -> Manifest:
        """The verified manifest of a step that must have run; StateError says which command runs it."""
        if not self.has(step):
            raise StateError(
                f"{self.path}: the step {step!r} has not run; run `coldread {COMMANDS.get(step, 'read')} {self.path}` first"
            )
        return self.verify(step, beside=("ledger.jsonl",) if step == "labels" else ())

    def step(
        self,
        step: str,
        inputs: Mapping[str, str],
        write: Callable[[Path], None],
        *,
        keep: tuple[str, ...] = (),
        downstream: bool = False,
    ) -> bool:
        """Run a step unless it is up to date; True if it was written.

        An existing folder is verified first: an altered one is refused, not overwritten. `keep` names files of the old
        folder that the new one inherits. `downstream`: the step lies after the seals, so a seal does not freeze it.
        """
        folder = self.step_folder(step)
        partial, old = (folder.parent / f".{folder.name}.{word}" for word in ("partial", "old"))
        with storage(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            if verify_folder(folder, beside=keep).inputs == dict(inputs):
                return False
            # A reader's own folder is frozen by its own seal, everything upstream by any.
            parts = Path(step).parts
            frozen_by = [name for name in self.sealed_readers() if parts[0] != "reads" or name == parts[1]]
            if frozen_by and not downstream:
                raise StateError(
                    f"{folder}: the inputs of {step!r} changed, but {', '.join(frozen_by)} is sealed; a sealed run is "
                    "never changed: choose another --out"
                )
        try:
            with storage(folder):
                partial.mkdir()
                write(partial)
                for name in keep:
                    if (folder / name).exists():
                        shutil.copy2(folder / name, partial / name)
                names = [name for name in files_below(partial) if name not in (*keep, SIDE)]
                write_record(partial / MANIFEST, make_manifest(partial, step, inputs, names))
                if folder.exists():
                    folder.rename(old)
                partial.rename(folder)
                shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise
        return True

    def verify_top(self) -> None:
        """AlteredError for anything in the top folder that no step put there, but for the report."""
        for path in sorted(self.path.iterdir()):
            known = path.is_dir() if path.name in STEP_FOLDERS else path.is_file() and path.name in (EXPERIMENT, REPORT)
            if path.is_symlink() or not known:
                raise AlteredError(f"{path}: not part of a run; remove it")


def _inside(name: str, folder: str) -> str | None:
    """A folder of a run, `*` in its name standing for one part, as it is called in a step's folder; None if it lies outside."""
    parts, outer = PurePosixPath(name).parts, PurePosixPath(folder).parts
    if len(parts) < len(outer) or any(part not in ("*", own) for part, own in zip(parts, outer, strict=False)):
        return None
    return PurePosixPath(*parts[len(outer) :]).as_posix()


@lru_cache(maxsize=4)
def _experiment_of(data: bytes) -> ResolvedExperiment | None:
    """What these bytes write, None if it is not written so. Remembered: every step asks, and YAML is slow to read and write."""
    try:
        experiment = parse_yaml(data.decode(), ResolvedExperiment, EXPERIMENT)
    except (ConfigurationError, UnicodeDecodeError):
        return None
    return experiment if _experiment_bytes(experiment) == data else None


def _experiment_bytes(experiment: ResolvedExperiment) -> bytes:
    """The YAML, opened by a comment that carries its sha256: one file, written atomically, that proves itself."""
    content = dump_yaml(experiment)
    return f"# coldread resolved experiment, format 1, sha256 {digest(content)}\n".encode() + content
