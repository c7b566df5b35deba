"""Work on many texts in batches, kept as it is done: an interrupted step finds its finished slices again."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from offline.canonical import Record, digest_of, read_record, self_digest, storage, write_record
from offline.errors import AlteredError

# Batches that are sent to a model's process, and journalled, at a time.
_BATCHES = 16
# Values for some items, float32[items, values of each], and how many items a window cut.
Work = Callable[[list[Any]], tuple[NDArray[np.float32], int]]


class Slice(Record, frozen=True):
    """Journalled output: float32 values, and how many inputs the window cut. `check`: digest of it with an empty check."""

    values: bytes
    cut: int
    check: str = ""


def in_slices(
    journal: Path, key: Any, items: Sequence[Any], batch_size: int, work: Work, progress: Callable[[int], None]
) -> tuple[NDArray[np.float32], int]:
    """The outputs of all items, float32[items, values of each], in their order, and how many items were cut.

    Longest first, equal ones by content, in batches of exactly `batch_size`, so that what shares a batch follows from the
    items alone. Finished slices are kept under the digest of what they were made from, and found again after a kill.
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
