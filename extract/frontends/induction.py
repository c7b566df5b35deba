"""Literal forms learnt from what a model read: of statements that differ in their two ends alone, the same reading.

A form is trusted if enough statements of different subjects were read by it, all alike, and if of every other statement with
facts that it fits it reads one of those facts. Where readings of one form disagree, the model may be asked which is right; the
others of its statements are then read anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from extract.answers import read_number
from extract.frontends.batches import json_line, settle
from extract.frontends.catalogue import COMPARED, Catalogue, choice
from extract.frontends.grammar import Form, parse_statement
from extract.frontends.guards import span_fault
from extract.frontends.records import Draft, InducedForm
from offline.asking import Extractor
from offline.normalise import entity_key
from offline.records import Triple
from readers.calls import Ask, Caller, chat

# Statements of a form that a review is shown.
SHOWN = 6
SUBJECT, OBJECT = "{subject}", "{object}"
# Literal texts around the two ends, in order.
Literals = tuple[str, str, str]
# A relation and which end comes first.
Reading = tuple[str, tuple[str, str]]


def cut_out(text: str, triple: Triple) -> tuple[Literals, tuple[str, str]] | None:
    """The literal texts around a triple's ends, and which comes first; None where an end could be cut out in two places."""
    if text.count(triple.subject) != 1 or text.count(triple.object) != 1:
        return None
    s, o = text.index(triple.subject), text.index(triple.object)
    ends = sorted([(s, s + len(triple.subject), SUBJECT), (o, o + len(triple.object), OBJECT)])
    (a, b, first), (c, d, second) = ends
    if b > c or not text[b:c] or not entity_key(text[:a] + text[b:c] + text[d:]):
        return None
    return (text[:a], text[b:c], text[d:]), (first, second)


@dataclass(frozen=True)
class Reviewed:
    """What the model said of a form whose readings disagree: the reading it chose, if any, and by which call."""

    reading: Reading | None
    call: str


class Forms:
    """The forms that are trusted so far, and what they rest on."""

    def __init__(self, extractor: Extractor, caller: Caller, catalogue: Catalogue) -> None:
        self._extractor = extractor
        self._caller = caller
        self._catalogue = catalogue
        self._reviewed: dict[Literals, Reviewed] = {}
        self._trusted: tuple[Form, ...] = ()
        # What the trusted forms give, by text.
        self._given: dict[str, Draft | None] = {}
        self._induced: tuple[InducedForm, ...] = ()

    def read(self, text: str) -> Draft | None:
        """The draft that a trusted form gives; None if none fits, or the one that does gives what a model may not."""
        if text not in self._given:
            self._given[text] = self._parse(text)
        return self._given[text]

    def _parse(self, text: str) -> Draft | None:
        triple = _reads(self._trusted, text)
        if triple is None:
            return None
        return settle(text, (triple,), self._extractor.prompt, Draft(text, "facts", (triple,), None, "form", None))

    def learn(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Induce forms from all drafts as the model gave them; the drafts, those revised that a review decided otherwise."""
        read = {draft.text: self._triples(draft)[0] for draft in drafts if len(draft.triples) == 1}
        places = {text: place for text, triple in read.items() if (place := cut_out(text, triple)) is not None}
        groups: dict[Literals, dict[Reading, list[str]]] = {}
        for text, (literals, order) in places.items():
            groups.setdefault(literals, {}).setdefault((read[text].relation, order), []).append(text)
        if self._extractor.conflicts:
            self._review(groups)
        candidates = {literals: self._reading(literals, readings, read) for literals, readings in groups.items()}
        revised = [self._revised(draft, places, candidates) for draft in drafts]
        self._trust(candidates, groups, {draft.text: self._triples(draft) for draft in revised if draft.triples})
        return revised

    def induced(self) -> tuple[InducedForm, ...]:
        """The trusted forms, heaviest first."""
        return self._induced

    def _triples(self, draft: Draft) -> list[Triple]:
        return [Triple(t.subject, self._catalogue.root(t.relation), t.object) for t in draft.triples]

    def _reading(self, literals: Literals, readings: dict[Reading, list[str]], read: dict[str, Triple]) -> Reading | None:
        """How a form's statements are read, if that is agreed upon and enough subjects speak for it."""
        if len(readings) > 1:
            reviewed = self._reviewed.get(literals)
            return reviewed.reading if reviewed is not None else None
        ((reading, texts),) = readings.items()
        subjects = {entity_key(read[text].subject) for text in texts}
        return reading if len(subjects) >= self._extractor.examples else None

    def _review(self, groups: dict[Literals, dict[Reading, list[str]]]) -> None:
        """Ask once about each form that has enough statements and more than one reading."""
        asks: list[tuple[Literals, list[Reading], Ask]] = []
        for literals, readings in groups.items():
            enough = sum(map(len, readings.values())) >= self._extractor.examples
            if len(readings) > 1 and enough and literals not in self._reviewed:
                # Most often read so first; equal ones in order of appearance.
                choices = sorted(readings, key=lambda reading: -len(readings[reading]))[:COMPARED]
                asks.append((literals, choices, self._ask(choices, readings)))
        predictions = self._caller.ask([ask for _, _, ask in asks])
        for (literals, choices, _), prediction in zip(asks, predictions, strict=True):
            number, _ = read_number(prediction, "reading", len(choices))
            self._reviewed[literals] = Reviewed(choices[number - 1] if number else None, prediction.request)

    def _ask(self, choices: Sequence[Reading], readings: dict[Reading, list[str]]) -> Ask:
        texts = islice((text for reading in choices for text in readings[reading]), SHOWN)
        lines = "\n".join(f"{number}: {self._line(reading, readings[reading][0])}" for number, reading in enumerate(choices, 1))
        values = {"records": "\n".join(map(json_line, texts)), "readings": lines}
        return Ask("review", chat(self._extractor.prompt.review, values), choice(self._extractor, "reading"))

    def _line(self, reading: Reading, text: str) -> str:
        relation, (first, _) = reading
        return json_line({"relation": relation, "first in the text": first[1:-1], "example": text})

    def _trust(
        self,
        candidates: dict[Literals, Reading | None],
        groups: dict[Literals, dict[Reading, list[str]]],
        left: dict[str, list[Triple]],
    ) -> None:
        """Take those candidates that read all they fit of `left` as one of its facts; heaviest first, as in parsing."""
        trusted: list[Form] = []
        induced: list[InducedForm] = []
        forms = [(Form(chosen[0], "facts", chosen[1], literals), literals) for literals, chosen in candidates.items() if chosen]
        for form, literals in sorted(forms, key=lambda pair: (-pair[0].weight, pair[0].name, pair[0].literals)):
            fitting = {text: triple for text in left if (triple := _reads([form], text)) is not None}
            if any(triple not in left[text] for text, triple in fitting.items()):
                continue
            trusted.append(form)
            left = {text: triples for text, triples in left.items() if text not in fitting}
            readings, reviewed = groups[literals], self._reviewed.get(literals)
            induced.append(
                InducedForm(
                    form=_written(form),
                    relation=form.name,
                    examples=sum(map(len, readings.values())),
                    readings=len(readings),
                    call=reviewed.call if reviewed is not None and len(readings) > 1 else None,
                )
            )
        if tuple(trusted) != self._trusted:
            self._given.clear()
        self._trusted, self._induced = tuple(trusted), tuple(induced)

    def _revised(
        self,
        draft: Draft,
        places: dict[str, tuple[Literals, tuple[str, str]]],
        candidates: dict[Literals, Reading | None],
    ) -> Draft:
        place = places.get(draft.text)
        chosen = None if place is None else candidates[place[0]]
        reviewed = None if place is None else self._reviewed.get(place[0])
        if place is None or chosen is None or reviewed is None:
            return draft
        (triple,) = self._triples(draft)
        first, second = (triple.subject, triple.object) if place[1][0] == SUBJECT else (triple.object, triple.subject)
        subject, value = (first, second) if chosen[1][0] == SUBJECT else (second, first)
        if (again := Triple(subject, chosen[0], value)) == triple:
            return draft
        return settle(
            draft.text, (again,), self._extractor.prompt, Draft(draft.text, "facts", (again,), None, "review", reviewed.call)
        )


def _reads(forms: Sequence[Form], text: str) -> Triple | None:
    """The triple that the first form to fit makes of a text; None if none fits, or if a model may not say so either."""
    found = parse_statement(text, forms)
    return next((triple for triple in found.triples if span_fault(text, triple) is None), None)


def _written(form: Form) -> str:
    """A form as grammars write it."""
    parts: Iterable[str] = (part + slot for part, slot in zip(form.literals, (*form.slots, ""), strict=True))
    return "".join(parts)
