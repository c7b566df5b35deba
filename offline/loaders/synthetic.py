"""A seeded stream in the project's own wording: overwritten facts, distractors, questions of one to four hops.

Right answers are simulated in eval/labels, from events and plans, by code that shares nothing with the graph. The sentence
forms are those of configs/grammars/synthetic.yaml.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from offline.config.frontend import GrammarForms
from offline.config.yaml import check, find_config, load_yaml
from offline.errors import ConfigurationError
from offline.loaders import DataSection, Loaded
from offline.loaders.raw import RawSource
from offline.records import History, HopClass, Question, Statement

T = TypeVar("T")

SMALLEST = 50
MOST_HOPS = 4


class SyntheticData(DataSection, frozen=True, tag="synthetic", tag_field="kind"):
    """A seeded stream in the project's own wording: one history for each entry of `statements`."""

    drawn = True
    grammar = "synthetic"
    seed: int = 7
    statements: tuple[int, ...] = (400,)
    questions: int = 20
    rows: tuple[str, ...] = ()

    def check(self, where: str) -> None:
        """ConfigurationError unless there is at least one size and one question."""
        check(
            self.questions > 0 and len(self.statements) > 0,
            f"{where}: synthetic data needs at least one size in statements and one question",
        )


@dataclass(frozen=True)
class Relation:
    """A relation of the synthetic world."""

    name: str
    subject: str  # kind of entity
    object: str  # kind of entity
    share: float  # of the subjects that have it
    phrase: str  # in a question


RELATIONS = (
    Relation("employer", "person", "company", 0.7, "the employer of {}"),
    Relation("teacher", "person", "person", 0.3, "the teacher of {}"),
    Relation("home", "person", "city", 0.5, "the home city of {}"),
    Relation("head_office", "company", "city", 0.9, "the city of the head office of {}"),
    Relation("leader", "company", "person", 0.3, "the leader of {}"),
    Relation("region", "city", "region", 0.9, "the region of {}"),
    Relation("mayor", "city", "person", 0.2, "the mayor of {}"),
    Relation("language", "region", "language", 1.0, "the language spoken in {}"),
)
_BY_NAME = {relation.name: relation for relation in RELATIONS}

# Entities of each kind per statement: with the shares above, and a key stated 1.6 times on average, they fill the stream.
_DENSITY = {"person": 0.28, "company": 0.09, "city": 0.07, "region": 0.02, "language": 0.01}

_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
_CODAS = ("l", "n", "r", "s", "m", "rn", "lt", "ns")
_SUFFIXES = {
    "company": (" Works", " Labs", " Foundry", " Group"),
    "city": ("burg", "ford", "stad"),
    "region": ("land", "mark"),
    "language": ("ish", "ese"),
}


@dataclass(frozen=True)
class Event:
    """One fact as it is stated at `position`."""

    position: int
    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class Plan:
    """A question's meaning: from a start entity, follow these relations in the final state."""

    question: str
    start: str
    relations: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """One synthetic history: its statements, the events behind them and the questions' plans."""

    name: str
    statements: tuple[Statement, ...]
    events: tuple[Event, ...]
    plans: tuple[Plan, ...]


class Draw:
    """Choices from `random.random()` alone, whose sequence Python guarantees across versions."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def below(self, bound: int) -> int:
        """0 to bound-1."""
        return int(self._random() * bound)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of these items."""
        return items[self.below(len(items))]

    def shuffle(self, items: list[T]) -> None:
        """Shuffle in place; every order is equally likely."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]


def _word(draw: Draw, syllables: int) -> str:
    parts = [draw.pick(_ONSETS) + draw.pick(_VOWELS) for _ in range(syllables)]
    return ("".join(parts) + draw.pick(_CODAS)).capitalize()


def draw_name(draw: Draw, kind: str) -> str:
    """A name of a person, company, city, region or language."""
    if kind == "person":
        return f"{_word(draw, 1 + draw.below(2))} {_word(draw, 2)}"
    return _word(draw, 2) + draw.pick(_SUFFIXES[kind])


def _entities(draw: Draw, statements: int) -> dict[str, list[str]]:
    used: set[str] = set()
    entities: dict[str, list[str]] = {}
    for kind, density in _DENSITY.items():
        names: list[str] = []
        while len(names) < max(4, int(density * statements)):
            name = draw_name(draw, kind)
            while name.casefold() in used:
                name = f"{name[:-1]}{draw.pick(_VOWELS)}{draw.pick(_CODAS)}"
            used.add(name.casefold())
            names.append(name)
        entities[kind] = names
    return entities


def _occurrences(draw: Draw, entities: dict[str, list[str]], facts: int) -> list[tuple[str, str]]:
    """The keys in the order in which they are stated: each once to three times, shuffled, `facts` in all."""
    keys = [(name, r.name) for r in RELATIONS for name in entities[r.subject] if draw.chance(r.share)]
    occurrences = []
    for key in keys:
        occurrences += [key] * (1 + draw.chance(0.5) + draw.chance(0.1))
    draw.shuffle(occurrences)
    del occurrences[facts:]
    while len(occurrences) < facts:
        occurrences.append(draw.pick(keys))
    return occurrences


def _plans(draw: Draw, name: str, events: Sequence[Event], questions: int) -> tuple[Plan, ...]:
    """Questions of 1, 2, 3, 4, 1, … hops along paths of the final state, most of them over an overwritten key."""
    current: dict[str, dict[str, str]] = {}
    stated: dict[tuple[str, str], set[str]] = {}
    for event in events:
        current.setdefault(event.subject, {})[event.relation] = event.object
        stated.setdefault((event.subject, event.relation), set()).add(event.object)
    subjects = list(current)
    plans: list[Plan] = []
    asked: set[tuple[str, tuple[str, ...]]] = set()
    hops, failures = 1, 0
    while len(plans) < questions:
        start = draw.pick(subjects)
        path: list[tuple[str, str]] = []
        at, seen = start, {start}
        while len(path) < hops and at in current:
            relation = draw.pick(list(current[at]))
            path.append((at, relation))
            at = current[at][relation]
            if at in seen:
                break
            seen.add(at)
        relations = tuple(relation for _, relation in path)
        wanted = len(seen) == hops + 1 and (start, relations) not in asked
        overwritten = any(len(stated[key]) > 1 for key in path)
        if wanted and (overwritten or draw.chance(0.1)):
            asked.add((start, relations))
            plans.append(Plan(f"{name}/q{len(plans)}", start, relations))
            hops, failures = hops % MOST_HOPS + 1, 0
        else:
            failures += 1
            if failures > 20_000:
                raise ConfigurationError(
                    f"synthetic data: {questions} different questions do not fit into a stream of {len(events)} facts; "
                    "ask for fewer questions or more statements"
                )
    return tuple(plans)


def question_text(plan: Plan) -> str:
    """The wording of a plan: the innermost phrase names the start entity."""
    phrase = plan.start
    for relation in plan.relations:
        phrase = _BY_NAME[relation].phrase.format(phrase)
    return f"{'Who' if _BY_NAME[plan.relations[-1]].object == 'person' else 'What'} is {phrase}?"


def sentence(forms: GrammarForms, subject: str, relation: str, value: str) -> str:
    """A fact in its relation's form."""
    return forms.relations[relation][0].replace("{subject}", subject).replace("{object}", value)


def draw_world(data: SyntheticData, index: int) -> World:
    """The `index`-th history of a synthetic data section; the same arguments give the same world."""
    size = data.statements[index]
    if size < SMALLEST:
        raise ConfigurationError(f"synthetic data: {size} statements are too few; the smallest stream has {SMALLEST}")
    forms = load_yaml(find_config("grammars", "synthetic"), GrammarForms)
    name = f"synthetic{index}_{size}"
    draw = Draw(f"coldread synthetic 1 {data.seed} {index} {size}")
    entities = _entities(draw, size)
    # Idle talk carries no fact; a few hedged statements stay unresolved, as many in a large stream as in a small one.
    idle, hedged = size // 20, min(2, size // 100)
    lines: list[tuple[str, str] | str] = list(_occurrences(draw, entities, size - idle - hedged))
    for form, count in ((forms.no_fact[0], idle), (forms.unresolved[0], hedged)):
        for _ in range(count):
            text = form.replace("{any}", draw.pick(entities["person"]), 1).replace("{any}", draw.pick(entities["city"]), 1)
            lines.append(text)
    draw.shuffle(lines)
    latest: dict[tuple[str, str], str] = {}
    statements: list[Statement] = []
    events: list[Event] = []
    for position, line in enumerate(lines):
        if isinstance(line, tuple):
            subject, relation = line
            value = draw.pick(entities[_BY_NAME[relation].object])
            while value in (subject, latest.get(line)):
                value = draw.pick(entities[_BY_NAME[relation].object])
            latest[line] = value
            events.append(Event(position, subject, relation, value))
            line = sentence(forms, subject, relation, value)
        statements.append(Statement(position=position, text=line))
    return World(name, tuple(statements), tuple(events), _plans(draw, name, events, data.questions))


def as_loaded(worlds: Iterable[tuple[str, World]]) -> Loaded:
    """Drawn worlds with the labels of their sizes, each a row of its own."""
    histories, questions = [], []
    for length, world in worlds:
        histories.append(History(id=world.name, length=length, statements=world.statements))
        for plan in world.plans:
            hop_class: HopClass = "sh" if len(plan.relations) == 1 else "mh"
            questions.append(
                Question(
                    id=plan.question,
                    row=world.name,
                    history=world.name,
                    text=question_text(plan),
                    hop_class=hop_class,
                    hops=len(plan.relations),
                )
            )
    return Loaded(tuple(histories), tuple(questions))


def load_synthetic(data: SyntheticData, source: RawSource | None) -> Loaded:
    """One history for each size in `data.statements`, `data.questions` questions each."""
    return as_loaded((str(size), draw_world(data, index)) for index, size in enumerate(data.statements))
