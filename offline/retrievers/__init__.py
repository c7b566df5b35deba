"""Retrievers: rank the passages of one history for a query. Equal scores go newest first, for every retriever.

A factory `(Corpus) -> Retriever` makes one; `coldread.retrievers` is the entry point group. `NAME_rerank` reorders the best of
NAME by the reranker's scores.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from offline.config.experiment import ViewSettings
from offline.errors import ConfigurationError, guarded
from offline.passages import Passage
from offline.registry import Registry
from offline.vectors import Retrieval

RERANK, HYBRID = "_rerank", "hybrid"


class Retriever(Protocol):
    """Ranks the passages of its corpus, whose indices count from the newest. A ranking of k is the start of a longer one."""

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k best passages, best first; fewer only if there are fewer."""
        ...

    def matches(self, query: str, k: int) -> list[int]:
        """As `rank`, without passages that do not match the query and would only fill up the k."""
        ...


class Corpus:
    """One history's passages, newest first, and retrievers; `asked`: coming questions, to be answered several at once."""

    def __init__(
        self, unit: str, passages: Sequence[Passage], settings: ViewSettings, retrieval: Retrieval, asked: Sequence[str] = ()
    ) -> None:
        self.unit = unit
        self.passages = passages
        self.settings = settings
        self.retrieval = retrieval
        self.asked = asked
        self._retrievers: dict[str, Retriever] = {}
        self._ranked: dict[str, tuple[str, int, list[Passage]]] = {}

    def retriever(self, name: str) -> Retriever:
        """The retriever called `name` over these passages; ConfigurationError if there is none."""
        if name not in self._retrievers:
            self._retrievers[name] = find_retriever(name)(self)
        return self._retrievers[name]

    def rank(self, name: str, query: str, k: int) -> list[Passage]:
        """The k passages that a retriever ranks first, best first."""
        known = self._ranked.get(name)
        if known is None or known[0] != query or known[1] < k:
            known = (query, k, [self.passages[index] for index in self._indices(name, query, k)])
            self._ranked[name] = known
        return known[2][:k]

    def _indices(self, name: str, query: str, k: int) -> list[int]:
        """A retriever's ranking; ConfigurationError if it breaks its contract."""
        where = f"retriever {name!r}, question {query[:60]!r}"
        with guarded(where, cure="; mend the retriever"):
            found = list(self.retriever(name).rank(query, k))
            sound = len(set(found)) == len(found) and all(0 <= index < len(self.passages) for index in found)
        if not sound:
            raise ConfigurationError(
                f"{where}: of {len(self.passages)} passages it ranks one that is not there, or one twice; mend the retriever"
            )
        return found


MakeRetriever = Callable[[Corpus], Retriever]
Make = TypeVar("Make", bound=MakeRetriever)


def by_vectors(make: Make) -> Make:
    """Decorator for retrievers that rank by the frozen vectors of their corpus."""
    make.needs_vectors = True  # type: ignore[attr-defined]
    return make


def _reranked(name: str) -> MakeRetriever | None:
    """The factory of `FIRST_rerank`, None for another name; ConfigurationError if there is no such first stage."""
    if not name.endswith(RERANK):
        return None
    from offline.retrievers.rerank import reranked

    first = name.removesuffix(RERANK)
    find_retriever(first)
    return reranked(first)


RETRIEVERS: Registry[MakeRetriever] = Registry(
    "retriever",
    "coldread.retrievers",
    {
        "bm25": "offline.retrievers.bm25:bm25",
        "dense": "offline.retrievers.dense:dense",
        HYBRID: "offline.retrievers.fusion:hybrid",
    },
    _reranked,
)
find_retriever = RETRIEVERS.get
# Names of all first stages, sorted.
retriever_names = RETRIEVERS.names


def needs_vectors(name: str) -> bool:
    """True if a retriever ranks by vectors; one of another package says so by its attribute `needs_vectors`."""
    return bool(getattr(find_retriever(name.removesuffix(RERANK)), "needs_vectors", False))


def best(scores: NDArray[np.float64], k: int) -> list[int]:
    """Indices of the k highest scores, highest first; of equal scores, the smaller index first."""
    k = min(k, len(scores))
    if k <= 0:
        return []
    # Negated, so that a stable ascending sort keeps equal scores in order.
    keys = -scores
    candidates = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
    order = candidates[np.argsort(keys[candidates], kind="stable")[:k]]
    return [int(index) for index in order]
