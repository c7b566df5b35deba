"""Scripted models for pipelines: a function of a chat's text and its decoding says what is answered, wave by wave."""

from collections.abc import Callable, Sequence

import msgspec
from scripted import READER, caller_of
from worlds import experiment

from offline.config.calls import PipelinePrompt, PipelineSettings
from offline.config.experiment import ReaderPlan, ResolvedExperiment, ViewSettings
from offline.config.models import Reader
from offline.config.yaml import find_config, load_yaml
from readers.calls.caller import Caller, Prepared
from readers.models.served import decode_messages, encode_text
from readers.records import Decoding, Output

# (the user's message, how it is decoded) to an answer; an Output is given as it is.
Script = Callable[[str, Decoding], str | Output]


class Scripted:
    """A source that answers by a script; `waves` are the user messages of each wave."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.waves: list[list[str]] = []

    def __call__(self, calls: Sequence[Prepared]) -> list[Output]:
        texts = [decode_messages(call.ids)[1].content for call in calls]
        self.waves.append(texts)
        answers = [self.script(text, call.decoding) for text, call in zip(texts, calls, strict=True)]
        return [a if isinstance(a, Output) else Output(ids=encode_text(a), finish_reason="stop") for a in answers]

    def resolved(self) -> tuple[dict[str, str], ...]:
        """What a live source says of its engines."""
        return ({"engine": "scripted"},)


def scripted_caller(script: Script, reader: Reader = READER) -> tuple[Caller, Scripted]:
    """A caller of a scripted model, and its source."""
    source = Scripted(script)
    return caller_of(source, reader), source


def pipelines_experiment(*pipelines: str, view_settings: ViewSettings | None = None, **changes: object) -> ResolvedExperiment:
    """An experiment whose scripted reader serves these pipelines; `changes` are settings of pipelines."""
    prompt = load_yaml(find_config("prompts", "pipelines"), PipelinePrompt)
    plan = ReaderPlan(reader=READER, views=(), pipelines=pipelines)
    base = experiment(view_settings=view_settings, readers=[plan])
    settings = msgspec.structs.replace(PipelineSettings(prompt=prompt, input_cap=262_144), **changes)
    return msgspec.structs.replace(base, pipelines=settings)
