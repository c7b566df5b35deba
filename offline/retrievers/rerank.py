"""Reranking: the best passages of a first stage, reordered by a reranker's frozen scores."""

from collections.abc import Sequence

import numpy as np

from offline.passages import Passage
from offline.retrievers import Corpus, MakeRetriever, Retriever, best
from offline.vectors import Scores


class Reranked:
    """Ranks only the first stage's best `candidates` passages, by their scores."""

    def __init__(self, first: Retriever, passages: Sequence[Passage], scores: Scores, candidates: int) -> None:
        self._first = first
        self._passages = passages
        self._scores = scores
        self._candidates = candidates

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k candidates with the highest scores, highest first."""
        # In order of index, so that the newest of equal scores is first.
        chosen = sorted(self._first.rank(query, self._candidates))
        scores = self._scores.of(query, [self._passages[index].text for index in chosen])
        return [chosen[place] for place in best(np.array(scores, dtype=np.float64), k)]

    matches = rank


def reranked(first: str) -> MakeRetriever:
    """The factory of `FIRST_rerank`."""

    def make(corpus: Corpus) -> Reranked:
        candidates = corpus.retrieval.settings.candidates
        return Reranked(corpus.retriever(first), corpus.passages, corpus.retrieval.need_scores(), candidates)

    return make
