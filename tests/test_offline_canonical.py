import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.canonical import (
    compare_lines,
    decode,
    digest,
    digest_of,
    encode,
    file_digest,
    read_bytes,
    read_lines,
    read_record,
    storage,
    write_bytes,
    write_lines,
    write_record,
)
from offline.errors import AlteredError, DataError, PacketLinkError, StorageError
from offline.records import Question, Statement, Triple

# Text that UTF-8 can hold: no surrogates.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
STATEMENT = st.builds(Statement, position=st.integers(), text=TEXT, time=st.none() | TEXT)


def _shuffled(value: Any) -> Any:
    """The same value with every dictionary filled in the opposite order."""
    if isinstance(value, dict):
        return {key: _shuffled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [_shuffled(item) for item in value]
    return value


@given(JSON)
def test_canonical_json_is_what_the_standard_library_writes_with_sorted_keys_and_no_spaces(value: Any) -> None:
    expected = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), check_circular=False)
    # The library sorts keys by code point; so do UTF-8 bytes.
    assert encode(value) == expected.encode()


@given(JSON)
def test_the_order_in_which_a_dictionary_was_filled_does_not_show(value: Any) -> None:
    assert encode(value) == encode(_shuffled(value))


@given(STATEMENT)
def test_a_record_comes_back_from_its_bytes(statement: Statement) -> None:
    assert decode(encode(statement), Statement, "here") == statement


def test_a_record_is_written_with_sorted_fields() -> None:
    assert encode(Triple(subject="b", relation="r", object="a")) == b'{"object":"a","relation":"r","subject":"b"}'


def test_a_digest_is_the_sha256_of_the_bytes() -> None:
    triple = Triple(subject="b", relation="r", object="a")
    expected = hashlib.sha256(b'{"object":"a","relation":"r","subject":"b"}').hexdigest()
    assert digest_of(triple) == expected == digest(encode(triple))


@pytest.mark.parametrize(
    "data",
    [
        b'{"object":"a", "relation":"r","subject":"b"}',
        b'{"relation":"r","object":"a","subject":"b"}',
        b'{"object":"a","object":"a","relation":"r","subject":"b"}',
        b'{"object":"\\u0061","relation":"r","subject":"b"}',
        b'{"object":"a","relation":"r","subject":"b"} ',
        b'{"object":"a","relation":"r","subject":"b"}\n',
        b'{"object":"a","relation":"r","subject":"b","extra":1}',
        b'{"object":"a","relation":"r"}',
        b'{"object":1,"relation":"r","subject":"b"}',
        b'{"object":"\xff","relation":"r","subject":"b"}',
        b"",
    ],
    ids=["space", "order", "twice", "escape", "tail", "newline", "unknown", "missing", "type", "utf8", "empty"],
)
def test_bytes_that_this_module_would_not_have_written_are_refused(data: bytes) -> None:
    with pytest.raises(AlteredError, match="somewhere"):
        decode(data, Triple, "somewhere")


def test_a_position_written_as_a_decimal_is_refused() -> None:
    with pytest.raises(AlteredError):
        decode(b'{"position":1.0,"text":"a","time":null}', Statement, "here")


@given(TEXT, st.characters(categories=["Cs"]), TEXT)
def test_a_lone_surrogate_is_a_data_error_that_shows_it(before: str, surrogate: str, after: str) -> None:
    with pytest.raises(DataError, match="lone surrogate") as caught:
        encode(Statement(position=0, text=before + surrogate + after))
    assert repr(surrogate)[1:-1] in str(caught.value)


@given(st.lists(STATEMENT, max_size=5))
def test_lines_come_back_in_order(tmp_path_factory: pytest.TempPathFactory, statements: list[Statement]) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    write_lines(path, statements)
    assert list(read_lines(path, Statement)) == statements
    assert path.read_bytes().count(b"\n") == len(statements)


def test_a_line_that_was_cut_off_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(path, [Statement(0, "a"), Statement(1, "b")])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AlteredError, match="line 2"):
        list(read_lines(path, Statement))


def test_a_blank_line_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(Statement(0, "a")) + b"\n\n")
    with pytest.raises(AlteredError, match="line 2"):
        list(read_lines(path, Statement))


def test_one_record_comes_back_from_its_file_and_a_second_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    question = Question(id="1", row="r", history="h", text="Who?", hops=2)
    write_record(path, question)
    assert read_record(path, Question) == question
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(AlteredError):
        read_record(path, Question)


def test_a_record_file_without_its_last_newline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(encode(Statement(0, "a")))
    with pytest.raises(AlteredError, match="not ended"):
        read_record(path, Statement)


def test_a_missing_file_is_a_storage_error_however_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    for read in (read_bytes, file_digest, lambda p: read_record(p, Statement), lambda p: list(read_lines(p, Statement))):
        with pytest.raises(StorageError, match="nothing"):
            read(path)


def test_a_file_digest_is_the_sha256_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_file_that_is_written_can_be_read_by_everybody_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", [b"one", b"two"])
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_source_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_lines(path, [Statement(0, "old")])

    def values() -> Iterator[Statement]:
        yield Statement(0, "new")
        yield Statement(1, "\ud800")

    with pytest.raises(DataError):
        write_lines(path, values())
    assert list(read_lines(path, Statement)) == [Statement(0, "old")]
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_full_disk_is_a_storage_error_and_leaves_the_old_file_and_nothing_else(full_disk: Path) -> None:
    path = full_disk / "a"
    write_bytes(path, [b"old"])
    with pytest.raises(StorageError, match="free the disk"):
        write_bytes(path, (b"x" * 4096 for _ in range(64)))
    assert path.read_bytes() == b"old"
    assert [p.name for p in full_disk.iterdir()] == ["a"]


def test_a_read_only_folder_is_a_storage_error_and_gets_no_file(read_only_folder: Path) -> None:
    with pytest.raises(StorageError, match="choose a writable"):
        write_bytes(read_only_folder / "coldread-test", [b"x"])
    assert not (read_only_folder / "coldread-test").exists()


def test_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        write_bytes(tmp_path / "no" / "a", [b"x"])


def test_storage_turns_only_system_errors_into_storage_errors(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"), storage(tmp_path):
        (tmp_path / "no" / "where").touch()
    with pytest.raises(ZeroDivisionError), storage(tmp_path):
        raise ZeroDivisionError


def test_records_cannot_be_changed_and_refuse_unknown_fields() -> None:
    with pytest.raises(AttributeError):
        Statement(0, "a").text = "b"  # type: ignore[misc]
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"position": 0, "text": "a", "txet": "b"}, Statement)


@given(st.lists(STATEMENT, max_size=4), st.data())
def test_lines_compare_equal_exactly_if_every_byte_is(
    tmp_path_factory: pytest.TempPathFactory, records: list[Statement], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "compared.jsonl"
    whole = b"".join(encode(record) + b"\n" for record in records)
    path.write_bytes(whole)
    compare_lines(path, records, PacketLinkError, str)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    other = whole[:start] + data.draw(st.binary(max_size=2)) + whole[end:]
    if other != whole:
        path.write_bytes(other)
        with pytest.raises(PacketLinkError, match=r"compared.jsonl, line \d+: "):
            compare_lines(path, records, PacketLinkError, str)


@pytest.mark.parametrize("rest", [b"x", b"\0", b" ", b"{}", b"\n", b"{}\n"])
def test_whatever_lies_behind_the_last_line_is_found(tmp_path: Path, rest: bytes) -> None:
    write_lines(tmp_path / "a", [Statement(0, "a")])
    with (tmp_path / "a").open("ab") as stream:
        stream.write(rest)
    with pytest.raises(PacketLinkError, match="line 2: derived again, this line is not there"):
        compare_lines(tmp_path / "a", [Statement(0, "a")], PacketLinkError, str)
    with pytest.raises(AlteredError, match="line 2"):
        list(read_lines(tmp_path / "a", Statement))
