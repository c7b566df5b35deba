"""The grammar frontend: literal sentence forms, the longest literal text first.

A form is literal text around `{subject}` and `{object}`, or, for texts without a fact, around any number of `{any}`. A slot
holds one line, since a form cannot tell how much of a two-line statement belongs to it. Matching searches strings, without
regular expressions, in time linear in the statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from offline.config.experiment import ResolvedExperiment
from offline.config.frontend import GrammarForms
from offline.entity_keys import entity_key
from offline.errors import ConfigurationError
from offline.records import Extraction, Relation, StatementExtraction, Triple
from offline.render import one_line

_SLOTS = {"{subject}", "{object}"}


@dataclass(frozen=True)
class Form:
    """A compiled form: literals around its slots, `literals[0] slot[0] literals[1] slot[1] … literals[-1]`."""

    name: str
    status: Literal["facts", "unresolved", "no_fact"]
    slots: tuple[str, ...]
    literals: tuple[str, ...]

    @property
    def weight(self) -> int:
        """Characters of literal text; heavier forms are tried first."""
        return sum(map(len, self.literals))

    @property
    def words(self) -> str:
        """The form without its slots and its final full stop."""
        return " ".join("".join(part + " " for part in self.literals).split()).removesuffix(".").strip()

    def match(self, text: str) -> tuple[str, ...] | None:
        """The slots' texts, each inner literal at its first place; None if the form does not fit."""
        if not self.slots:
            return () if text == self.literals[0] else None
        first, *inner, last = self.literals
        if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
            return None
        begin, end = len(first), len(text) - len(last)
        values = []
        for literal in inner:
            found = text.find(literal, begin + 1, end)
            if found < 0:
                return None
            values.append(text[begin:found])
            begin = found + len(literal)
        values.append(text[begin:end])
        return tuple(values) if all(value.strip() and one_line(value) == value for value in values) else None


def _compile(name: str, status: Literal["facts", "unresolved", "no_fact"], form: str, where: str) -> Form:
    slots, literals, rest = [], [], form
    while "{" in rest:
        literal, _, rest = rest.partition("{")
        slot, closed, rest = rest.partition("}")
        if not closed:
            raise ConfigurationError(f"{where}: form {form!r} opens a slot and does not close it")
        literals.append(literal)
        slots.append("{" + slot + "}")
    literals.append(rest)
    if status == "facts" and sorted(slots) != sorted(_SLOTS):
        raise ConfigurationError(f"{where}: form {form!r} must hold {{object}} and {{subject}}, each once")
    if status != "facts" and (strange := sorted({*slots} - {"{any}"})):
        raise ConfigurationError(f"{where}: form {form!r} states no fact, so it has no {strange[0]}; its slots are all {{any}}")
    if not form.strip():
        raise ConfigurationError(f"{where}: an empty form; remove it")
    if any(not literal for literal in literals[1:-1]):
        raise ConfigurationError(f"{where}: form {form!r} has two slots with nothing between them")
    return Form(name, status, tuple(slots), tuple(literals))


def compile_forms(grammar: GrammarForms) -> tuple[Form, ...]:
    """All forms, heaviest first, ties by name; ConfigurationError for one that is unusable or ambiguous."""
    where = f"grammar {grammar.name!r}"
    forms = [
        _compile(name, "facts", form, f"{where}, relation {name!r}")
        for name, given in grammar.relations.items()
        for form in given
    ]
    forms += [_compile("no_fact", "no_fact", form, f"{where}, no_fact") for form in grammar.no_fact]
    forms += [_compile("unresolved", "unresolved", form, f"{where}, unresolved") for form in grammar.unresolved]
    seen: dict[tuple[str, ...], Form] = {}
    for form in forms:
        other = seen.setdefault(form.literals, form)
        if (other.name, other.slots) != (form.name, form.slots):
            raise ConfigurationError(f"{where}: {other.name!r} and {form.name!r} share one form; make them one relation")
    return tuple(sorted(forms, key=lambda form: (-form.weight, form.name, form.literals)))


def parse_statement(text: str, forms: Sequence[Form]) -> StatementExtraction:
    """The reading by the first form that fits; unresolved if none does, or if subject or object has no letter or digit."""
    for form in forms:
        values = form.match(text)
        if values is None:
            continue
        if form.status == "no_fact":
            return StatementExtraction(text=text, status="no_fact", reason="a form without a fact")
        if form.status == "unresolved":
            return StatementExtraction(text=text, status="unresolved", reason="a form that is left to the reader")
        slots = dict(zip(form.slots, values, strict=True))
        triple = Triple(subject=slots["{subject}"], relation=form.name, object=slots["{object}"])
        if not entity_key(triple.subject) or not entity_key(triple.object):
            return StatementExtraction(text=text, status="unresolved", reason="an empty subject or object")
        return StatementExtraction(text=text, status="facts", triples=(triple,))
    return StatementExtraction(text=text, status="unresolved", reason="no form fits")


def grammar(texts: Sequence[str], experiment: ResolvedExperiment) -> Extraction:
    """Parse every text with the experiment's grammar."""
    assert experiment.grammar is not None
    forms = compile_forms(experiment.grammar)
    words: dict[str, list[str]] = {}
    for form in forms:
        if form.status == "facts":
            words.setdefault(form.name, []).append(form.words)
    return Extraction(
        statements=tuple(parse_statement(text, forms) for text in texts),
        relations=tuple(Relation(name=name, words="; ".join(sorted(words[name]))) for name in sorted(words)),
    )
