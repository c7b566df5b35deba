"""The user's content-addressed cache of call answers.

The unit is a batch, since greedy output can depend on what shares one. The cache key is the digest of its calls' digests, each
of which covers input ids, decoding, stop ids and the fingerprint of model, engine and settings. So an interrupted algorithm
resumes, repeated work is free, and other models or prompts never match. A batch with a failure is not kept: a retry may
succeed.
"""

import os
from pathlib import Path

import msgspec

from offline.canonical import read_record, self_digest, write_record
from offline.errors import AlteredError, StorageError
from readers.records import JournalEntry


def cache_folder() -> Path:
    """The cache folder: `$COLDREAD_CALLS`, or one in the user's cache."""
    given = os.environ.get("COLDREAD_CALLS")
    return Path(given) if given else Path.home() / ".cache" / "coldread" / "calls"


# What to do about a corrupt file of the cache, and about a folder that cannot be written.
_REMOVE = "remove it, then go on"
_ELSEWHERE = "answers are kept there: let COLDREAD_CALLS name a folder that can be written"


class Cache:
    """Finished batches on disk, one checked file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, batch: str) -> Path:
        return self.folder / batch[:2] / f"{batch}.json"

    def get(self, batch: str, size: int) -> JournalEntry | None:
        """A finished batch of `size` calls, None if there is none; AlteredError or StorageError for a corrupt file.

        Such a file is never overwritten: a later version may have made it, and a bad disk should be noticed.
        """
        path = self._path(batch)
        try:
            entry = read_record(path, JournalEntry)
        except (AlteredError, StorageError) as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise type(error)(f"{error}: {_REMOVE}") from error
        if self_digest(entry, "check") != entry.check or entry.batch != batch or len(entry.outputs) != size:
            raise AlteredError(f"{path}: its check does not fit its content; the file was altered: {_REMOVE}")
        return entry

    def put(self, entry: JournalEntry) -> None:
        """Keep a finished batch."""
        path = self._path(entry.batch)
        self.open(path.parent)
        write_record(path, msgspec.structs.replace(entry, check=self_digest(entry, "check")), _ELSEWHERE)

    def open(self, folder: Path | None = None) -> None:
        """Make the cache folder, or one in it; StorageError if it cannot be written."""
        folder = folder or self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            why = None if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written"
        except OSError as error:
            why = error.strerror
        if why is not None:
            raise StorageError(f"{folder}: {why}; {_ELSEWHERE}")
