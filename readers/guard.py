"""The guard of a reader process: an audit hook that raises if the process opens what a reader must not see.

Forbidden are the run's folder and the raw rows, known by file name and size, or by the hub's cache name. This guards
against accidents (a plug-in that reads a label file, a library that walks a folder), not against malice: code that wants
to cheat can unhook itself by other means, and what it may know of the benchmark by heart nobody can check.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from offline.canonical import Record
from offline.errors import GuardError

_OPENING = {"open", "os.listdir", "os.scandir", "os.open", "shutil.copyfile", "os.rename", "os.link", "os.symlink"}


class Forbidden(Record, frozen=True):
    """What a reader process must not open: a folder by its real path, raw files by name and size, cache names."""

    folders: tuple[str, ...]
    files: tuple[tuple[str, int], ...] = ()
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
    sizes = dict(forbidden.files)

    def refuse(path: str) -> None:
        violations.append(path)
        check()

    def hook(event: str, arguments: Sequence[object]) -> None:
        if event not in _OPENING:
            return
        for argument in arguments[:2]:
            if isinstance(argument, (str, bytes, os.PathLike)):
                path = Path(os.path.realpath(os.fsdecode(argument)))
                if any(map(path.is_relative_to, folders)) or any(part in forbidden.names for part in path.parts):
                    refuse(str(path))
                if path.name in sizes and path.exists() and path.stat().st_size == sizes[path.name]:
                    refuse(str(path))

    sys.addaudithook(hook)
