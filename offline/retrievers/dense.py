"""Dense retrieval: the cosine of frozen vectors, computed without rounding, so that every machine ranks alike."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline.retrievers import Corpus, best, retriever
from offline.vectors import Vectors

# Passages whose coordinates are widened to float64 at a time.
_BLOCK = 65_536


class Dense:
    """Ranks passages, newest first, by the product of their vector with the query's."""

    def __init__(self, texts: Sequence[str], vectors: Vectors) -> None:
        self._vectors = vectors
        self._matrix = vectors.of("passage", texts) if texts else np.zeros((0, 1), dtype=np.float32)

    def scores(self, query: str) -> NDArray[np.float64]:
        """float64[passages]: cosines times 2^48, whole numbers. Sums of whole numbers below 2^53 have no rounding."""
        if not len(self._matrix):
            return np.zeros(0)
        wanted = self._vectors.of("query", [query])[0].astype(np.float64)
        blocks = range(0, len(self._matrix), _BLOCK)
        return np.concatenate([self._matrix[at : at + _BLOCK].astype(np.float64) @ wanted for at in blocks])

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k nearest passages, nearest first."""
        return best(self.scores(query), k)

    matches = rank


@retriever("dense", vectors=True)
def dense(corpus: Corpus) -> Dense:
    """The frozen vectors of the passages' texts."""
    return Dense([passage.text for passage in corpus.passages], corpus.retrieval.need_vectors())
