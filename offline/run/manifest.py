"""Manifests: what a step wrote, from what, and whether the files still match.

A step's folder has one `manifest.json`: every file with size and sha256, the digests of its inputs, and its own digest.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from offline.canonical import Record, file_digest, read_record, self_digest
from offline.errors import AlteredError

MANIFEST = "manifest.json"
# Timings of a step, in a file that no manifest lists: they differ each time the same work is done.
SIDE = "timings.json"
# The remedy for a file that differs from what was written.
RESTORE = "restore it from a copy, or make the run again in another folder"


class FileEntry(Record, frozen=True):
    """A file of a step."""

    name: str  # relative to the step's folder, with forward slashes
    sha256: str
    size: int


class Manifest(Record, frozen=True):
    """The provenance record of a step."""

    step: str
    inputs: dict[str, str]  # digest by name
    files: tuple[FileEntry, ...]
    digest: str = ""  # of this record with an empty digest
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
    """The manifest of these files, with its own digest."""
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

    Folders are named relative to the step's, `.` being itself. beside: files and folders that are checked elsewhere. elsewhere:
    by folder, another one that holds its listed files, and maybe more; the step's may then lack them. may_lack: folders whose
    files may be missing in both places.
    """
    manifest = read_manifest(folder)
    listed = {entry.name: entry for entry in manifest.files}
    present = {
        name for name in files_below(folder) if name != MANIFEST and name not in beside and name.split("/")[0] not in beside
    }
    present -= {SIDE} - set(listed)
    supplied: set[str] = set()
    for inside, other in (elsewhere or {}).items():
        below = entries_below(listed, inside)
        _compare(other, below, {name for name in below if (other / name).is_file()})
        supplied |= {entry.name for entry in below.values()}
    spared = {entry.name for inside in may_lack for entry in entries_below(listed, inside).values()}
    _compare(folder, listed, present, may_lack=supplied | spared)
    return manifest


def entries_below(listed: Mapping[str, FileEntry], inside: str) -> dict[str, FileEntry]:
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
