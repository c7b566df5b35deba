"""Served models: chat messages and texts as bytes, and a name as all that is pinned."""

from pathlib import Path

import pytest
from http_double import said, serve
from hypothesis import given
from hypothesis import strategies as st
from openai_engines import BYTES, chat_engine, text

from offline.config.models import Pin, Reader
from offline.errors import AlteredError, ConfigurationError
from offline.records import Message
from readers.engines import check_engine
from readers.models.pins import check_pin, identify
from readers.models.served import CODEC_FOLDER, MessageBytes, decode_messages, encode_text
from readers.records import Model


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_messages_and_texts_survive_as_bytes(content: str, answer: str) -> None:
    codec = MessageBytes(CODEC_FOLDER)
    chat = (Message(role="system", content="s"), Message(role="user", content=content))
    assert decode_messages(codec.encode(chat)) == chat
    assert codec.render(chat).encode() == bytes(codec.encode(chat))
    assert codec.decode(encode_text(answer)) == answer


def test_text_that_utf8_cannot_hold_and_ids_that_are_no_bytes_do_not_crash() -> None:
    with serve(lambda asked, before: said("half \ud83d")) as double:
        assert text(chat_engine(double).generate(BYTES[:1])[0]) == "half ?"
    assert MessageBytes(CODEC_FOLDER).decode([104, 300, 105]) == "h\ufffdi"


def test_another_codec_is_refused(tmp_path: Path) -> None:
    (tmp_path / "messages.json").write_text('{"format":2,"input":"x","output":"y"}\n')
    with pytest.raises(AlteredError):
        MessageBytes(tmp_path)


def test_a_served_name_is_all_that_a_fingerprint_covers() -> None:
    def model(name: str) -> Model:
        return identify(Reader(name="r", engine="openai", model=Pin(served=name)), CODEC_FOLDER)

    assert model("a").fingerprint != model("b").fingerprint
    assert model("a").files == ()


def test_an_engine_that_loads_weights_refuses_a_served_model() -> None:
    with pytest.raises(ConfigurationError, match="engine: openai"):
        check_engine(Reader(name="r", engine="transformers", model=Pin(served="m")))
    for pin in (
        Pin(served=""),
        Pin(served="m", fingerprint="a" * 64),
        Pin(served="m", folder="x"),
        Pin(served="m", revision="a" * 40),
    ):
        with pytest.raises(ConfigurationError):
            check_pin(Reader(name="r", engine="openai", model=pin))
