"""Records of extraction by a model."""

from typing import Literal

from offline.canonical import Record
from offline.records import Extraction, Status, Triple


class Draft(Record, frozen=True):
    """One statement as it was read, before its relation names were mapped to others."""

    text: str
    status: Status
    triples: tuple[Triple, ...]
    reason: str | None  # why the status is not `facts`
    by: Literal["model", "repair", "form", "review", "code"]  # repair: second answer; review: chosen form; code: none valid
    call: str | None  # digest of its call (the last one that failed if `by` is code); None if none was made
    format: Literal[1] = 1


class Example(Record, frozen=True):
    """A statement in which a relation name was found, with its two ends."""

    text: str
    subject: str
    object: str


class CatalogueName(Record, frozen=True):
    """A relation name in order of first appearance, and what became of it."""

    name: str
    facts: int  # triples read with it
    examples: tuple[Example, ...]
    into: str | None = None  # the name that it was mapped to; None if it stands for itself
    calls: tuple[str, ...] = ()  # digests of the two comparisons with other names; empty if there were none
    shown: tuple[str, ...] = ()  # those names, in the first call's order
    fault: str | None = None  # of an answer, or that the two disagree
    format: Literal[1] = 1


class InducedForm(Record, frozen=True):
    """A literal form learnt from examples."""

    form: str  # text with `{subject}` and `{object}`
    relation: str  # the name that most examples were read with, before any was mapped
    examples: int  # statements that the model read so
    readings: int = 1  # different readings of this form's statements
    call: str | None = None  # if several, digest of the first of the two calls that chose this one
    format: Literal[1] = 1


class Extracted(Record, frozen=True):
    """An extraction by a model, and how it came about."""

    extraction: Extraction
    drafts: tuple[Draft, ...]
    names: tuple[CatalogueName, ...]
    forms: tuple[InducedForm, ...] = ()
