"""Token ids in a file: they come back as they were, take four bytes each, and a file of another length is altered."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.errors import AlteredError
from readers.records import Request
from readers.tokens.id_arrays import INPUTS, packed, read_ids, write_ids

INDEX = "requests.jsonl"


def _index(inputs: list[list[int]]) -> list[Request]:
    offsets = [sum(map(len, inputs[:i])) for i in range(len(inputs))]
    return [Request(digest=f"{i}", offset=o, length=len(inputs[i]), too_long=False) for i, o in enumerate(offsets)]


@given(st.lists(st.lists(st.integers(0, 2**32 - 1))))
def test_ids_come_back_as_they_were(inputs: list[list[int]]) -> None:
    with TemporaryDirectory() as folder:
        write_ids(Path(folder), inputs)
        # Little-endian, one after another, whatever the machine's own order.
        assert (Path(folder) / INPUTS).read_bytes() == b"".join(i.to_bytes(4, "little") for ids in inputs for i in ids)
        found = read_ids(Path(folder), _index(inputs), INDEX)
    assert list(map(list, found)) == inputs
    # As replay compares them.
    assert found == list(map(packed, inputs))


def test_ids_in_memory_take_four_bytes_each() -> None:
    assert memoryview(packed(range(1000))).nbytes == 4000  # type: ignore[arg-type]


@pytest.mark.parametrize("more", [b"", b"\0" * 12])
def test_a_file_that_does_not_fit_its_index_is_altered(tmp_path: Path, more: bytes) -> None:
    write_ids(tmp_path, [[1, 2], [3]])
    path = tmp_path / INPUTS
    path.write_bytes(path.read_bytes()[:8] + more)
    with pytest.raises(AlteredError, match=rf"{8 + len(more)} bytes do not fit the index in {INDEX}"):
        read_ids(tmp_path, _index([[1, 2], [3]]), INDEX)
