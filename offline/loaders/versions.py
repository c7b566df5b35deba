"""Many candidates: a seeded stream that states each key that is asked about exactly V times, for each V of a list.

One history is drawn with the largest V. A smaller V omits random older versions and states in their place a fact that never
changes. So histories differ only in how many versions compete, not in size, final state, questions, newest versions,
distractors or dates. Adding dates changes nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from offline.config.frontend import GrammarForms
from offline.config.yaml import check, find_config, load_yaml
from offline.loaders import DataSection, Loaded
from offline.loaders.raw import RawSource
from offline.loaders.synthetic import RELATIONS, Draw, Event, Plan, Relation, World, as_loaded, draw_name, sentence
from offline.records import Statement

# Other statements about a question's subject: with 16 versions, 19 statements name it.
OTHERS = 3
# One minute to nine days between statements, 42 hours on average: a million dated ones end before the year 10000.
FIRST_DAY = datetime(2001, 1, 1)
GAPS = (1, 60, 24 * 60)
MOST_DATED = 1_000_000

# Characters of the shortest name: two syllables of two letters each, a coda, and a suffix of three.
SHORTEST = 8

# Relations to ask about: their subjects have another relation too.
ASKED = tuple(r for r in RELATIONS if any(o.subject == r.subject and o is not r for o in RELATIONS))


class VersionsData(DataSection, frozen=True, tag="versions", tag_field="kind"):
    """A seeded stream that states each key that is asked about V times."""

    drawn = True
    grammar = "synthetic"
    seed: int = 7
    versions: tuple[int, ...] = (2, 4, 8, 16)  # one history for each V
    questions: int = 25  # about each history
    statements: int = 600  # of each history
    dated: bool = False  # statements carry a timestamp, and positions are ranks
    rows: tuple[str, ...] = ()


# (subject, relation, object)
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class Slot:
    """One place of the stream."""

    fact: Fact
    least: int  # the smallest V with which `fact` is stated
    instead: Fact  # stated with a smaller V


class _Names:
    """Entities by kind. No name stands inside another, so no answer can be found in a wrong one."""

    def __init__(self, draw: Draw, each: int) -> None:
        self._draw = draw
        self._folded: set[str] = set()
        # Every part of a name that could itself be a name.
        self._parts: set[str] = set()
        self.known = {kind: [self.new(kind) for _ in range(each)] for kind in ("person", "company", "city", "region")}

    def new(self, kind: str) -> str:
        """A name that neither holds another name nor stands inside one."""
        while True:
            name = draw_name(self._draw, kind)
            folded = name.casefold()
            places = range(len(folded) + 1)
            parts = {folded[begin:end] for begin in places for end in places[begin + SHORTEST :]}
            if folded not in self._parts and self._folded.isdisjoint(parts):
                self._folded.add(folded)
                self._parts |= parts
                return name


def _check(data: VersionsData) -> None:
    where = "versions data"
    check(
        len(set(data.versions)) == len(data.versions) > 0 and min(data.versions, default=0) > 0,
        f"{where}: `versions` must be numbers of at least 1, each once",
    )
    check(data.questions > 0, f"{where}: at least one question is needed")
    most = max(data.versions)
    needed = data.questions * (most + OTHERS + 1)
    check(
        data.statements >= needed,
        f"{where}: {data.questions} questions with {most} versions need {needed} statements, not {data.statements}",
    )
    check(
        not data.dated or data.statements <= MOST_DATED,
        f"{where}: {data.statements} dated statements are too many; the longest history has {MOST_DATED}",
    )


def _versions(values: list[str], key: tuple[str, str], draw: Draw, lasting: Sequence[Fact]) -> list[Slot]:
    """The versions of a key, oldest first: the newest is always there, a larger V adds others in random order."""
    subject, relation = key
    least = list(range(2, len(values) + 1))
    draw.shuffle(least)
    return [
        Slot((subject, relation, value), needed, draw.pick(lasting)) for value, needed in zip(values, [*least, 1], strict=True)
    ]


def _lasting(draw: Draw, names: _Names, relations: Sequence[Relation]) -> dict[str, list[Fact]]:
    """By relation, facts about subjects that nobody asks about: one for each of `relations`, no key with two values."""
    held: dict[tuple[str, str], str] = {}
    facts: dict[str, list[Fact]] = {}
    for relation in relations:
        subject, value = draw.pick(names.known[relation.subject]), draw.pick(names.known[relation.object])
        while subject == value:
            value = draw.pick(names.known[relation.object])
        value = held.setdefault((subject, relation.name), value)
        facts.setdefault(relation.name, []).append((subject, relation.name, value))
    return facts


def _others(draw: Draw, names: _Names, subject: str, asked: Relation) -> list[Fact]:
    """The other statements about a question's subject."""
    relations = [relation for relation in RELATIONS if relation.subject == asked.subject and relation is not asked]
    chosen = [draw.pick(relations) for _ in range(OTHERS)]
    return [(subject, relation.name, draw.pick(names.known[relation.object])) for relation in chosen]


def _draw_slots(data: VersionsData) -> tuple[list[Slot], list[tuple[str, str]]]:
    """The stream's places in order, and the keys asked about: every part, one for each version, states each of them once."""
    most = max(data.versions)
    draw = Draw(f"coldread versions 1 {data.seed} {most} {data.questions} {data.statements}")
    names = _Names(draw, max(4 * most, data.statements // 50))
    asked = [ASKED[index % len(ASKED)] for index in range(data.questions)]
    rest = data.statements - data.questions * (most + OTHERS)
    lasting = _lasting(draw, names, [asked[index % len(asked)] for index in range(rest)])
    facts = [fact for some in lasting.values() for fact in some]
    parts: list[list[Slot]] = [[] for _ in range(most)]
    keys = []
    for relation in asked:
        key = names.new(relation.subject), relation.name
        values = list(names.known[relation.object])
        draw.shuffle(values)
        for part, version in zip(parts, _versions(values[:most], key, draw, lasting[relation.name]), strict=True):
            part.append(version)
        facts += _others(draw, names, key[0], relation)
        keys.append(key)
    draw.shuffle(facts)
    for index, fact in enumerate(facts):
        parts[index % most].append(Slot(fact, 0, fact))
    for part in parts:
        draw.shuffle(part)
    return [slot for part in parts for slot in part], keys


def _times(data: VersionsData) -> Iterator[str]:
    """Increasing ISO 8601 timestamps, to the minute, at irregular distances."""
    draw, now = Draw(f"coldread versions 1 dates {data.seed}"), FIRST_DAY
    for _ in range(data.statements):
        now += timedelta(minutes=draw.pick(GAPS) * (1 + draw.below(9)))
        yield now.isoformat(timespec="minutes")


def _world(name: str, facts: Sequence[Fact], times: Sequence[str | None], keys: Sequence[tuple[str, str]]) -> World:
    forms = load_yaml(find_config("grammars", "synthetic"), GrammarForms)
    statements = tuple(
        Statement(position=position, text=sentence(forms, *fact), time=time)
        for position, (fact, time) in enumerate(zip(facts, times, strict=True))
    )
    events = tuple(Event(position, *fact) for position, fact in enumerate(facts))
    plans = tuple(Plan(f"{name}/q{index}", subject, (relation,)) for index, (subject, relation) in enumerate(keys))
    return World(name, statements, events, plans)


def draw_versions(data: VersionsData) -> tuple[World, ...]:
    """The history of each V in `data.versions`; the same arguments give the same worlds."""
    _check(data)
    slots, keys = _draw_slots(data)
    times = list(_times(data)) if data.dated else [None] * len(slots)
    return tuple(
        _world(f"versions_{v}", [slot.fact if v >= slot.least else slot.instead for slot in slots], times, keys)
        for v in data.versions
    )


def load_versions(data: VersionsData, source: RawSource | None) -> Loaded:
    """One history for each V, labelled `V versions`, `data.questions` questions of one hop each."""
    worlds = draw_versions(data)
    return as_loaded((f"{v} versions", world) for v, world in zip(data.versions, worlds, strict=True))
