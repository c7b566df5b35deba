"""Token ids of many inputs in one file of little-endian uint32; an index says where each input lies.

In memory they are arrays of the same size: a tuple takes some 36 bytes per token, and a run holds millions.
"""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from offline.canonical import read_bytes, write_bytes
from offline.errors import AlteredError
from readers.records import Call, Request

INPUTS = "inputs.u32"


def packed(ids: Iterable[int]) -> Sequence[int]:
    """Token ids in 4 bytes each. Arrays of the same ids are equal; an array and a tuple are not."""
    return array("I", ids)


def write_ids(folder: Path, inputs: Iterable[Sequence[int]]) -> None:
    """Store the ids of inputs, in order."""
    write_bytes(folder / INPUTS, (np.array(ids, dtype="<u4").tobytes() for ids in inputs))


def read_ids(folder: Path, index: Sequence[Request | Call], name: str) -> list[Sequence[int]]:
    """The ids of each entry of the index (stored in the file `name`); AlteredError if the two do not fit."""
    data = read_bytes(folder / INPUTS)
    if len(data) != 4 * sum(entry.length for entry in index):
        raise AlteredError(f"{folder / INPUTS}: {len(data)} bytes do not fit the index in {name}")
    flat = array("I", np.frombuffer(data, dtype="<u4").astype(np.uintc).tobytes())
    return [flat[entry.offset : entry.offset + entry.length] for entry in index]
