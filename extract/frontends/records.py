"""The records of extraction by a model."""

from typing import Literal

from offline.canonical import Record
from offline.records import Extraction, Status, Triple


class Draft(Record, frozen=True):
    """One statement as it was read, with the relation names that it was read with, before any were mapped to others.

    by: `model`; `repair`, the model's second answer; `form`, a form that was induced; `review`, a form that the model chose
    among several; `code`, where no model was asked or none gave a valid answer. call: digest of the call that it rests on, of
    the one that failed last if `by` is code, None if none was made. reason: why its status is not `facts`.
    """

    text: str
    status: Status
    triples: tuple[Triple, ...]
    reason: str | None
    by: Literal["model", "repair", "form", "review", "code"]
    call: str | None
    format: Literal[1] = 1


class Example(Record, frozen=True):
    """A statement in which a relation name was found, with its two ends."""

    text: str
    subject: str
    object: str


class CatalogueName(Record, frozen=True):
    """A relation name in order of first appearance, and what became of it.

    facts: triples that were read with it. into: the name that it was mapped to, None if it stands for itself. calls: digests of
    the two that compared it with others, none if none did. shown: those, in the order of the first call; the second had
    another one. fault: what was wrong with an answer, or that the two disagree.
    """

    name: str
    facts: int
    examples: tuple[Example, ...]
    into: str | None = None
    calls: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    fault: str | None = None
    format: Literal[1] = 1


class InducedForm(Record, frozen=True):
    """A literal form learnt from examples: `{subject}` and `{object}` stand in its text.

    relation: the name that most of its examples were read with, before any was mapped. examples: statements that the model
    read so. readings: how many ways there were to read this form's statements; where there was more than one, `call` is the
    digest of the first of the two calls that chose this one.
    """

    form: str
    relation: str
    examples: int
    readings: int = 1
    call: str | None = None
    format: Literal[1] = 1


class Extracted(Record, frozen=True):
    """Everything that extraction by a model gives: the extraction, and how it came about."""

    extraction: Extraction
    drafts: tuple[Draft, ...]
    names: tuple[CatalogueName, ...]
    forms: tuple[InducedForm, ...] = ()
