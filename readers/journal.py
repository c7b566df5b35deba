"""The journal of an unfinished read: one checked line per finished batch, synced before the next one starts.

A killed process loses at most its current batch. An unfinished last line is dropped; any other damage is an AlteredError.
"""

import os
from pathlib import Path

import msgspec

from offline.canonical import decode, encode, read_bytes, self_digest, storage
from offline.errors import AlteredError
from readers.records import JournalEntry


class Journal:
    """Entries by batch digest, and the file they are appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, JournalEntry] = {}
        self.dropped_bytes = 0
        self._whole = 0
        if path.exists():
            self._read(read_bytes(path))

    def _read(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        self.dropped_bytes = len(data) - end
        self._whole = end
        for number, line in enumerate(data[:end].split(b"\n")[:-1], 1):
            where = f"{self.path}, line {number}"
            entry = decode(line, JournalEntry, where)
            if self_digest(entry, "check") != entry.check:
                raise AlteredError(f"{where}: its check does not fit its content; the file was altered")
            self.entries[entry.batch] = entry

    def append(self, entry: JournalEntry) -> None:
        """Append one entry and force it to disk."""
        checked = msgspec.structs.replace(entry, check=self_digest(entry, "check"))
        with storage(self.path), self.path.open("ab") as stream:
            # Drop an unfinished line, left by a kill or a full disk.
            stream.truncate(self._whole)
            stream.write(encode(checked) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
            self._whole = stream.tell()
        self.entries[entry.batch] = checked
