"""Text to token ids and back, by the model's own tokenizer and chat template.

Token ids are made once, here. Nothing is tokenized a second time: no second BOS, no re-encoding of outputs.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from offline.canonical import digest_of, file_digest
from offline.config.experiment import Prompt
from offline.config.models import Reader
from offline.errors import ModelError, needs
from offline.records import Message
from readers.models.pins import tokenizer_files
from readers.models.served import MessageBytes, Tokenizer

_SAMPLE = (Message(role="system", content="s"), Message(role="user", content="e q"))  # to try out templates


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with its slots filled in one pass, so that braces in a value stay text."""
    return re.sub("|".join(rf"\{{{name}\}}" for name in values), lambda slot: values[slot[0][1:-1]], template)


def messages(prompt: Prompt, evidence: str, question: str) -> tuple[Message, Message]:
    """System and user message of one question."""
    user = fill(prompt.user, {"evidence": evidence or prompt.no_evidence, "question": question})
    return Message(role="system", content=prompt.system), Message(role="user", content=user.strip())


def copy_tokenizer(model_folder: Path, out: Path) -> None:
    """Copy a model's tokenizer, template and configuration into a run, so that replay needs no model."""
    for path in tokenizer_files(model_folder):
        shutil.copyfile(path, out / path.name)


def tokenizer_at(reader: str, tokenizers: Path) -> Path:
    """The folder of a reader's tokenizer files: the subfolder of its name in `tokenizers`, or the folder itself."""
    return tokenizers / reader if (tokenizers / reader).is_dir() else tokenizers


def tokenizer_digest(folder: Path) -> str:
    """Digest of a folder's tokenizer files."""
    return digest_of([(path.name, file_digest(path)) for path in tokenizer_files(folder)])


def load_tokenizer(folder: Path) -> Any:
    """The transformers tokenizer of a local folder; ModelError if it cannot be loaded."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    with needs("replay", "a chat template's token ids"):
        # tokenizer.json is complete, whatever class a library would wrap around it, and needs no torch.
        if (folder / "tokenizer.json").is_file():
            from transformers import PreTrainedTokenizerFast as Loader
        else:
            from transformers import AutoTokenizer as Loader
    try:
        return Loader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises whatever its readers raise
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {error}; check the model folder") from error


class ChatTokenizer:
    """A model's tokenizer and chat template, from one local folder.

    date: the template's today, YYYY-MM-DD. Without it, a template that asks the clock is refused: its ids would change daily.
    """

    @classmethod
    def of(cls, reader: Reader, folder: Path) -> Tokenizer:
        """The tokenizer of a reader, its files in `folder`; the only place that makes one for a reader."""
        if reader.model.served is not UNSET:
            return MessageBytes(folder)
        return cls(folder, thinking=reader.thinking, date=None if reader.date is UNSET else reader.date)

    def __init__(self, folder: Path, *, thinking: bool = False, date: str | None = None) -> None:
        self.folder = folder
        self._thinking = thinking
        self._today = None if date is None else datetime.fromisoformat(date)
        self._tokenizer = load_tokenizer(folder)
        if not self._tokenizer.chat_template:
            raise ModelError(f"the tokenizer in {folder} has no chat template; choose an instruct model")
        added = self._tokenizer.added_tokens_decoder.values()
        self._special = sorted({*self._tokenizer.all_special_tokens, *(token.content for token in added if token.special)})

    def _clock(self, form: str) -> str:
        """`strftime_now` for templates: the reader's date at midnight, never this machine's clock."""
        if self._today is None:
            raise ModelError(
                f"the chat template in {self.folder} asks the clock (strftime_now), so its token ids would differ tomorrow; "
                "give `date: YYYY-MM-DD`, what it shall take for today, in the reader file"
            )
        return self._today.strftime(form)

    def _render(
        self,
        chat: Sequence[Message],
        *,
        thinking: bool,
        tokenize: bool,
        clock: Callable[[str], str] | None = None,
    ) -> Any:
        try:
            # An argument overrides the library's template function of that name.
            return self._tokenizer.apply_chat_template(
                [{"role": message.role, "content": message.content} for message in chat],
                add_generation_prompt=True,
                tokenize=tokenize,
                return_dict=False,
                enable_thinking=thinking,
                strftime_now=clock or self._clock,
            )
        except ModelError:
            raise
        except Exception as error:  # a template is a program and raises what it likes
            raise ModelError(
                f"the chat template in {self.folder} cannot render a system and a user message: {error}"
            ) from error

    def encode(self, chat: Sequence[Message]) -> list[int]:
        """Input token ids of a chat, generation prompt included.

        ModelError if a message contains the text of a special token: it would be encoded as that token, so that a stored record
        could close its own message and open another.
        """
        for message in chat:
            if (special := self.special_in(message.content)) is not None:
                at = message.content.index(special)
                raise ModelError(
                    f"the {message.role} message holds {special!r}, a special token of the model in {self.folder}, near "
                    f"{message.content[max(0, at - 60) : at + 60]!r}; write it differently in the source"
                )
        ids: list[int] = self._render(chat, thinking=self._thinking, tokenize=True)
        return ids

    def render(self, chat: Sequence[Message]) -> str:
        """The text that `encode` tokenizes, special tokens written out: shows what the template adds."""
        text: str = self._render(chat, thinking=self._thinking, tokenize=False)
        return text

    def decode(self, ids: Sequence[int]) -> str:
        """Text of output ids, without special tokens and clean-up."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def count(self, text: str) -> int:
        """Tokens of a text on its own, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def special_in(self, text: str) -> str | None:
        """The first special token in a text; None if there is none."""
        return next((special for special in self._special if special in text), None)

    def thinking(self) -> Literal["off", "on", "no switch", "unknown"]:
        """The template's thinking switch; ModelError if thinking should be off but the template ignores the switch."""
        found = self.thinking_switch()
        if found != "ignored":
            return found
        if self._thinking:
            return "no switch"
        raise ModelError(
            f"the chat template in {self.folder} writes thinking marks and ignores enable_thinking=False; thinking "
            "cannot be turned off, so answers would be cut off: choose another model or template"
        )

    def thinking_switch(self) -> Literal["off", "on", "no switch", "ignored"]:
        """The same without the error; `ignored` if the template mentions thinking but renders the same either way."""
        off, on = (self._render(_SAMPLE, thinking=thinking, tokenize=False) for thinking in (False, True))
        if off != on:
            return "on" if self._thinking else "off"
        return "ignored" if "<think" in str(self._tokenizer.chat_template).lower() else "no switch"

    def asks_clock(self) -> bool:
        """Whether the template calls `strftime_now`."""
        asked: list[str] = []

        def clock(form: str) -> str:
            asked.append(form)
            return form

        self._render(_SAMPLE, thinking=self._thinking, tokenize=False, clock=clock)
        return bool(asked)

    def leading_bos(self) -> int:
        """Beginning-of-sequence ids at the start of a chat: 0 or 1, or more if template or tokenizer err."""
        bos = self._tokenizer.bos_token_id
        count = 0
        for token in self._render(_SAMPLE, thinking=self._thinking, tokenize=True):
            if bos is None or token != bos:
                break
            count += 1
        return count

    def stop_ids(self) -> tuple[int, ...]:
        """End-of-sequence ids of tokenizer, config.json and generation_config.json, ascending; ModelError if none."""
        found: set[int] = set()
        values = [self._tokenizer.eos_token_id]
        for name in ("config.json", "generation_config.json"):
            settings = _json(self.folder / name)
            values += [settings.get("eos_token_id"), (settings.get("text_config") or {}).get("eos_token_id")]
        for value in values:
            found.update(value if isinstance(value, list) else [] if value is None else [value])
        if not found:
            raise ModelError(f"{self.folder} names no end-of-sequence token; generation would never stop by itself")
        return tuple(sorted(found))

    def pad_id(self) -> int:
        """The id that pads a batch; it is masked, so any id does."""
        pad = self._tokenizer.pad_token_id
        return int(pad) if pad is not None else self.stop_ids()[0]

    def window(self) -> int:
        """The model's positions, -1 if config.json gives none."""
        settings = _json(self.folder / "config.json")
        window = settings.get("max_position_embeddings") or (settings.get("text_config") or {}).get("max_position_embeddings")
        return int(window) if window else -1


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise ModelError(f"{path} is not a JSON object")
    return loaded
