"""External predictions, read from JSON, JSON Lines or CSV, plain or gzipped.

Reading is strict: anything but one text per question is a DataError that names the line or object. Texts are kept verbatim,
even if empty; metrics judge them. Only predictions may be CSV: its reader decodes every column, and raw rows include answers.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offline.canonical import digest, read_bytes
from offline.errors import DataError
from offline.loaders.raw import JSON_LINES, contents, json_lines


@dataclass(frozen=True)
class Fields:
    """Field names of a prediction file."""

    id: str = "question"  # question id
    text: str = "text"
    by: str | None = None  # system; None: one system


@dataclass(frozen=True)
class Answer:
    """One prediction."""

    where: str  # its line or object
    question: str
    text: str
    system: str = ""  # empty if the file has only one


@dataclass(frozen=True)
class AnswerFile:
    """A file of predictions."""

    path: Path
    sha256: str  # of the stored bytes
    fields: Fields
    answers: tuple[Answer, ...]


def read_answers(path: Path, fields: Fields) -> AnswerFile:
    """All predictions in file order; DataError for the first invalid one."""
    data = read_bytes(path)
    answers = tuple(_answer(where, item, fields) for where, item in _items(path, data, fields))
    if not answers:
        raise DataError(f"{path}: no prediction in it")
    return AnswerFile(path, digest(data), fields, answers)


def _answer(where: str, item: Mapping[str, Any], fields: Fields) -> Answer:
    system = "" if fields.by is None else _text(where, item, fields.by, "--by")
    return Answer(where, _text(where, item, fields.id, "--id-field"), _text(where, item, fields.text, "--text-field"), system)


def _text(where: str, item: Mapping[str, Any], field: str, option: str) -> str:
    if field not in item:
        raise DataError(
            f"{where}: no field {field!r}; it has {', '.join(map(repr, item)) or 'none'}: name the right one with {option}"
        )
    value = item[field]
    if not isinstance(value, str):
        raise DataError(f"{where}: the field {field!r} must be a string, not {json.dumps(value)[:40]}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: the field {field!r} holds a lone surrogate, which is no character") from error
    return value


def _items(path: Path, data: bytes, fields: Fields) -> Iterator[tuple[str, Mapping[str, Any]]]:
    form, data = contents(path, data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8: {error.reason}; save the file as UTF-8") from error
    if form == ".json":
        return _json(path, text, fields)
    if form in JSON_LINES:
        return ((where, _object(where, _parsed(where, line.decode()))) for where, line in json_lines(path, data))
    if form == ".csv":
        return _csv(path, text)
    raise DataError(f"{path}: unknown file type; give .json, .jsonl or .csv, as it is or with .gz")


def _json(path: Path, text: str, fields: Fields) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Items of a list of objects, or of one object {id: text}."""
    value = _parsed(str(path), text)
    if isinstance(value, dict):
        if fields.by is not None:
            raise DataError(f"{path}: one object of ids and texts has no field {fields.by!r}; give --by with a list of objects")
        for question, answer in value.items():
            yield f"{path}, question {question!r}", {fields.id: question, fields.text: answer}
    elif isinstance(value, list):
        for number, item in enumerate(value, 1):
            where = f"{path}, object {number}"
            yield where, _object(where, item)
    else:
        raise DataError(f"{path}: neither a list of objects nor one object of ids and texts")


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: not an object with the fields of a prediction")
    return value


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise DataError(f"{where}{line}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON that can be read: {error}") from error


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _csv(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows under a header line; a quoted field may span lines."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    start = 1
    try:
        for row in rows:
            where, start = f"{path}, line {start}", rows.line_num + 1
            if not row:
                continue
            if not names:
                names = row
                if len(set(names)) < len(names):
                    raise DataError(f"{where}: a field name is given twice")
            elif len(row) != len(names):
                raise DataError(f"{where}: {len(row)} fields under {len(names)} names")
            else:
                yield where, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, line {start}: not CSV: {error}; JSON Lines hold any text") from error
