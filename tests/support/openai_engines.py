"""Engines that ask a double, and ten chats to ask about."""

from collections.abc import Mapping
from typing import Any

from http_double import Asked, Double

from offline.canonical import encode
from offline.config.models import Pin, Reader
from offline.records import Message
from readers.engines import EngineStart
from readers.engines.openai import OpenAIEngine
from readers.models.pins import identify, locate
from readers.records import Model, Output, Settings
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer

KEY = "sk-double-0123456789"
CHATS = [(Message(role="system", content="s"), Message(role="user", content=f"q{i}")) for i in range(10)]
BYTES = [tuple(encode(chat)) for chat in CHATS]


def chat_engine(
    double: Double, *, thinking: bool = False, changes: Mapping[str, Any] | None = None, **options: Any
) -> OpenAIEngine:
    """An engine for the served model `m`; `changes` are further fields of its reader."""
    given_options = {"base_url": double.url, "retries": 0, **options}
    pin = Pin(served="m")
    reader = Reader(
        name="r", engine="openai", model=pin, output_cap=4, options=given_options, thinking=thinking, **(changes or {})
    )
    settings = make_settings(reader, identify(reader, locate(reader)), ChatTokenizer.of(reader, locate(reader)))
    return OpenAIEngine(EngineStart(settings=settings, model_folder=str(locate(reader)), longest=100))


def id_engine(double: Double, **options: Any) -> OpenAIEngine:
    """An engine for a model with a tokenizer: cap 4, stop ids 1 and 9."""
    given_options = {"base_url": double.url, "retries": 0, "model": "m", **options}
    reader = Reader(name="r", engine="openai", model=Pin(folder="x"), output_cap=4, options=given_options)
    settings = Settings(
        reader=reader,
        model=Model(fingerprint="f", files=()),
        window=64,
        input_cap=60,
        stop_ids=(1, 9),
        pad_id=0,
        thinking="off",
        fingerprint="f",
    )
    return OpenAIEngine(EngineStart(settings=settings, model_folder="x", longest=10))


def text(output: Output) -> str:
    """The text of an answer in bytes."""
    return bytes(output.ids).decode()


def question(asked: Asked) -> int:
    """Which of the chats was asked."""
    return int(asked.body["messages"][1]["content"][1:])
