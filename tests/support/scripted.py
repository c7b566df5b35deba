"""A caller whose answers a test writes: the chat as it was frozen goes in, a text comes out. No model, no engine."""

import json
import re
from collections.abc import Callable, Sequence

from offline.config.models import Pin, Reader
from offline.records import Message
from readers.calls.caller import Caller, Prepared, Source
from readers.models.pins import identify
from readers.models.served import CODEC_FOLDER, MessageBytes, Tokenizer, decode_messages, encode_text
from readers.records import FinishReason, Output
from readers.requests import make_settings

READER = Reader(name="scripted", engine="openai", model=Pin(served="scripted"), output_cap=4096)
# Text, or text and finish reason, or None for a call that failed.
Reply = str | tuple[str, FinishReason] | None
Script = Callable[[str, Sequence[Message]], Reply]


def scripted(script: Script, reader: Reader = READER, tokenizer: Tokenizer | None = None) -> Caller:
    """A caller answered by `script(stage, chat)`; its `waves` lists how many calls each wave sent."""

    def source(calls: Sequence[Prepared]) -> list[Output]:
        waves.append(len(calls))
        return [_output(script(prepared.call.stage, decode_messages(prepared.ids))) for prepared in calls]

    waves: list[int] = []
    caller = caller_of(source, reader, tokenizer)
    caller.waves = waves  # type: ignore[attr-defined]
    return caller


def caller_of(source: Source, reader: Reader = READER, tokenizer: Tokenizer | None = None) -> Caller:
    """A caller whose chats and answers travel as bytes (readers/models/served.py) to and from this source."""
    tokenizer = tokenizer or MessageBytes(CODEC_FOLDER)
    return Caller(make_settings(reader, identify(reader, CODEC_FOLDER), tokenizer), tokenizer, source)


def _output(reply: Reply) -> Output:
    if reply is None:
        return Output(ids=(), finish_reason="error", error="the engine failed")
    text, reason = (reply, "stop") if isinstance(reply, str) else reply
    return Output(ids=encode_text(text), finish_reason=reason)


def records_of(chat: Sequence[Message]) -> list[tuple[int, str]]:
    """The records that an extraction call shows: number and text, those of the prompt's example left out."""
    shown = chat[-1].content.rpartition("\nRecord")[2]
    found = [json.loads(line) for line in shown.splitlines() if re.match(r'\{"id": \d+, "text": ', line)]
    return [(record["id"], record["text"]) for record in found]


def entry(number: int, *facts: tuple[str, str, str], status: str = "facts") -> dict[str, object]:
    """An entry of an answer."""
    named = [dict(zip(("subject", "relation", "object"), fact, strict=True)) for fact in facts]
    return {"id": number, "status": status, "facts": named}


def answer(*entries: dict[str, object]) -> str:
    """A whole answer."""
    return json.dumps({"records": entries}, ensure_ascii=False)
