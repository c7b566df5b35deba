"""Models behind a server whose tokenizer is unknown: their "token ids" are the bytes of the chat messages.

Requests, digests, schedule and replay work as for any other model. The server's own template and tokenizer turn the frozen
messages into token ids, and no file of a run can say how.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from offline.canonical import Record, encode, read_record
from offline.records import Message

CODEC = "messages.json"  # the only file of a served model's tokenizer folder: says what the ids are
CODEC_FOLDER = Path(__file__).parent / "codec"  # copied into a run by `copy_tokenizer`


class Tokenizer(Protocol):
    """The tokenizer that freezing, reading and replaying need."""

    folder: Path

    def encode(self, chat: Sequence[Message]) -> list[int]:
        """Input ids of a chat."""
        ...

    def render(self, chat: Sequence[Message]) -> str:
        """The text that `encode` tokenizes."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of output ids."""
        ...

    def count(self, text: str) -> int:
        """Ids of a text on its own."""
        ...

    def special_in(self, text: str) -> str | None:
        """The first special token in a text; None if there is none."""
        ...

    def thinking(self) -> Literal["off", "on", "no switch", "unknown"]:
        """The setting of the thinking switch."""
        ...

    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an output, ascending."""
        ...

    def pad_id(self) -> int:
        """The id that pads a batch."""
        ...

    def window(self) -> int:
        """Positions of the model, -1 = unknown."""
        ...


class Codec(Record, frozen=True):
    """The content of messages.json."""

    input: Literal["UTF-8 bytes of the canonical JSON of the chat messages"]  # a request's ids
    output: Literal["UTF-8 bytes of the text"]  # a prediction's ids
    format: Literal[1] = 1


class MessageBytes:
    """A tokenizer whose ids are bytes, 0..255. Needs no library; counts bytes instead of tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        read_record(folder / CODEC, Codec)

    def encode(self, chat: Sequence[Message]) -> list[int]:
        """The bytes of the messages' canonical JSON."""
        return list(encode(chat))

    def render(self, chat: Sequence[Message]) -> str:
        """The messages' canonical JSON."""
        return encode(chat).decode()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these bytes; invalid UTF-8 becomes U+FFFD."""
        return bytes(min(i, 255) for i in ids).decode(errors="replace")

    def count(self, text: str) -> int:
        """Bytes of a text."""
        return len(text.encode())

    def special_in(self, text: str) -> str | None:
        """None: the special tokens of the server's tokenizer are unknown here."""
        return None

    def thinking(self) -> Literal["off", "on", "no switch", "unknown"]:
        """Unknown: the template is the server's."""
        return "unknown"

    def stop_ids(self) -> tuple[int, ...]:
        """None: the server decides where an answer ends."""
        return ()

    def pad_id(self) -> int:
        """Nothing is ever padded."""
        return 0

    def window(self) -> int:
        """Unknown."""
        return -1


def decode_messages(ids: Sequence[int]) -> tuple[Message, ...]:
    """The chat messages that `MessageBytes.encode` froze."""
    # `bytes` of an array would copy its memory.
    return msgspec.json.decode(bytes(iter(ids)), type=tuple[Message, ...])


def encode_text(text: str) -> tuple[int, ...]:
    """Output ids of a server's text; a lone surrogate becomes a question mark."""
    return tuple(text.encode(errors="replace"))
