"""Configuration of model calls other than reading: fact extraction and query-time pipelines."""

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
    """The prompt of one stage of an algorithm."""

    system: str
    user: str  # holds the stage's slots in braces


# The most statements in one call: the schema of its answer names each of them.
MOST_STATEMENTS = 1_024


class ExtractorNumbers(Record, frozen=True):
    """Settings of extraction by a model (extract/frontends/llm.py)."""

    statements: int = 16  # in one call
    wave: int = 64  # calls made at once; they are shown the catalogue of the wave before
    output_cap: int = 2_048  # tokens of one call
    input_cap: int = 8_192  # tokens of one call
    constrained: bool = True  # hold answers to a JSON Schema while decoding; they are validated in any case
    repair: bool = True  # ask again, one statement a call, where validation failed
    align: bool = True  # let the model map new relation names to known ones
    shown: int = 40  # the most catalogue names shown to a call
    examples: int = 3  # hybrid frontend: agreeing examples that make a form
    conflicts: bool = True  # hybrid frontend: let the model review a form whose examples disagree


class ExtractorUse(ExtractorNumbers, frozen=True, kw_only=True):
    """An extractor as an experiment names it."""

    reader: str | Reader  # by name or in full
    prompt: str = "extract"  # in configs/prompts
    catalogue: str | None = None  # file of an edited catalogue


class ExtractionPrompt(Record, frozen=True):
    """The prompts of extraction by a model, one for each stage, with the slots of `EXTRACTION_SLOTS`."""

    name: str
    extract: CallPrompt
    repair: CallPrompt
    align: CallPrompt
    review: CallPrompt
    pronouns: tuple[str, ...] = ()  # words that extract/frontends/checks.py looks for; empty = no check
    negations: tuple[str, ...] = ()  # the same


# The slots that each of these prompts must hold.
EXTRACTION_SLOTS = {
    "extract": ("relations", "records"),
    "repair": ("relations", "records", "fault"),
    "align": ("relation", "known"),
    "review": ("records", "readings"),
}


class EditedCatalogue(Record, frozen=True):
    """Relations as edited by a person."""

    relations: dict[str, tuple[str, ...]]  # the names that extraction found, by their new name
    of: str = ""  # digest of the edited names.jsonl; empty if written by hand for several runs, which may lack some names


class Extractor(ExtractorNumbers, frozen=True, kw_only=True):
    """An extractor with its reader, prompt and catalogue resolved."""

    reader: Reader
    prompt: ExtractionPrompt
    catalogue: EditedCatalogue | None = None


class PipelineNumbers(Record, frozen=True):
    """Settings of query-time pipelines (spec §9; the papers' numbers where they give one)."""

    k: int = 10  # records or chunks retrieved
    hops: int = 8  # the most planned hops
    missing: Literal["skip", "stop"] = "skip"  # hop without a dependency's answer: second paper's text, or pseudo-code
    foreign: Literal["drop", "keep"] = "drop"  # candidates that are not what their record says (`Candidate.foreign`)
    output_cap: int = 1_024  # tokens of a structured call
    answer_cap: int = 64  # tokens of a direct answer
    input_cap: int = 16_384  # tokens of any call
    temperature: str = "0.7"  # of the one arm that samples
    seed: int = 7  # of that arm; each call derives its own from it
    constrained: bool = True  # as in extraction


class PipelinePrompt(Record, frozen=True):
    """The prompts of query-time pipelines, one for each kind of call, with the slots of `PIPELINE_SLOTS`."""

    name: str
    candidates: CallPrompt
    choose: CallPrompt
    decompose: CallPrompt


# vLLM raises smaller temperatures to this.
LEAST_TEMPERATURE = Decimal("0.01")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]?)(?:\.[0-9]{1,18})?")

# The slots that each of these prompts must hold.
PIPELINE_SLOTS = {"candidates": ("evidence", "question"), "choose": ("candidates", "question"), "decompose": ("question",)}


class PipelineUse(PipelineNumbers, frozen=True):
    """The pipelines section as an experiment gives it."""

    prompt: str = "pipelines"  # in configs/prompts; direct answers use the reader's own prompt


class PipelineSettings(PipelineNumbers, frozen=True, kw_only=True):
    """The pipelines section with its prompt resolved."""

    prompt: PipelinePrompt


def resolve_extractor(use: ExtractorUse, where: str) -> Extractor:
    """The section with its reader, prompt and catalogue read; ConfigurationError for values that cannot be used."""
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
    # Calls set their own output cap, up to this one; an input is bounded by the reader's cap and by the extractor's.
    reader = _for_calls(reader, use.output_cap, use.input_cap)
    check_reader(reader, f"{where}: extractor")
    return Extractor(
        reader=reader,
        prompt=prompt,
        catalogue=edited,
        **numbers,
    )


def _check_catalogue(edited: EditedCatalogue, where: str) -> None:
    for relation in edited.relations:
        named = entity_key(relation) and relation == " ".join(relation.split())
        check(bool(named), f"{where} has a relation {relation!r}: give it a name of letters or digits with single blanks")


def _for_calls(reader: Reader, output_cap: int, input_cap: int) -> Reader:
    """A reader with the caps of an algorithm's calls, which get no certificate."""
    return msgspec.structs.replace(reader, output_cap=output_cap, input_cap=min(reader.input_cap, input_cap), probe=UNSET)


def pipeline_reader(reader: Reader, settings: PipelineNumbers) -> Reader:
    """The reader as its pipelines call it."""
    return _for_calls(reader, max(settings.output_cap, settings.answer_cap), settings.input_cap)


def resolve_pipelines(use: PipelineUse, where: str) -> PipelineSettings:
    """The section with its prompt read; ConfigurationError for values that cannot be used."""
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
    """ConfigurationError for a prompt whose `user` lacks a slot."""
    for call, names in slots.items():
        for name in names:
            check(
                f"{{{name}}}" in getattr(prompt, call).user,
                f"{where}: prompt {prompt.name!r}: `user` of {call} must hold {{{name}}}",
            )


def _is_temperature(text: str) -> bool:
    return bool(_DECIMAL.fullmatch(text)) and Decimal(text) >= LEAST_TEMPERATURE
