"""Coverage: what the evidence that a view shows holds, before any model reads it.

The first questions to ask of a view: is a gold answer there, and are the records there that cmc would show? `Counts` says
exactly what is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from operator import add, attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from eval.metrics.normalise import normalise_answer
from eval.results import Result
from offline.config.experiment import RetrievalSettings
from offline.errors import ConfigurationError, ModelError
from offline.freeze import freeze_memory
from offline.memory import Memory
from offline.records import Evidence, Extraction, Packet, Question
from offline.run.opened import OpenRun
from offline.views.retrieval import ranking_views
from readers.models.pins import locate
from readers.tokens.chat import ChatTokenizer

# Whole texts that are remembered, at least one for each view of a question: some views show every question the same.
_TEXTS = 64

# A packet with what it is about and what it shows.
Shown = tuple[Question, Packet, Evidence]


class Counts(Result, frozen=True):
    """What the evidence of one view holds, summed over questions.

    gold_in_evidence: questions of which a normalised gold is a substring of the normalised evidence text.
    gold_as_value: of which one equals the object of a shown edge, which chance does not hit.
    records, characters: of the evidence.
    cmc_keys: the records that cmc is about, whatever a budget then cuts: the current ones of the keys that the question's
        anchors reach. A record that states two of these keys counts once.
    cmc_keys_shown: those of them that are in this evidence.
    complete: questions of which all of them are. One that reaches no key is not complete: it asks for what cmc cannot show.
    tokens: of the evidence's lines, each counted with its line break, by the tokenizer of the first reader; None if that is not
        to be had. The whole text has as many under the usual tokenizers, which end a word at a line break, unless a record
        ends in blanks.
    truncated, fallbacks: packets that the budget cut, and those that show something else because nothing was chosen.
    """

    questions: int
    gold_in_evidence: int
    gold_as_value: int
    records: int
    characters: int
    cmc_keys: int
    cmc_keys_shown: int
    complete: int
    tokens: int | None
    truncated: int
    fallbacks: int

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(_plus, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


def _plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


# By hop class, or by exact number of hops.
ByHops = dict[str, Counts]


class Coverage(Result, frozen=True):
    """Counts by view. In `views` the packets of all hop classes that are `truncated`, and those with `fallbacks`, stand beside
    the hop classes. by_length: by history length, then hop class. by_hops: unset if no question says its number of hops.
    curve: by number of passages, then hop class; unset if none was asked for.
    """

    views: dict[str, dict[str, Counts | int]]
    by_length: dict[str, dict[str, ByHops]]
    by_hops: dict[str, ByHops] | UnsetType = UNSET
    curve: dict[str, dict[str, ByHops]] | UnsetType = UNSET


@dataclass(frozen=True)
class Judged:
    """The counts of one packet, and what they are grouped by."""

    view: str
    question: Question
    length: str
    counts: Counts


class Judge:
    """Counts what packets hold. Evidence repeats its records and itself, so what was asked of a line or text is remembered.

    count: tokens of a text, None if nothing counts them.
    """

    def __init__(
        self, extraction: Extraction, golds: Mapping[str, Sequence[str]], count: Callable[[str], int] | None = None
    ) -> None:
        self._golds = golds
        self._objects = {s.text: frozenset(normalise_answer(t.object) for t in s.triples) for s in extraction.statements}
        self._normalise = cache(normalise_answer)
        self._count = None if count is None else cache(count)
        self._whole = lru_cache(maxsize=_TEXTS)(self.normalise)
        self._size = lru_cache(maxsize=_TEXTS)(self.tokens)

    def judge(self, memory: Memory, shown: Iterable[Shown]) -> Iterator[Judged]:
        """The counts of packets about one history, one by one."""
        objects = {s.position: self._objects[s.text] for s in memory.history.statements}
        for question, packet, evidence in shown:
            golds = {normalise_answer(gold) for gold in self._golds[question.id]}
            keys = set(memory.positions(memory.closure(question.text)))
            keys_shown = len(keys.intersection(evidence.positions))
            counts = Counts(
                questions=1,
                gold_in_evidence=int(self.holds_gold(question.id, evidence.text)),
                gold_as_value=int(any(not golds.isdisjoint(objects[position]) for position in evidence.positions)),
                records=packet.records,
                characters=packet.characters,
                cmc_keys=len(keys),
                cmc_keys_shown=keys_shown,
                complete=int(0 < len(keys) == keys_shown),
                tokens=self._size(evidence.text),
                truncated=int(packet.truncated),
                fallbacks=int(packet.fallback is not None),
            )
            yield Judged(packet.view, question, memory.history.length, counts)

    def holds_gold(self, question: str, text: str) -> bool:
        """Whether a normalised gold of a question is a substring of a normalised evidence text."""
        whole = self._whole(text)
        return any(normalise_answer(gold) in whole for gold in self._golds[question])

    def normalise(self, text: str) -> str:
        """What `normalise_answer` makes of a text, line by line: a line break is white space to it."""
        return " ".join(filter(None, map(self._normalise, text.split("\n"))))

    def tokens(self, text: str) -> int | None:
        """Tokens of a text, line by line."""
        return None if self._count is None else sum(map(self._count, text.splitlines(keepends=True)))


def coverage(run: OpenRun, golds: Mapping[str, Sequence[str]], at: Sequence[int] = ()) -> Coverage:
    """Counts by view and hop class, by history length too, by exact hops.

    at: numbers of passages for the curve: what each retrieval view would show if it showed so many. At the number that a view
    shows by itself, that is its own packet. Sliding windows are shown by length and have no such number. A view that
    fuses or reranks has no point beyond its `candidates`.
    """
    packets = _packets(run, run.data.by_id)
    ranking = ranking_views(run.experiment.views)
    # The largest first: its ranking begins with those of the others, and is made once.
    ks, numbers = sorted(set(at), reverse=True), run.experiment.retrieval or RetrievalSettings()
    points = {f"{name}_k{k}": (name, k) for name, view in ranking.items() for k in ks if k <= (view.deepest(numbers) or k)}
    views = [(name, replace(ranking[of], k=k)) for name, (of, k) in points.items()]
    retrieval = run.retrieval if views else None
    judge = Judge(run.extraction, golds, token_counter(run))
    frozen: list[Judged] = []
    derived: list[Judged] = []
    for memory, about in run.compiled(retrieval):
        own = packets.get(memory.history.id, [])
        frozen += judge.judge(memory, own)
        if views:
            asked = {question.id: question for question in about}
            made = freeze_memory(memory, about, views, run.experiment.prompt)
            derived += judge.judge(memory, ((asked[packet.question], packet, evidence) for packet, evidence in made))
    stated = sorted((item for item in frozen if item.question.hops is not None), key=lambda item: item.question.hops or 0)
    return Coverage(
        views={view: _of_view(judged) for view, judged in _groups(frozen, _view).items()},
        by_length=_by_hop_class(frozen, _view, _length),
        by_hops={view: _sums(judged, _hops) for view, judged in _groups(stated, _view).items()} if stated else UNSET,
        curve=_curve(derived, points) if at else UNSET,
    )


def token_counter(run: OpenRun) -> Callable[[str], int] | None:
    """What counts a text's tokens for the first reader; None if nothing on this machine does, for nothing is downloaded.

    A sealed run keeps the tokenizer, unless it was published without. A served model's, nobody here can see.
    """
    if not run.experiment.readers or run.experiment.readers[0].reader.model.served is not UNSET:
        return None
    reader = run.experiment.readers[0].reader
    kept = f"reads/{reader.name}/tokenizer"
    try:
        keeps = reader.name in run.sealed_readers() and not run.lacks(kept)
        folder = run.files_of(kept) if keeps else locate(reader, fetch=False)
        return ChatTokenizer.of(reader, folder).count
    except (ConfigurationError, ModelError):
        return None


def _packets(run: OpenRun, questions: Mapping[str, Question]) -> dict[str, list[Shown]]:
    """Frozen packets by history, view after view."""
    evidence = run.evidence
    found: dict[str, list[Shown]] = {}
    for packets in run.packets(run.experiment.views).values():
        for packet in packets:
            question = questions[packet.question]
            found.setdefault(question.history, []).append((question, packet, evidence[packet.evidence]))
    return found


Name = Callable[[Judged], str]
_view: Name = attrgetter("view")
_length: Name = attrgetter("length")
_hop_class: Name = attrgetter("question.hop_class")


def _hops(judged: Judged) -> str:
    return str(judged.question.hops)


def _groups(judged: Iterable[Judged], name: Name) -> dict[str, list[Judged]]:
    """What bears the same name, in order of first appearance."""
    groups: dict[str, list[Judged]] = {}
    for item in judged:
        groups.setdefault(name(item), []).append(item)
    return groups


def _sum(judged: Iterable[Judged]) -> Counts:
    return reduce(add, (item.counts for item in judged))


def _sums(judged: Iterable[Judged], name: Name) -> ByHops:
    return {key: _sum(group) for key, group in _groups(judged, name).items()}


def _of_view(judged: Sequence[Judged]) -> dict[str, Counts | int]:
    total = _sum(judged)
    return {**_sums(judged, _hop_class), "truncated": total.truncated, "fallbacks": total.fallbacks}


def _by_hop_class(judged: Iterable[Judged], view: Name, part: Name) -> dict[str, dict[str, ByHops]]:
    """Sums by view, part and hop class."""
    return {
        name: {key: _sums(group, _hop_class) for key, group in _groups(own, part).items()}
        for name, own in _groups(judged, view).items()
    }


def _curve(judged: Sequence[Judged], points: Mapping[str, tuple[str, int]]) -> dict[str, dict[str, ByHops]]:
    ascending = sorted(judged, key=lambda item: points[item.view][1])
    return _by_hop_class(ascending, lambda item: points[item.view][0], lambda item: str(points[item.view][1]))
