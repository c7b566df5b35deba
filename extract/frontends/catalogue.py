"""The catalogue of relation names: it grows wave by wave, and synonyms are mapped to one name.

The model is shown source examples only: of a new name, and of the known names most like it. A name is mapped once, when it is
new, to an earlier name, so mappings never form a circle.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

import numpy as np

from extract.frontends.examples import WIDTHS, excerpt, first_with_room
from extract.frontends.records import CatalogueName, Draft, Example
from extract.frontends.statement_calls import json_line, quarter
from extract.json_answers import read_number
from offline.config.calls import Extractor
from offline.retrievers.bm25 import BM25, unicode_tokens
from readers.calls.caller import Ask, Caller, chat
from readers.records import Decoding, Prediction

# Examples kept of a name, and known names that a new one is compared with, one example each, which is most of a comparison's
# cost. Fewer where a call has no room.
EXAMPLES, COMPARED = 3, 8
# The choice for "none of the known names".
NONE = "none of these"
T = TypeVar("T")
# Output tokens of an answer that is one number.
_ANSWER = 24


@dataclass
class _Name:
    facts: int = 0
    examples: list[Example] = field(default_factory=list)
    into: str | None = None
    calls: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    fault: str | None = None


class Catalogue:
    """Relation names in order of first appearance."""

    def __init__(self, extractor: Extractor, caller: Caller) -> None:
        self._extractor = extractor
        self._caller = caller
        self._names: dict[str, _Name] = {}

    def root(self, name: str) -> str:
        """The name that stands for this one."""
        while (known := self._names.get(name)) is not None and known.into is not None:
            name = known.into
        return name

    def shown(self) -> str:
        """The names for a prompt, as JSON: those with most facts, as many as the settings allow and a call has room for."""
        facts: Counter[str] = Counter()
        for name, known in self._names.items():
            facts[self.root(name)] += known.facts
        # Ties keep the order of first appearance.
        names = [name for name, _ in facts.most_common(self._extractor.shown)]
        used = accumulate(self._caller.count(json_line(name)) for name in names)
        room = quarter(self._extractor, self._caller)
        return json_line([name for name, size in zip(names, used, strict=True) if size <= room])

    def add(self, drafts: Sequence[Draft]) -> None:
        """Add the names of a wave's drafts, and let the model map the new ones."""
        new = []
        for draft in drafts:
            for triple in draft.triples:
                if triple.relation not in self._names:
                    new.append(triple.relation)
                known = self._names.setdefault(triple.relation, _Name())
                known.facts += 1
                example = Example(draft.text, triple.subject, triple.object)
                if len(known.examples) < EXAMPLES and example not in known.examples:
                    known.examples.append(example)
        if self._extractor.align:
            self._align(new)

    def _align(self, new: Sequence[str]) -> None:
        """Compare each new name with those before it, all in one wave; answers are taken in order.

        Each name is compared twice, with every choice at another place the second time: weak models choose by place, so an
        answer counts only if both agree.
        """
        if not new:
            return
        names = list(self._names)
        place = {name: number for number, name in enumerate(names)}
        # One index for the wave: a name is compared with those before it, some of the same wave.
        index = BM25([self._words(name) for name in names], unicode_tokens)
        standing = np.array([number for number, known in enumerate(self._names.values()) if known.into is None])
        compared: list[tuple[str, list[str | None]]] = []
        asks: list[Ask] = []
        for name in new:
            before = standing[: np.searchsorted(standing, place[name])]
            if shown := [names[i] for i in index.rank_among(before, self._words(name), COMPARED)]:
                choices, both = first_with_room(self._caller, self._comparisons(name, shown))
                self._names[name].shown = tuple(filter(None, choices))
                compared.append((name, choices))
                asks += both
        predictions = iter(self._caller.ask(asks))
        for name, choices in compared:
            known = self._names[name]
            there, back = next(predictions), next(predictions)
            known.calls = (there.request, back.request)
            one, fault = chosen(there, "same", choices)
            other, other_fault = chosen(back, "same", turned(choices))
            known.fault = fault or other_fault
            if known.fault is None and one != other:
                known.fault = f"{one or NONE!r} was chosen, and in another order {other or NONE!r}"
            elif known.fault is None and one is not None:
                known.into = self.root(one)

    def _words(self, name: str) -> str:
        """The text by which BM25 compares a name: the name, and its examples without their subjects and objects."""
        examples = self._names[name].examples
        return " ".join([name, *(e.text.replace(e.subject, " ").replace(e.object, " ") for e in examples)])

    def _comparisons(self, name: str, shown: Sequence[str]) -> Iterator[tuple[list[str | None], tuple[Ask, Ask]]]:
        """A name's choices and the two calls that compare it with them, in ever fewer words.

        First the name has fewer examples, then the examples are cut around subject and object, where a relation is worded.
        Known names go last, the least alike first, since a name that is not shown cannot be chosen.
        """
        whole = [(most, None, len(shown)) for most in range(len(self._names[name].examples), 0, -1)]
        cut = [(1, width, len(shown)) for width in WIDTHS]
        fewer = [(1, WIDTHS[-1], count) for count in range(len(shown) - 1, 0, -1)]
        for most, width, count in (*whole, *cut, *fewer):
            choices = [None, *shown[:count]]
            yield choices, (self._ask(name, choices, most, width), self._ask(name, turned(choices), most, width))

    def _ask(self, name: str, choices: Sequence[str | None], most: int, width: int | None) -> Ask:
        known = "\n".join(f"{n}: {NONE if other is None else self._line(other, 1, width)}" for n, other in enumerate(choices))
        values = {"relation": self._line(name, most, width), "known": known}
        return Ask("align", chat(self._extractor.prompt.align, values), choice(self._extractor, "same"))

    def _line(self, name: str, most: int, width: int | None) -> str:
        examples = [
            {"text": excerpt(e.text, (e.subject, e.object), width), "subject": e.subject, "object": e.object}
            for e in self._names[name].examples[:most]
        ]
        return json_line({"relation": name, "examples": examples})

    def names(self) -> tuple[CatalogueName, ...]:
        """All names and what became of them."""
        return tuple(
            CatalogueName(
                name=name,
                facts=known.facts,
                examples=tuple(known.examples),
                into=known.into,
                calls=known.calls,
                shown=known.shown,
                fault=known.fault,
            )
            for name, known in self._names.items()
        )


def turned(choices: list[T]) -> list[T]:
    """The choices in another order, in which each stands at another place; there must be two or more."""
    half = len(choices) // 2
    return choices[half:] + choices[:half]


def chosen(prediction: Prediction, key: str, choices: Sequence[T | None]) -> tuple[T | None, str | None]:
    """The chosen item (None for none of them), and the answer's fault or None."""
    number, fault = read_number(prediction, key, len(choices) - 1)
    return (None if number is None else choices[number]), fault


def choice(extractor: Extractor, key: str) -> Decoding:
    """The decoding of an answer that is one number, 0 to `COMPARED`: one schema, so that all such calls share batches."""
    schema = {
        "type": "object",
        "properties": {key: {"enum": list(range(COMPARED + 1))}},
        "required": [key],
        "additionalProperties": False,
    }
    cap = min(_ANSWER, extractor.output_cap)
    return Decoding(output_cap=cap, schema=json.dumps(schema, separators=(",", ":")) if extractor.constrained else None)
