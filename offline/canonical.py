"""Canonical bytes: one value has one encoding, on every machine and under every hash seed.

JSON with sorted keys, UTF-8, no spaces, one record a line, every line ended. Numbers are integers; decimals travel as
strings. Reading is strict: bytes that are not exactly what this module writes are refused.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from offline.errors import AlteredError, ColdreadError, DataError, StorageError

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder(order="sorted")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records: frozen, unknown fields refused.

    A field added after a release defaults to UNSET and leaves no trace in the bytes until set: earlier bytes and digests stay
    valid.
    """


def encode(value: Any) -> bytes:
    """Canonical JSON of a record; DataError for text that UTF-8 cannot hold (a lone surrogate)."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as error:
        raise DataError(
            f"text {error.object[max(0, error.start - 20) : error.end]!r} holds a lone surrogate, which is not a character; "
            "fix the source file"
        ) from error


def digest(data: bytes) -> str:
    """Sha256 of bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """Sha256 of a record's canonical JSON."""
    return digest(encode(value))


def self_digest(record: msgspec.Struct, field: str) -> str:
    """The digest that a self-certifying record carries in `field`: that of the record with this field empty."""
    return digest_of(msgspec.structs.replace(record, **{field: ""}))


def file_digest(path: Path) -> str:
    """Sha256 of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def decode(data: bytes, kind: type[T], where: str) -> T:
    """One record from canonical bytes; AlteredError, naming `where`, if they are not canonical or not of this kind."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AlteredError(f"{where}: {error}; the file was altered or written by another version of coldread") from error
    if encode(value) != data:
        raise AlteredError(f"{where}: not in canonical form (key order, spacing or a duplicate key); the file was altered")
    return value


def read_bytes(path: Path) -> bytes:
    """The bytes of a file; StorageError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def read_record(path: Path, kind: type[T]) -> T:
    """The one record of a file that `write_record` wrote."""
    data = read_bytes(path)
    if not data.endswith(b"\n"):
        raise AlteredError(f"{path}: the last line is not ended; the file was altered")
    return decode(data[:-1], kind, str(path))


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of a canonical JSON Lines file, in order."""
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                if not line.endswith(b"\n"):
                    raise AlteredError(f"{path}, line {number}: the line is not ended; the file was altered")
                yield decode(line[:-1], kind, f"{path}, line {number}")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def compare_lines(path: Path, records: Sequence[Any], error: type[ColdreadError], what: Callable[[Any], str]) -> None:
    """Raise `error` unless a file holds the canonical lines of these records, byte for byte; `what` names a record."""
    *stored, rest = read_bytes(path).split(b"\n")
    for number, record in enumerate(records, 1):
        if number > len(stored) or stored[number - 1] != encode(record):
            raise error(f"{path}, line {number}: {what(record)} comes out differently when derived again")
    if len(stored) > len(records) or rest:
        raise error(f"{path}, line {len(records) + 1}: derived again, this line is not there")


# The remedy that a StorageError names by default.
_CURE = "free the disk or choose a writable --out, then run the same command again"


@contextlib.contextmanager
def storage(path: Path, cure: str = _CURE) -> Iterator[None]:
    """Turn an OSError of writing `path` into one StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; {cure}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, chunks: Iterable[bytes], cure: str = _CURE) -> None:
    """Write a file atomically (temporary file, fsync, rename, fsync of the folder); a StorageError ends with `cure`."""
    with storage(path, cure):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for chunk in chunks:
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_record(path: Path, value: Any, cure: str = _CURE) -> None:
    """Write one record as one canonical line, atomically; `cure` as in `write_bytes`."""
    write_bytes(path, [encode(value) + b"\n"], cure)


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write records as canonical JSON Lines, atomically."""
    write_bytes(path, (encode(value) + b"\n" for value in values))
