"""Retrieval views by their names: `fact_bm25`, `chunk4096_bm25`, `fact_hybrid_k10`, `fact_dense_matched_to_prior_refresh`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from offline.config.experiment import RetrievalSettings, ViewSettings
from offline.errors import ConfigurationError
from offline.memory import Memory, Selection
from offline.passages import Passage
from offline.records import Question
from offline.retrievers import HYBRID, RERANK, needs_vectors, retriever_names
from offline.views import UNITS, ModelWork, View, check_view, find_view, needs_of

_NAME = re.compile(
    rf"(?P<unit>{UNITS})_(?P<retriever>.+?)"
    r"(?:_k(?P<k>[1-9][0-9]{0,4}))?(?P<matched>_matched(?:_to_(?P<other>.+))?)?"
)


@dataclass(frozen=True)
class RetrievalView:
    """A view that shows the best passages of a ranking.

    A matched view of facts shows the same unresolved records as the other view, so that the two differ only in what they chose.
    """

    unit: str  # what is ranked, see `Memory.corpus`
    retriever: str
    k: int | None = None  # passages shown; None = as in the settings
    match: View | None = None  # show instead the whole passages that still fit this view's evidence length

    def __call__(self, memory: Memory, question: Question) -> Selection:
        """The records of the chosen passages."""
        ranked = self.ranked(memory, question)
        structured = self.unit == "fact"
        if self.match is not None:
            other = memory.render(memory.settle(self.match(memory, question)))
            shared = sorted(set(memory.graph.unresolved).intersection(other.positions)) if structured else []
            room = len(other.text) - len(memory.heading) - _size(memory, shared)
            # Not structured: with the other unresolved records it could be longer than the other view.
            return Selection((*shared, *_fitting(memory, ranked, room, shared)), structured=False)
        if self.unit == "window" and self.k is None:
            budget, windows = memory.settings.budget, memory.retrieval.settings.windows
            free = None if budget < 0 else budget - len(memory.heading)
            return Selection(_fitting(memory, ranked, free, limit=windows), structured)
        return Selection(tuple(dict.fromkeys(p for passage in ranked for p in passage.positions)), structured)

    @property
    def needs(self) -> ModelWork:
        """The model work for this view and for the one whose length it matches."""
        units = (self.unit,) if self.unit == "chunk" or needs_vectors(self.retriever) else ()
        stages = ((self.unit, self.retriever.removesuffix(RERANK)),) if self.retriever.endswith(RERANK) else ()
        return ModelWork(units, stages) | (ModelWork() if self.match is None else needs_of(self.match))

    def check(self, name: str, settings: ViewSettings, numbers: RetrievalSettings) -> None:
        """ConfigurationError if this view, or the one it matches, shows more passages than its ranking tells apart."""
        depth, deepest = self.depth(settings, numbers), self.deepest(numbers)
        if deepest is not None and depth > deepest:
            raise ConfigurationError(
                f"view {name!r} would show {depth} passages, but fusing and reranking go {deepest} deep; raise "
                "`candidates` in the experiment's `retrieval`, or ask for fewer"
            )
        if self.match is not None:
            check_view(self.match, name, settings, numbers)

    def depth(self, settings: ViewSettings, numbers: RetrievalSettings) -> int:
        """How many of the ranked passages it chooses from."""
        usual = {"fact": settings.k, "statement": settings.k, "window": numbers.window_candidates}
        return self.k or usual.get(self.unit, numbers.chunk_k)

    def deepest(self, numbers: RetrievalSettings) -> int | None:
        """The most passages that its ranking tells apart: `candidates` for fusion and reranking, None = all."""
        return numbers.candidates if self.retriever == HYBRID or self.retriever.endswith(RERANK) else None

    def ranked(self, memory: Memory, question: Question) -> list[Passage]:
        """The passages to choose from, best first."""
        k = self.depth(memory.settings, memory.retrieval.settings)
        return memory.corpus(self.unit).rank(self.retriever, question.text, k)


def _size(memory: Memory, positions: Iterable[int]) -> int:
    """Characters of these records' lines, each with the line break before it."""
    return sum(1 + len(memory.line(position)) for position in positions)


def _fitting(
    memory: Memory, ranked: Iterable[Passage], room: int | None, shown: Iterable[int] = (), limit: int | None = None
) -> tuple[int, ...]:
    """Records of the best passages whose new lines fit `room` (None = any); at most `limit` passages add to those `shown`."""
    there, chosen, taken = set(shown), [], 0
    for passage in ranked:
        new = [position for position in dict.fromkeys(passage.positions) if position not in there]
        size = _size(memory, new)
        if limit is not None and taken == limit:
            break
        if new and (room is None or size <= room):
            there.update(new)
            chosen += new
            taken += 1
            room = None if room is None else room - size
    return tuple(chosen)


def _spelled(name: str) -> re.Match[str] | None:
    """The parts of a retrieval view's name, None for another name."""
    spelled = _NAME.fullmatch(name)
    return spelled if spelled and spelled["retriever"].removesuffix(RERANK) in retriever_names() else None


def lexical(name: str, characters: int) -> str:
    """The nearest view that needs no model, for estimates: BM25 in the model's place, chunks by characters.

    Its packets have about the same size. The whole history stands for another package's view that needs a model.
    """
    spelled = _spelled(name)
    if spelled is None:
        return name if needs_of(find_view(name)) == ModelWork() else "raw_history"
    unit, retriever = spelled["unit"], spelled["retriever"]
    plain = "bm25" if needs_vectors(retriever) or retriever.endswith(RERANK) else retriever
    k = f"_k{spelled['k']}" if spelled["k"] else ""
    other = f"_to_{lexical(spelled['other'], characters)}" if spelled["other"] else ""
    return f"{f'chunk{characters}' if unit == 'chunk' else unit}_{plain}{k}{'_matched' if spelled['matched'] else ''}{other}"


def parse(name: str) -> RetrievalView | None:
    """The retrieval view that a name spells, None if it spells none."""
    spelled = _spelled(name)
    if spelled is None:
        return None
    k = int(spelled["k"]) if spelled["k"] else None
    match = find_view(spelled["other"] or "cmc") if spelled["matched"] else None
    return RetrievalView(spelled["unit"], spelled["retriever"], k, match)


def ranking_views(names: Iterable[str]) -> dict[str, RetrievalView]:
    """Those of these views that show some number of the best passages, and so could show another number."""
    views = ((name, find_view(name)) for name in names)
    return {name: view for name, view in views if isinstance(view, RetrievalView) and view.match is None}
