"""Token ids of many inputs in one file: little-endian uint32, one after another; an index says where each lies."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from offline.canonical import read_bytes, write_bytes
from offline.errors import AlteredError
from readers.records import Call, Request

INPUTS = "inputs.u32"


def write_ids(folder: Path, inputs: Iterable[Sequence[int]]) -> None:
    """Store the ids of inputs, in order."""
    write_bytes(folder / INPUTS, (np.array(ids, dtype="<u4").tobytes() for ids in inputs))


def read_ids(folder: Path, index: Sequence[Request | Call], name: str) -> list[tuple[int, ...]]:
    """The ids of each entry of the index that the file `name` holds; AlteredError if the two do not fit."""
    data = read_bytes(folder / INPUTS)
    if len(data) != 4 * sum(entry.length for entry in index):
        raise AlteredError(f"{folder / INPUTS}: {len(data)} bytes do not fit the index in {name}")
    flat: list[int] = np.frombuffer(data, dtype="<u4").tolist()
    return [tuple(flat[entry.offset : entry.offset + entry.length]) for entry in index]
