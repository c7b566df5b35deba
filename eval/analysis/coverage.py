"""Coverage (evidence recall): how often a view's evidence contains a gold answer, and the records that cmc would show."""

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

# Whole texts kept in the cache, at least one per view of a question: some views show all questions the same text.
_TEXTS = 64

Shown = tuple[Question, Packet, Evidence]


class Counts(Result, frozen=True):
    """Contents of one view's evidence, summed over questions.

    cmc's keys are the current records of the keys reachable from the question's anchors, before any truncation. A record that
    states two of these keys counts once. A question that reaches no key is not complete.

    tokens: by the first reader's tokenizer, line by line with the line break; equals the whole text's count under the usual
    tokenizers, which split words at line breaks, unless a record ends in blanks.
    """

    questions: int
    gold_in_evidence: int  # questions with a normalised gold as a substring of the normalised evidence
    gold_as_value: int  # questions with a gold equal to the object of a shown edge, unlikely by chance
    records: int  # shown
    characters: int
    cmc_keys: int  # records of cmc's keys
    cmc_keys_shown: int  # of these, in this evidence
    complete: int  # questions with all of these shown
    tokens: int | None  # None without a tokenizer
    truncated: int  # packets truncated to the budget
    fallbacks: int  # packets that show a fallback

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(_plus, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


def _plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


ByHops = dict[str, Counts]  # by hop class, or by exact number of hops


class Coverage(Result, frozen=True):
    """Counts by view, then as each field says."""

    views: dict[str, dict[str, Counts | int]]  # by hop class; also `truncated` and `fallbacks`: packets of all classes
    by_length: dict[str, dict[str, ByHops]]  # by history length, then hop class
    by_hops: dict[str, ByHops] | UnsetType = UNSET  # unset if no question gives its number of hops
    curve: dict[str, dict[str, ByHops]] | UnsetType = UNSET  # by number of passages, then hop class; unset unless requested


@dataclass(frozen=True)
class Judged:
    """The counts of one packet, and its groups."""

    view: str
    question: Question
    length: str
    counts: Counts


class Judge:
    """Counts what packets contain. Lines and texts recur, so results about them are cached.

    count: returns a text's number of tokens; None if there is no tokenizer.
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
        """The counts of each packet about one history."""
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
        """`normalise_answer` applied line by line: it treats a line break as white space."""
        return " ".join(filter(None, map(self._normalise, text.split("\n"))))

    def tokens(self, text: str) -> int | None:
        """Tokens of a text, line by line."""
        return None if self._count is None else sum(map(self._count, text.splitlines(keepends=True)))


def coverage(run: OpenRun, golds: Mapping[str, Sequence[str]], at: Sequence[int] = ()) -> Coverage:
    """Counts by view and hop class; also by history length and by exact hops.

    at: passage counts for the curve, at which each retrieval view is evaluated. At a view's own count this is its own packet.
    Sliding windows are limited by length, so they have no curve; views that fuse or rerank have no point beyond their
    `candidates`.
    """
    packets = _packets(run, run.data.by_id)
    ranking = ranking_views(run.experiment.views)
    # Largest first: smaller counts use a prefix of its ranking, which is then computed once.
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
    """The first reader's token counter; None if its tokenizer is not on this machine, as nothing is downloaded.

    A sealed run holds the tokenizer, unless it was published without; a served model's is never available.
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
    """Frozen packets by history, in view order."""
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
    """Items by name, in order of first appearance."""
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
