from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.canonical import write_lines
from offline.errors import AlteredError, ConfigurationError
from offline.passages import Chunk
from offline.vectors import (
    CHUNKS,
    SCORES,
    TEXTS,
    VECTORS,
    PairScores,
    TextRow,
    Vectors,
    check_vectors,
    read_scores,
    read_vectors,
    text_digest,
    write_vectors,
)

ROWS = [TextRow("passage", text_digest("a")), TextRow("query", text_digest("a")), TextRow("passage", text_digest("é"))]
MATRIX = np.array([[0.6, 0.8], [-1.0, -0.0], [0.0, 2.0**-25]], dtype=np.float32)


def test_stored_vectors_are_read_as_they_were_by_role_and_text(tmp_path: Path) -> None:
    chunks = [Chunk("h", 0, 3), Chunk("other", 2, 2), Chunk("h", 4, 4, begin=0, end=9), Chunk("h", 4, 4, begin=9, end=11)]
    write_vectors(tmp_path, ROWS, MATRIX, chunks)
    read = read_vectors(tmp_path)
    # In whole numbers of 2^-24, which 2^-25 is half of: rounded to even, 0.
    fixed = (MATRIX * 2.0**24).round().tolist()
    assert read.of("passage", ["é", "a", "é"]).tolist() == [fixed[2], fixed[0], fixed[2]] == [[0, 0], fixed[0], [0, 0]]
    assert read.of("query", ["a"]).tolist() == [fixed[1]] == [[-(2**24), 0]]
    assert read.chunks == {"h": [chunks[0], chunks[2], chunks[3]], "other": [chunks[1]]}


def test_vectors_are_stored_as_little_endian_float32_row_by_row(tmp_path: Path) -> None:
    # 1.0 is 3f800000; -2.0 is c0000000. A big-endian or wider array of the same numbers makes the same file.
    expected = bytes.fromhex("0000803f 000000c0")
    for number, kind in enumerate(("<f4", ">f4", "<f8")):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_vectors(folder, ROWS[:1], np.array([[1.0, -2.0]], dtype=kind), [])
        assert (folder / VECTORS).read_bytes() == expected
    assert (folder / TEXTS).read_text() == f'{{"digest":"{text_digest("a")}","role":"passage"}}\n'
    assert (folder / CHUNKS).read_bytes() == b""


@pytest.mark.parametrize(
    "alter",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-4],
        lambda data: data + b"\0",
        lambda data: data + bytes(4),
        lambda data: data + data[:8],
    ],
    ids=["emptied", "a byte short", "a number short", "a byte long", "a number long", "a row long"],
)
def test_an_array_that_does_not_fit_its_texts_is_an_altered_file(tmp_path: Path, alter: Callable[[bytes], bytes]) -> None:
    write_vectors(tmp_path, ROWS, MATRIX, [])
    (tmp_path / VECTORS).write_bytes(alter((tmp_path / VECTORS).read_bytes()))
    with pytest.raises(AlteredError, match=VECTORS):
        read_vectors(tmp_path)


def test_an_array_without_texts_is_an_altered_file(tmp_path: Path) -> None:
    write_vectors(tmp_path, ROWS, MATRIX, [])
    (tmp_path / TEXTS).write_bytes(b"")
    with pytest.raises(AlteredError, match="0 texts"):
        read_vectors(tmp_path)


def test_stored_scores_are_read_by_query_and_passage(tmp_path: Path) -> None:
    pairs = PairScores(text_digest("q"), (text_digest("a"), text_digest("b")), ("-1.5e-07", "0.9999999"))
    write_lines(tmp_path / SCORES, [pairs])
    assert read_scores(tmp_path).of("q", ["b", "a", "b"]) == [0.9999999, -1.5e-07, 0.9999999]


def test_vectors_of_length_one_or_nought_pass() -> None:
    check_vectors(np.array([[0.6, 0.8], [0.0, 0.0], [0.0, 1.0005]], dtype=np.float32), "minilm")


@pytest.mark.parametrize("row", [[0.6, 0.9], [0.5, 0.0], [np.nan, 1.0], [np.inf, 0.0], [1e-30, 0.0], [1e30, 0.0]])
def test_a_vector_of_another_length_or_of_no_number_is_refused_with_the_model_named(row: list[float]) -> None:
    with pytest.raises(ConfigurationError, match=r"encoder 'minilm': 1 of 2 vectors are not of length 1"):
        check_vectors(np.array([[0.6, 0.8], row], dtype=np.float32), "minilm")


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8))
def test_fixed_point_holds_whole_numbers_within_half_a_place(coordinates: list[float]) -> None:
    row = TextRow("query", text_digest("q"))
    (fixed,) = Vectors([row], np.array([coordinates], dtype=np.float32), []).of("query", ["q"]).astype(np.float64)
    assert all(float(number).is_integer() for number in fixed)
    assert np.abs(fixed - np.array(coordinates) * 2**24).max() <= 0.5
