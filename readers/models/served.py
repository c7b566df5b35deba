"""Models behind a server, whose tokenizer nobody here can see: their "token ids" are the bytes of the chat messages.

Frozen requests, digests, schedule and replay stay what they are for every other model. What is frozen are messages, not
token ids: the server's own template and tokenizer turn them into ids, and no file of a run can say how.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from offline.canonical import Record, encode, read_record
from offline.records import Message

# The one file of a served model's tokenizer folder: it says what the ids are.
CODEC = "messages.json"
# Where the file lies that `readers.tokens.chat.copy_tokenizer` puts into a run.
CODEC_FOLDER = Path(__file__).parent / "codec"


class Tokenizer(Protocol):
    """What freezing, reading and replaying need of a tokenizer."""

    folder: Path

    def encode(self, chat: Sequence[Message]) -> list[int]:
        """Input ids of a chat."""
        ...

    def render(self, chat: Sequence[Message]) -> str:
        """The text that `encode` makes ids of."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of output ids."""
        ...

    def count(self, text: str) -> int:
        """Ids of a text on its own."""
        ...

    def special_in(self, text: str) -> str | None:
        """The first special token that a text spells out; None if it spells none."""
        ...

    def thinking(self) -> Literal["off", "on", "no switch", "unknown"]:
        """What the thinking switch is set to."""
        ...

    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an output, ascending."""
        ...

    def pad_id(self) -> int:
        """The id that fills up a batch."""
        ...

    def window(self) -> int:
        """Positions of the model, -1 = unknown."""
        ...


class Codec(Record, frozen=True):
    """What messages.json says. input: of a request's ids; output: of a prediction's."""

    input: Literal["UTF-8 bytes of the canonical JSON of the chat messages"]
    output: Literal["UTF-8 bytes of the text"]
    format: Literal[1] = 1


class MessageBytes:
    """A tokenizer whose ids are bytes, 0..255. It needs no library, and counts bytes where others count tokens."""

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
        """The text of these bytes; what is no UTF-8 becomes U+FFFD."""
        return bytes(min(i, 255) for i in ids).decode(errors="replace")

    def count(self, text: str) -> int:
        """Bytes of a text."""
        return len(text.encode())

    def special_in(self, text: str) -> str | None:
        """None: which texts the server's tokenizer takes for special tokens is not known here."""
        return None

    def thinking(self) -> Literal["off", "on", "no switch", "unknown"]:
        """Unknown: the template is the server's."""
        return "unknown"

    def stop_ids(self) -> tuple[int, ...]:
        """None: where an answer ends is the server's decision."""
        return ()

    def pad_id(self) -> int:
        """Nothing is ever padded."""
        return 0

    def window(self) -> int:
        """Unknown."""
        return -1


def decode_messages(ids: Sequence[int]) -> tuple[Message, ...]:
    """The chat messages that `MessageBytes.encode` froze."""
    # Of an array, `bytes(ids)` would be its memory.
    return msgspec.json.decode(bytes(iter(ids)), type=tuple[Message, ...])


def encode_text(text: str) -> tuple[int, ...]:
    """Output ids of a server's text; a lone surrogate, which is no character, becomes a question mark."""
    return tuple(text.encode(errors="replace"))
