"""The guard of a reader process: an audit hook that raises if the process opens a forbidden path.

Forbidden are the run's folder, the hub's cache of the raw rows, and copies of them anywhere (known by size and sha256). This
guards against accidents (a plug-in that reads a label file, a library that walks a folder), not against malice: code that wants
to cheat finds other means, and memorised benchmarks cannot be detected.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from offline.canonical import Record, file_digest
from offline.errors import GuardError

# Audit events that open or move files, and how many of their arguments are paths.
_PATHS = {"open": 1, "os.listdir": 1, "os.scandir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2}


class Forbidden(Record, frozen=True):
    """What a reader process must not open."""

    folders: tuple[str, ...]  # by real path
    files: tuple[tuple[int, str], ...] = ()  # raw rows, by size and sha256
    names: tuple[str, ...] = ()  # of cache folders


# Forbidden paths that this process tried to open, in order, even if a caller swallowed the GuardError.
violations: list[str] = []


def check() -> None:
    """GuardError if this process has tried to open a forbidden path since the hook was installed."""
    if violations:
        raise GuardError(f"a reader process tried to open {violations[0]}; readers are given token ids and nothing else")


def forbid(forbidden: Forbidden) -> None:
    """Install the hook, which cannot be removed. It raises GuardError in whatever opens a forbidden path."""
    folders = [Path(folder).resolve() for folder in forbidden.folders]
    sizes = {size for size, _ in forbidden.files}
    hashing = False

    def is_forbidden(path: Path) -> bool:
        nonlocal hashing
        if any(map(path.is_relative_to, folders)) or any(part in forbidden.names for part in path.parts):
            return True
        if not sizes or not path.is_file() or path.stat().st_size not in sizes:
            return False
        hashing = True  # hashing opens the file, which comes back here
        try:
            return (path.stat().st_size, file_digest(path)) in forbidden.files
        finally:
            hashing = False

    def hook(event: str, arguments: Sequence[object]) -> None:
        if event not in _PATHS or hashing:
            return
        for argument in arguments[: _PATHS[event]]:
            if isinstance(argument, (str, bytes, os.PathLike)):
                path = Path(os.path.realpath(os.fsdecode(argument)))
                if is_forbidden(path):
                    violations.append(str(path))
                    check()

    sys.addaudithook(hook)
