"""Chat templates side by side: what each of two readers' templates adds around the same messages."""

import difflib
import re
from typing import Any

import msgspec

from offline.config.experiment import ReaderPlan
from offline.errors import ConfigurationError, ModelError
from offline.records import Message
from offline.run.opened import OpenRun
from readers.tokens.chat import ChatTokenizer

# What stands for the messages.
PLACEHOLDERS = (Message(role="system", content="SYSTEM MESSAGE"), Message(role="user", content="USER MESSAGE"))
# A mark such as <|user|> or [INST], a word, white space, or one other character.
_PIECE = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|\w+|\s+|.")


def chat_text(run: OpenRun, plan: ReaderPlan) -> str | None:
    """The placeholder messages as a reader's chat template writes them; None if the run keeps no tokenizer of it."""
    kept = f"reads/{plan.reader.name}/tokenizer"
    if plan.reader.model.served is not msgspec.UNSET or not run.has(kept) or run.lacks(kept):
        return None
    return ChatTokenizer.of(plan.reader, run.files_of(kept)).render(PLACEHOLDERS)


def templates(a: tuple[OpenRun, ReaderPlan], b: tuple[OpenRun, ReaderPlan]) -> dict[str, Any]:
    """Both renderings, and the pieces of each that the other lacks; `notes` says why a rendering is None.

    A template that cannot be shown is no reason to refuse: the readings are sealed, whatever is installed here.
    """
    texts: list[str | None] = []
    notes: list[str] = []
    for run, plan in (a, b):
        try:
            text = chat_text(run, plan)
            notes += [f"{run.path} keeps no tokenizer of {plan.reader.name!r}"] if text is None else []
        except (ConfigurationError, ModelError) as error:
            text = None
            notes += [str(error)] if str(error) not in notes else []
        texts.append(text)
    one, two = texts
    only_a, only_b = ([], []) if one is None or two is None else lacking(one, two)
    return {"a": one, "b": two, "only_a": only_a, "only_b": only_b, "notes": notes}


def lacking(one: str, two: str) -> tuple[list[str], list[str]]:
    """Runs of pieces that only one of two texts has, in order: those of the first, those of the second."""
    a, b = _PIECE.findall(one), _PIECE.findall(two)
    changes = [change for change in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if change[0] != "equal"]
    return (
        ["".join(a[start:end]) for _, start, end, _, _ in changes if start < end],
        ["".join(b[start:end]) for _, _, _, start, end in changes if start < end],
    )
