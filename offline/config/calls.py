"""What asks a model beside reading, as it is configured: extraction of facts, and query-time pipelines."""

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from offline.canonical import Record
from offline.config.models import Reader, check_reader
from offline.config.yaml import check, find_config, load_yaml
from offline.entity_keys import entity_key


class CallPrompt(Record, frozen=True):
    """What a model is told in one stage of an algorithm. `user` holds that stage's slots in braces."""

    system: str
    user: str


# Statements of one call at most: the schema that its answer is held to names each of them.
MOST_STATEMENTS = 1_024


class ExtractorNumbers(Record, frozen=True):
    """How a model extracts facts from statements (extract/frontends/llm.py).

    statements: of one call. wave: calls made at once; the catalogue that they are shown is that of the wave before.
    output_cap, input_cap: tokens of one call. constrained: hold answers to a JSON Schema while they are decoded; they are
    validated either way. repair: ask once more, statement by statement, where validation failed. align: let the model map new
    relation names to known ones. shown: names of the catalogue that a call is shown at most. Of the hybrid frontend,
    examples: how many that agree make a form; conflicts: whether a form whose examples disagree is reviewed.
    """

    statements: int = 16
    wave: int = 64
    output_cap: int = 2_048
    input_cap: int = 8_192
    constrained: bool = True
    repair: bool = True
    align: bool = True
    shown: int = 40
    examples: int = 3
    conflicts: bool = True


class ExtractorUse(ExtractorNumbers, frozen=True, kw_only=True):
    """An extractor as an experiment names it: a reader, a prompt in configs/prompts, and a catalogue that a person edited."""

    reader: str | Reader
    prompt: str = "extract"
    catalogue: str | None = None


class ExtractionPrompt(Record, frozen=True):
    """The prompts of extraction by a model, one for each stage; their slots are those of `EXTRACTION_SLOTS`.

    pronouns, negations: words that code goes by (extract/frontends/checks.py); none, if a language needs others.
    """

    name: str
    extract: CallPrompt
    repair: CallPrompt
    align: CallPrompt
    review: CallPrompt
    pronouns: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()


# The slots that each of these prompts must hold.
EXTRACTION_SLOTS = {
    "extract": ("relations", "records"),
    "repair": ("relations", "records", "fault"),
    "align": ("relation", "known"),
    "review": ("records", "readings"),
}


class EditedCatalogue(Record, frozen=True):
    """Relations as a person arranged them: the names that extraction found, by the name that they shall have.

    of: digest of the catalogue that was edited (names.jsonl); empty for one written by hand, which may serve several runs and
    so may list names that one of them does not have.
    """

    relations: dict[str, tuple[str, ...]]
    of: str = ""


class Extractor(ExtractorNumbers, frozen=True, kw_only=True):
    """The same, resolved."""

    reader: Reader
    prompt: ExtractionPrompt
    catalogue: EditedCatalogue | None = None


class PipelineNumbers(Record, frozen=True):
    """Settings of query-time pipelines (spec §9; the papers' numbers where they name one).

    k: records or chunks retrieved. hops: planned hops at most. missing: what happens to a hop whose dependency has no answer:
    it is skipped (the second paper's text), or ends the chain (its pseudo-code). foreign: what happens to candidates whose
    position was not shown, whose entity does not stand in the record, or whose text is no part of it. output_cap: tokens of a
    structured call; answer_cap: of a direct answer; input_cap: of any call. temperature, seed: of the one arm that samples;
    each of its calls makes its own seed of this one. constrained: as in extraction.
    """

    k: int = 10
    hops: int = 8
    missing: Literal["skip", "stop"] = "skip"
    foreign: Literal["drop", "keep"] = "drop"
    output_cap: int = 1_024
    answer_cap: int = 64
    input_cap: int = 16_384
    temperature: str = "0.7"
    seed: int = 7
    constrained: bool = True


class PipelinePrompt(Record, frozen=True):
    """The prompts of query-time pipelines, one for each kind of call; their slots are those of `PIPELINE_SLOTS`."""

    name: str
    candidates: CallPrompt
    choose: CallPrompt
    decompose: CallPrompt


# What vLLM raises a smaller temperature to.
LEAST_TEMPERATURE = Decimal("0.01")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]?)(?:\.[0-9]{1,18})?")

# The slots that each of these prompts must hold.
PIPELINE_SLOTS = {"candidates": ("evidence", "question"), "choose": ("candidates", "question"), "decompose": ("question",)}


class PipelineUse(PipelineNumbers, frozen=True):
    """How an experiment runs pipelines. prompt: a name in configs/prompts; direct answers use the reader's own prompt."""

    prompt: str = "pipelines"


class PipelineSettings(PipelineNumbers, frozen=True, kw_only=True):
    """The same, resolved."""

    prompt: PipelinePrompt


def resolve_extractor(use: ExtractorUse, where: str) -> Extractor:
    """The section with its reader, prompt and catalogue read; ConfigurationError for what cannot be used."""
    beside = Path(where).parent
    reader = use.reader if isinstance(use.reader, Reader) else load_yaml(find_config("readers", use.reader, beside), Reader)
    numbers = {name: getattr(use, name) for name in ExtractorNumbers.__struct_fields__}
    for name in ("statements", "wave", "output_cap", "input_cap", "shown", "examples"):
        check(numbers[name] > 0, f"{where}: extractor: {name} must be positive")
    check(use.statements <= MOST_STATEMENTS, f"{where}: extractor: statements of one call go up to {MOST_STATEMENTS}")
    edited = None if use.catalogue is None else load_yaml(beside / use.catalogue, EditedCatalogue)
    if edited is not None:
        _check_catalogue(edited, f"{where}: extractor: the catalogue {use.catalogue}")
    prompt = load_yaml(find_config("prompts", use.prompt, beside), ExtractionPrompt)
    _check_slots(prompt, EXTRACTION_SLOTS, where)
    # A call's own cap counts; this is the largest, and what an input may have is bounded twice.
    reader = _for_calls(reader, use.output_cap, use.input_cap)
    check_reader(reader, f"{where}: extractor")
    return Extractor(
        reader=reader,
        prompt=prompt,
        catalogue=edited,
        **numbers,
    )


def _check_catalogue(edited: EditedCatalogue, where: str) -> None:
    """ConfigurationError for a relation without a name."""
    for relation in edited.relations:
        named = entity_key(relation) and relation == " ".join(relation.split())
        check(bool(named), f"{where} has a relation {relation!r}: give it a name of letters or digits with single blanks")


def _for_calls(reader: Reader, output_cap: int, input_cap: int) -> Reader:
    """A reader as the calls of an algorithm use it; no certificate is made of those."""
    return msgspec.structs.replace(reader, output_cap=output_cap, input_cap=min(reader.input_cap, input_cap), probe=UNSET)


def pipeline_reader(reader: Reader, settings: PipelineNumbers) -> Reader:
    """A reader as its pipelines call it."""
    return _for_calls(reader, max(settings.output_cap, settings.answer_cap), settings.input_cap)


def resolve_pipelines(use: PipelineUse, where: str) -> PipelineSettings:
    """The section with its prompt read; ConfigurationError for what cannot be used."""
    numbers = {name: getattr(use, name) for name in PipelineNumbers.__struct_fields__}
    for name in ("k", "hops", "output_cap", "answer_cap", "input_cap"):
        check(numbers[name] > 0, f"{where}: pipelines: {name} must be positive")
    check(
        _is_temperature(use.temperature),
        f"{where}: pipelines: temperature {use.temperature!r} is no plain decimal from {LEAST_TEMPERATURE} to below 100",
    )
    check(0 <= use.seed < 1 << 63, f"{where}: pipelines: seed {use.seed} does not lie in 0..2^63-1")
    prompt = load_yaml(find_config("prompts", use.prompt, Path(where).parent), PipelinePrompt)
    _check_slots(prompt, PIPELINE_SLOTS, where)
    return PipelineSettings(prompt=prompt, **numbers)


def _check_slots(prompt: ExtractionPrompt | PipelinePrompt, slots: Mapping[str, tuple[str, ...]], where: str) -> None:
    """ConfigurationError for a prompt whose `user` lacks a slot: its calls would be made without what they are about."""
    for call, names in slots.items():
        for name in names:
            check(
                f"{{{name}}}" in getattr(prompt, call).user,
                f"{where}: prompt {prompt.name!r}: `user` of {call} must hold {{{name}}}",
            )


def _is_temperature(text: str) -> bool:
    return bool(_DECIMAL.fullmatch(text)) and Decimal(text) >= LEAST_TEMPERATURE
