"""Literal forms learnt from a model's readings: statements that differ only in subject and object are read alike.

A form is trusted when at least `examples` statements with distinct subjects support it and when, on every other statement it
matches that has facts, its triple is one of them. If readings of one form disagree, the model may be asked for the right one,
twice and in different orders; its other statements are then revised. Forms read names, not sentences: a reading does not count
if its subject or object has a lower-case word that occurs in no name that the model read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from extract.frontends.catalogue import COMPARED, Catalogue, choice, chosen, turned
from extract.frontends.checks import lower_case_words, span_fault
from extract.frontends.examples import WIDTHS, excerpt, first_with_room
from extract.frontends.grammar import Form, parse_statement
from extract.frontends.records import Draft, InducedForm
from extract.frontends.statement_calls import json_line, settle
from offline.config.calls import Extractor
from offline.entity_keys import entity_key
from offline.records import Triple
from readers.calls.caller import Ask, Caller, chat

# Statements of a form that a review shows; fewer where a call has no room.
SHOWN = 6
SUBJECT, OBJECT = "{subject}", "{object}"
# Literal texts around subject and object, in order.
Literals = tuple[str, str, str]
# A relation, and the order of subject and object.
Reading = tuple[str, tuple[str, str]]
# A form's statements, by the model's reading.
Readings = dict[Reading, list[Draft]]
# The choice for "none of these readings".
NO_SINGLE_ONE = "no single one"


def cut_out(text: str, triple: Triple) -> tuple[Literals, tuple[str, str]] | None:
    """The literal texts around a triple's ends, and their order; None if an end occurs twice or the ends do not separate."""
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
    """The model's verdict on a form whose readings disagree."""

    reading: Reading | None  # chosen both times, if any
    call: str  # digest of the first call


class Forms:
    """The forms that are trusted so far, and their evidence."""

    def __init__(self, extractor: Extractor, caller: Caller, catalogue: Catalogue) -> None:
        self._extractor = extractor
        self._caller = caller
        self._catalogue = catalogue
        self._reviewed: dict[Literals, Reviewed] = {}
        self._trusted: tuple[Form, ...] = ()
        # Lower-case words of the names that the model read.
        self._words: set[str] = set()
        # Readings by the trusted forms.
        self._fitting: dict[str, Draft | None] = {}
        self._induced: tuple[InducedForm, ...] = ()

    def read(self, text: str) -> Draft | None:
        """The draft that a trusted form gives; None if no form fits, or if its subject or object cannot be a name."""
        if text not in self._fitting:
            self._fitting[text] = self._parse(text)
        draft = self._fitting[text]
        return draft if draft is not None and self._names(draft.triples) else None

    def _parse(self, text: str) -> Draft | None:
        triple = _reads(self._trusted, text)
        if triple is None:
            return None
        return settle(text, (triple,), self._extractor.prompt, Draft(text, "facts", (triple,), None, "form", None))

    def learn(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Induce forms from all drafts as the model gave them; return the drafts, revised where a review decided otherwise."""
        places = {d.text: place for d in drafts if len(d.triples) == 1 and (place := cut_out(d.text, d.triples[0])) is not None}
        groups: dict[Literals, Readings] = {}
        for draft in drafts:
            if draft.text in places:
                literals, order = places[draft.text]
                reading = (self._rooted(draft.triples[0]).relation, order)
                groups.setdefault(literals, {}).setdefault(reading, []).append(draft)
        if self._extractor.conflicts:
            self._review(groups)
        found = {literals: self._agreed(literals, readings) for literals, readings in groups.items()}
        agreed = {literals: reading for literals, reading in found.items() if reading is not None}
        revised = [self._revised(draft, places.get(draft.text), groups, agreed) for draft in drafts]
        self._words = _small_words(triple for draft in revised for triple in draft.triples)
        self._trust(agreed, groups, {draft.text: [*map(self._rooted, draft.triples)] for draft in revised if draft.triples})
        return revised

    def induced(self) -> tuple[InducedForm, ...]:
        """The trusted forms, heaviest first."""
        return self._induced

    def _names(self, triples: Sequence[Triple]) -> bool:
        """True if these ends can be names: each lower-case word occurs in a name that the model read."""
        return _small_words(triples) <= self._words

    def _rooted(self, triple: Triple) -> Triple:
        return Triple(triple.subject, self._catalogue.root(triple.relation), triple.object)

    def _agreed(self, literals: Literals, readings: Readings) -> Reading | None:
        """The reading of a form's statements that is unanimous or was chosen by a review, if enough subjects support it."""
        reading: Reading | None = next(iter(readings))
        if len(readings) > 1:
            reviewed = self._reviewed.get(literals)
            reading = None if reviewed is None else reviewed.reading
        if reading is None:
            return None
        subjects = {entity_key(draft.triples[0].subject) for draft in readings[reading]}
        return reading if len(subjects) >= self._extractor.examples else None

    def _review(self, groups: dict[Literals, Readings]) -> None:
        """Ask once, in two orders, about each form with enough statements and more than one reading."""
        disputed: list[tuple[Literals, list[Reading | None]]] = []
        asks: list[Ask] = []
        for literals, readings in groups.items():
            enough = sum(map(len, readings.values())) >= self._extractor.examples
            if len(readings) > 1 and enough and literals not in self._reviewed:
                # The most frequent reading first; ties in order of appearance.
                often = sorted(readings, key=lambda reading: -len(readings[reading]))[:COMPARED]
                choices, both = first_with_room(self._caller, self._reviews(readings, often))
                disputed.append((literals, choices))
                asks += both
        predictions = iter(self._caller.ask(asks))
        for literals, choices in disputed:
            there, back = next(predictions), next(predictions)
            one, other = chosen(there, "reading", choices)[0], chosen(back, "reading", turned(choices))[0]
            self._reviewed[literals] = Reviewed(one if one == other else None, there.request)

    def _reviews(self, readings: Readings, often: Sequence[Reading]) -> Iterator[tuple[list[Reading | None], tuple[Ask, Ask]]]:
        """The contents of a review, fullest first: fewer records, then one cut around its ends, then fewer readings."""
        whole = [(shown, None, len(often)) for shown in range(SHOWN, 0, -1)]
        cut = [(1, width, len(often)) for width in WIDTHS]
        fewer = [(1, WIDTHS[-1], count) for count in range(len(often) - 1, 1, -1)]
        for shown, width, count in (*whole, *cut, *fewer):
            choices = [None, *often[:count]]
            yield choices, (self._ask(choices, readings, shown, width), self._ask(turned(choices), readings, shown, width))

    def _ask(self, choices: Sequence[Reading | None], readings: Readings, shown: int, width: int | None) -> Ask:
        drafts = islice((draft for found in readings.values() for draft in found), shown)
        lines = (NO_SINGLE_ONE if of is None else self._line(of, readings[of][0], width) for of in choices)
        values = {
            "records": "\n".join(json_line(_excerpt(draft, width)) for draft in drafts),
            "readings": "\n".join(f"{number}: {line}" for number, line in enumerate(lines)),
        }
        return Ask("review", chat(self._extractor.prompt.review, values), choice(self._extractor, "reading"))

    def _line(self, reading: Reading, draft: Draft, width: int | None) -> str:
        relation, (first, _) = reading
        return json_line({"relation": relation, "first in the text": first[1:-1], "example": _excerpt(draft, width)})

    def _trust(self, agreed: dict[Literals, Reading], groups: dict[Literals, Readings], left: dict[str, list[Triple]]) -> None:
        """Trust the agreed forms whose every match in `left` is one of its facts; heaviest first, as in parsing."""
        trusted: list[Form] = []
        induced: list[InducedForm] = []
        # Under the model's own name: a person may separate names that the model mapped to one.
        forms = [
            (Form(_usual_name(groups[literals][reading]), "facts", reading[1], literals), literals)
            for literals, reading in agreed.items()
        ]
        for form, literals in sorted(forms, key=lambda pair: (-pair[0].weight, pair[0].name, pair[0].literals)):
            fitting = {text: t for text in left if (t := _reads([form], text)) is not None and self._names([t])}
            if any(self._rooted(triple) not in left[text] for text, triple in fitting.items()):
                continue
            trusted.append(form)
            left = {text: triples for text, triples in left.items() if text not in fitting}
            readings, reviewed = groups[literals], self._reviewed.get(literals)
            induced.append(
                InducedForm(
                    form=_written(form),
                    relation=form.name,
                    examples=len(readings[agreed[literals]]),
                    readings=len(readings),
                    call=reviewed.call if reviewed is not None and len(readings) > 1 else None,
                )
            )
        if tuple(trusted) != self._trusted:
            self._fitting.clear()
        self._trusted, self._induced = tuple(trusted), tuple(induced)

    def _revised(
        self,
        draft: Draft,
        place: tuple[Literals, tuple[str, str]] | None,
        groups: dict[Literals, Readings],
        agreed: dict[Literals, Reading],
    ) -> Draft:
        if place is None or place[0] not in agreed or place[0] not in self._reviewed:
            return draft
        literals, order = place
        (triple,) = draft.triples
        first, second = (triple.subject, triple.object) if order[0] == SUBJECT else (triple.object, triple.subject)
        relation, wanted = agreed[literals]
        if (self._rooted(triple).relation, order) == (relation, wanted):
            return draft
        subject, value = (first, second) if wanted[0] == SUBJECT else (second, first)
        again = Triple(subject, _usual_name(groups[literals][agreed[literals]]), value)
        call = self._reviewed[literals].call
        return settle(draft.text, (again,), self._extractor.prompt, Draft(draft.text, "facts", (again,), None, "review", call))


def _small_words(triples: Iterable[Triple]) -> set[str]:
    """The lower-case words of all subjects and objects."""
    return {word for triple in triples for end in (triple.subject, triple.object) for word in lower_case_words(end)}


def _excerpt(draft: Draft, width: int | None) -> str:
    (triple,) = draft.triples
    return excerpt(draft.text, (triple.subject, triple.object), width)


def _usual_name(drafts: Sequence[Draft]) -> str:
    """The relation name of most of these readings; ties go to the first."""
    return Counter(draft.triples[0].relation for draft in drafts).most_common(1)[0][0]


def _reads(forms: Sequence[Form], text: str) -> Triple | None:
    """The triple by the first form that fits; None if none fits, or if the triple fails the checks of a model's."""
    found = parse_statement(text, forms)
    return next((triple for triple in found.triples if span_fault(text, triple) is None), None)


def _written(form: Form) -> str:
    """A form in the notation of grammars."""
    parts: Iterable[str] = (part + slot for part, slot in zip(form.literals, (*form.slots, ""), strict=True))
    return "".join(parts)
