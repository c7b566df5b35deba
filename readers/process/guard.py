"""The guard of a reader process: an audit hook that raises if the process opens what a reader must not see.

Forbidden are the run's folder and the raw rows, wherever a copy of them lies (they are known by size and sha256), or the
hub's cache of them. This guards against accidents (a plug-in that reads a label file, a library that walks a folder), not
against malice: code that wants to cheat finds other means, and what it knows of a benchmark by heart nobody can check.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from offline.canonical import Record, file_digest
from offline.errors import GuardError

# Audit events that open or move something, and how many of their arguments are paths.
_PATHS = {"open": 1, "os.listdir": 1, "os.scandir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2}


class Forbidden(Record, frozen=True):
    """What a reader process must not open: a folder by its real path, raw files by size and sha256, cache names."""

    folders: tuple[str, ...]
    files: tuple[tuple[int, str], ...] = ()
    names: tuple[str, ...] = ()


# What this process tried to open, in order. A caller that swallows the GuardError is found out here.
violations: list[str] = []


def check() -> None:
    """GuardError if anything in this process tried to open a forbidden path since the hook was installed."""
    if violations:
        raise GuardError(f"a reader process tried to open {violations[0]}; readers are given token ids and nothing else")


def forbid(forbidden: Forbidden) -> None:
    """Install the hook; it cannot be removed. GuardError is raised inside whatever tries to open a forbidden path."""
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
