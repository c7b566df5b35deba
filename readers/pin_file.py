"""Write a pin into a reader file: edit its `model` mapping in place and keep everything else, comments included."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from offline.canonical import read_bytes, write_bytes
from offline.config.models import Encoder, Pin, Reader, Reranker
from offline.config.yaml import load_yaml, parse_yaml
from offline.errors import ConfigurationError
from readers.describe import model_line
from readers.models.pins import Pinned


def _kind(path: Path) -> type[Pinned]:
    """What a file configures: only a reader has an engine, only a reranker an instruction or a template."""
    keys = load_yaml(path, dict[str, Any])
    if "engine" in keys:
        return Reader
    return Reranker if {"instruction", "template"} & set(keys) or path.resolve().parent.name == "rerankers" else Encoder


def reader_that_names(model: str, path: Path) -> Pinned:
    """The reader, encoder or reranker of a file; ConfigurationError unless its model is this repository or folder."""
    reader = load_yaml(path, _kind(path))
    pin = reader.model
    if pin.repository != model and not (pin.folder and _real(pin.folder) == _real(model)):
        raise ConfigurationError(
            f"{path}: its model is {pin.repository or pin.folder or 'of another kind'}, not {model}; name another file, or "
            "change its `model` first"
        )
    return reader


def _real(folder: str) -> Path:
    return Path(folder).expanduser().resolve()


def write_pin(path: Path, pin: Pin) -> None:
    """Fill a pin's revision and fingerprint into the file that names its model.

    ConfigurationError, and no change, unless the edited file parses as the same reader with only these two filled in.
    """
    reader = reader_that_names(str(pin.repository or pin.folder), path)
    expected = msgspec.structs.replace(
        reader, model=msgspec.structs.replace(reader.model, revision=pin.revision, fingerprint=pin.fingerprint)
    )
    values = {"revision": pin.revision, "fingerprint": pin.fingerprint}
    text = read_bytes(path).decode()
    edited = _fill(text, {name: value for name, value in values.items() if isinstance(value, str)})
    if not _reads_as(edited, expected):
        raise ConfigurationError(
            f"{path}: its `model` cannot be edited in place; put this line in by hand: {model_line(expected.model)}"
        )
    write_bytes(path.resolve(), [edited.encode()])


def _reads_as(text: str, expected: Pinned) -> bool:
    try:
        return bool(parse_yaml(text, type(expected), "") == expected)
    except ConfigurationError:
        return False


def _fill(text: str, values: dict[str, str]) -> str:
    """Set these keys of the `model` mapping: replace existing values, append missing ones after the last."""
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    mapping = next(value for key, value in root.value if key.value == "model")
    edits: list[tuple[int, int, str]] = []
    stands = {key.value: value for key, value in mapping.value}
    for name in [name for name in values if name in stands]:
        start, end = stands[name].start_mark.index, stands[name].end_mark.index
        edits.append((start, end, values[name] if end > start else f" {values[name]}"))
    missing = [f"{name}: {value}" for name, value in values.items() if name not in stands]
    last = mapping.value[-1][1].end_mark.index
    if mapping.flow_style:
        edits.append((last, last, "".join(f", {entry}" for entry in missing)))
    else:
        line_end = next((i for i in range(last, len(text)) if text[i] in "\r\n"), len(text))
        new_line = ("\r\n" if "\r\n" in text else "\n") + " " * mapping.value[0][0].start_mark.column
        edits.append((line_end, line_end, "".join(new_line + entry for entry in missing)))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
