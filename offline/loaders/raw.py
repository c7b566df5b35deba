"""Raw rows from a JSON or JSONL file (also gzipped), a Parquet file or the hub, one column selection at a time.

A caller names the columns it may see and their types. All others are skipped by the decoder (or not read from a column file)
and never become Python values, so offline/ cannot see an answer while eval/ reads the answers of the same rows.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from offline.canonical import file_digest, read_bytes
from offline.errors import ConfigurationError, DataError, StorageError, needs

# Column names and the types of their values.
Columns = Mapping[str, Any]

COMMIT = re.compile(r"[0-9a-f]{40}")
JSON_LINES = (".jsonl", ".ndjson")
# msgspec's errors for malformed JSON; the last one is for brackets nested too deeply.
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def contents(path: Path, data: bytes) -> tuple[str, bytes]:
    """The file's suffix without `.gz`, and its `data` unpacked, without a byte order mark; DataError for a broken gzip file."""
    name = path.name.lower()
    if name.endswith(".gz"):
        name = name.removesuffix(".gz")
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}: not a whole gzip file: {error}") from error
    return Path(name).suffix, data.removeprefix(codecs.BOM_UTF8)


def json_lines(path: Path, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The non-blank lines, each with its place for errors. Only \\n ends a line: a text may hold U+2028."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", line


@dataclass(frozen=True)
class RawRow:
    """One raw row."""

    where: str  # its name in errors
    values: dict[str, Any]  # the selected columns

    def need(self, column: str) -> Any:
        """A column's value; DataError if the row lacks it."""
        value = self.values[column]
        if value is None:
            raise DataError(f"{self.where}: the column {column!r} is missing")
        return value


@dataclass(frozen=True)
class RawSource:
    """The source of raw rows: a local file, or a hub data set at a commit."""

    path: Path | None = None
    repository: str = ""
    revision: str = ""
    split: str = ""

    def identity(self) -> dict[str, str]:
        """The source as a run records it: sha256 and size of the file, or repository, revision and split."""
        if self.path is None:
            return {"repository": self.repository, "revision": self.revision, "split": self.split}
        return {"sha256": file_digest(self.path), "size": str(self.path.stat().st_size)}

    def cache_folders(self) -> tuple[str, ...]:
        """Names of the folders where the hub client and the datasets library (in snake case) cache the data set."""
        owner, _, name = self.repository.rpartition("/")
        snake = re.sub(r"([a-z\d])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()
        return (f"datasets--{owner}--{name}", f"{owner}___{snake}", f"{owner}___{name}")

    def rows(self, columns: Columns) -> Iterator[RawRow]:
        """The rows in source order with these columns (None where absent); DataError names the row that does not fit."""
        if self.path is None:
            return self._hub_rows(columns)
        if self.path.suffix.lower() == ".parquet":
            return self._parquet_rows(columns)
        form, data = contents(self.path, read_bytes(self.path))
        if form in JSON_LINES:
            return (_select(line, columns, where) for where, line in json_lines(self.path, data))
        if form == ".json":
            return self._json_rows(columns, data)
        raise DataError(
            f"{self.path}: unknown file type {form!r}; give a .parquet file, or .json or .jsonl, as it is or with .gz"
        )

    def _json_rows(self, columns: Columns, data: bytes) -> Iterator[RawRow]:
        try:
            rows = msgspec.json.decode(data, type=list[msgspec.Raw])
        except _MALFORMED as error:
            raise DataError(f"{self.path}: not a JSON list of rows: {error}{_surrogate_hint(data, error)}") from error
        for number, row in enumerate(rows):
            yield _select(bytes(row), columns, f"{self.path}, row {number}")

    def _parquet_rows(self, columns: Columns) -> Iterator[RawRow]:
        assert self.path is not None
        with needs("hub", "a Parquet file"):
            from pyarrow import parquet
        try:
            present = [name for name in columns if name in parquet.read_schema(self.path).names]
            rows = parquet.read_table(self.path, columns=present).to_pylist()
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error}") from error
        except ValueError as error:  # pyarrow's own errors derive from it
            raise DataError(f"{self.path}: not a Parquet file that can be read: {error}") from error
        for number, row in enumerate(rows):
            yield _convert(row, columns, f"{self.path}, row {number}")

    def _hub_rows(self, columns: Columns) -> Iterator[RawRow]:
        if not COMMIT.fullmatch(self.revision):
            raise ConfigurationError(
                f"data revision {self.revision!r} of {self.repository} is not a 40-digit commit; branches and tags move"
            )
        with needs("hub", "data from the hub"):
            import datasets
        try:
            rows = datasets.load_dataset(self.repository, revision=self.revision, split=self.split)
        except Exception as error:  # the hub client raises dozens of classes
            raise DataError(
                f"{self.repository}@{self.revision[:12]}, split {self.split!r} could not be loaded: {error}; "
                "check the network, or give a local copy with --data PATH"
            ) from error
        rows = rows.select_columns([name for name in columns if name in rows.column_names])
        for number, row in enumerate(rows):
            yield _convert(row, columns, f"{self.repository}, row {number}")


@lru_cache(maxsize=32)
def _row_type(columns: tuple[tuple[str, Any], ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Row", [(name, kind | None, None) for name, kind in columns])


def _surrogate_hint(data: bytes, error: Exception) -> str:
    surrogate = b"\\ud" in data.lower() and not isinstance(error, msgspec.ValidationError)
    return "; a \\ud… escape without its pair (a lone surrogate) is not a character" if surrogate else ""


def _select(data: bytes, columns: Columns, where: str) -> RawRow:
    try:
        row = msgspec.json.decode(data, type=_row_type(tuple(columns.items())))
    except _MALFORMED as error:
        raise DataError(f"{where}: {error}{_surrogate_hint(data, error)}") from error
    return RawRow(where, {name: getattr(row, name) for name in columns})


def _convert(row: Mapping[str, Any], columns: Columns, where: str) -> RawRow:
    values = typed({name: row.get(name) for name in columns}, _row_type(tuple(columns.items())), where)
    return RawRow(where, {name: getattr(values, name) for name in columns})


def typed(value: Any, kind: Any, where: str) -> Any:
    """A column's value as `kind`; DataError names the row and what is wrong."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}") from error
