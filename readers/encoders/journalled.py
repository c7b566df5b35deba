"""Work on many texts in journalled batches: an interrupted step finds its finished slices again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from offline.canonical import Record, digest_of, read_record, self_digest, storage, write_record
from offline.errors import AlteredError

_BATCHES = 16  # batches of one slice
# Values of some items, float32[items, values of each], and how many items the window truncated.
Work = Callable[[list[Any]], tuple[NDArray[np.float32], int]]


class Slice(Record, frozen=True):
    """Journalled output."""

    values: bytes  # little-endian float32
    cut: int  # inputs truncated by the window
    check: str = ""  # digest of this record with an empty check


def in_slices(
    journal: Path, key: Any, items: Sequence[Any], batch_size: int, work: Work, progress: Callable[[int], None]
) -> tuple[NDArray[np.float32], int]:
    """The outputs of all items, float32[items, values of each], in their order, and how many items were truncated.

    Batches of exactly `batch_size` are formed longest first, ties by content, so that they follow from the items alone.
    Finished slices are stored under the digest of their inputs.
    """
    order = sorted(range(len(items)), key=lambda i: (-len("".join(items[i])), items[i]))
    rows: list[NDArray[np.float32]] = []
    total_cut = 0
    with storage(journal):
        journal.mkdir(exist_ok=True)
    for at in range(0, len(order), batch_size * _BATCHES):
        some = [items[i] for i in order[at : at + batch_size * _BATCHES]]
        kept = _slice(journal / f"{digest_of((key, batch_size, some))}.json", some, work)
        rows.append(np.frombuffer(kept.values, dtype="<f4").reshape(len(some), -1))
        total_cut += kept.cut
        progress(at + len(some))
    made = np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)
    back = np.empty_like(made)
    back[order] = made
    return back, total_cut


def _slice(path: Path, some: list[Any], work: Work) -> Slice:
    if path.is_file():
        kept = read_record(path, Slice)
        if self_digest(kept, "check") != kept.check:
            raise AlteredError(f"{path}: its check does not fit its content; the file was altered: remove it, then go on")
        return kept
    values, cut = work(some)
    made = Slice(values.astype("<f4", copy=False).tobytes(), cut)
    write_record(path, msgspec.structs.replace(made, check=self_digest(made, "check")))
    return made
