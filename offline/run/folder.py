"""The run folder: steps, manifests, and the rule that nothing written is silently changed.

Each step owns a folder with a manifest, written beside its place and renamed into it, so it is there whole or not at all.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from offline.canonical import (
    digest,
    read_bytes,
    storage,
    write_bytes,
    write_record,
)
from offline.config.experiment import ResolvedExperiment
from offline.config.yaml import dump_yaml, parse_yaml
from offline.errors import AlteredError, ConfigurationError, StateError
from offline.run.manifest import (
    MANIFEST,
    SIDE,
    Manifest,
    entries_below,
    files_below,
    make_manifest,
    read_manifest,
    verify_folder,
)

EXPERIMENT = "experiment.yaml"
# The page that `coldread report` makes from the run; optional, covered by no step and no seal.
REPORT = "report.html"
# The command that runs each step.
COMMANDS = {
    "data": "load",
    "labels": "load",
    "extraction": "extract",
    "vectors": "encode",
    "reranked": "encode",
    "packets": "freeze",
    "scores": "score",
}
# The folders at the top of a run.
STEP_FOLDERS = ("data", "labels", "extraction", "vectors", "reranked", "packets", "reads", "scores")
# Tokenizer folders. A run may be published without their files, which only encoding and decoding token ids needs.
TOKENIZERS = frozenset({"extraction/tokenizer", "reads/*/tokenizer"})


class RunFolder:
    """One run on disk.

    elsewhere: for folders that the run was published without, by name (`reads/NAME/tokenizer`), the place of their files.
    may_lack: folders whose files may be missing (`reads/*/tokenizer`); those that are there must match.
    """

    def __init__(
        self, path: Path, elsewhere: Mapping[str, Path] | None = None, *, may_lack: Collection[str] = frozenset()
    ) -> None:
        self.path = path
        self.elsewhere = dict(elsewhere or {})
        self.may_lack = may_lack

    def step_folder(self, step: str) -> Path:
        """The folder of a step, such as `packets` or `reads/NAME/requests`."""
        return self.path / step

    def files_of(self, folder: str) -> Path:
        """The place of a folder's files, in the run or elsewhere."""
        return self.elsewhere.get(folder, self.path / folder)

    def verify(self, folder: str, *, beside: tuple[str, ...] = ()) -> Manifest:
        """Check every file of a step, wherever it lies, and return its manifest; AlteredError names the first that differs."""
        elsewhere = {inside: other for name, other in self.elsewhere.items() if (inside := _inside(name, folder))}
        may_lack = [inside for name in self.may_lack if (inside := _inside(name, folder))]
        return verify_folder(self.path / folder, beside=beside, elsewhere=elsewhere, may_lack=may_lack)

    def lacks(self, folder: str) -> list[Path]:
        """Files of a folder that lie neither in the run nor elsewhere."""
        place, other = self.path / folder, self.files_of(folder)
        owner = place if (place / MANIFEST).is_file() else place.parent
        below = entries_below({entry.name: entry for entry in read_manifest(owner).files}, place.relative_to(owner).as_posix())
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
        """Clean up after a killed process, under the lock: temporary files and half-made folders."""
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
        """Make the folder, True if it is new; StateError for a folder with other content."""
        with storage(self.path):
            there = self.path.is_dir()
            strangers = [path for path in self.path.glob("*") if not path.name.startswith(f".{EXPERIMENT}.")]
            if strangers and not (self.path / EXPERIMENT).exists():
                raise StateError(f"{self.path} is not empty and not a run; choose another --out")
            self.path.mkdir(parents=True, exist_ok=True)
        return not there

    def create(self, experiment: ResolvedExperiment) -> None:
        """Write experiment.yaml, under the caller's lock; StateError if the run is sealed with another experiment."""
        self.make()
        path = self.path / EXPERIMENT
        content = _experiment_bytes(experiment)
        if path.exists():
            if read_bytes(path) == content:
                return
            self.read_experiment()
            if sealed := self.sealed_readers():
                raise StateError(
                    f"{self.path} is sealed (reader {', '.join(sealed)}) and holds another configuration; a sealed run is "
                    "never changed: choose another --out"
                )
        write_bytes(path, [content])

    def read_experiment(self) -> ResolvedExperiment:
        """The run's resolved experiment; AlteredError if the file is not exactly what was written."""
        path = self.path / EXPERIMENT
        if not path.is_file():
            raise StateError(f"{self.path} is no run: it has no {EXPERIMENT}; start one with `coldread run EXPERIMENT.yaml`")
        experiment = _experiment_of(read_bytes(path))
        if experiment is None:
            raise AlteredError(f"{path}: differs from what was written; restore it, or start another run")
        return experiment

    def experiment_digest(self) -> str:
        """The digest by which a seal records the experiment."""
        return digest(_experiment_bytes(self.read_experiment()))

    def sealed_readers(self) -> list[str]:
        """Names of the sealed readers."""
        return sorted(path.parent.name for path in self.path.glob("reads/*/seal.json"))

    def has(self, step: str) -> bool:
        """True if a step's folder is there."""
        return self.step_folder(step).is_dir()

    def need(self, step: str) -> Manifest:
        """The verified manifest of a step that must have run; StateError says which command runs it."""
        if not self.has(step):
            self.read_experiment()  # a folder that is no run is told so
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

        An existing folder is verified first: an altered one is refused, not overwritten. keep: files that the new folder
        inherits from the old one. downstream: the step comes after the seals, so no seal freezes it.
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
        """AlteredError for anything in the top folder that is neither a step's nor the report."""
        for path in sorted(self.path.iterdir()):
            known = path.is_dir() if path.name in STEP_FOLDERS else path.is_file() and path.name in (EXPERIMENT, REPORT)
            if path.is_symlink() or not known:
                raise AlteredError(f"{path}: not part of a run; remove it")


def _inside(name: str, folder: str) -> str | None:
    """A run folder's name, in which `*` stands for one part, relative to a step's folder; None if it lies outside."""
    parts, outer = PurePosixPath(name).parts, PurePosixPath(folder).parts
    if len(parts) < len(outer) or any(part not in ("*", own) for part, own in zip(parts, outer, strict=False)):
        return None
    return PurePosixPath(*parts[len(outer) :]).as_posix()


def _experiment_of(data: bytes) -> ResolvedExperiment | None:
    """The experiment that these bytes hold; None unless they are its stored form."""
    try:
        experiment = parse_yaml(data.decode(), ResolvedExperiment, EXPERIMENT)
    except (ConfigurationError, UnicodeDecodeError):
        return None
    return experiment if _experiment_bytes(experiment) == data else None


def _experiment_bytes(experiment: ResolvedExperiment) -> bytes:
    """The YAML after a comment with its sha256: one file, written atomically, that proves itself."""
    content = dump_yaml(experiment)
    return f"# coldread resolved experiment, format 1, sha256 {digest(content)}\n".encode() + content
