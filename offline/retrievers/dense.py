"""Dense retrieval: the cosine of frozen vectors, computed without rounding, so that every machine ranks alike."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline.retrievers import Corpus, best, by_vectors
from offline.vectors import Vectors

# Passages widened to float64 at a time, and questions answered together: widening costs more than multiplying.
_BLOCK, _TOGETHER = 16_384, 32


class Dense:
    """Ranks passages, newest first, by the dot product of vectors; `asked`: coming questions, answered several at once."""

    def __init__(self, texts: Sequence[str], vectors: Vectors, asked: Sequence[str] = ()) -> None:
        self._vectors = vectors
        self._asked = list(dict.fromkeys(asked))
        self._place = {text: place for place, text in enumerate(self._asked)}
        self._scores: dict[str, NDArray[np.float64]] = {}
        self._matrix = vectors.of("passage", texts) if texts else np.zeros((0, 1), dtype=np.float32)

    def scores(self, query: str) -> NDArray[np.float64]:
        """float64[passages]: cosines times 2^48 as integers, whose sums below 2^53 are exact."""
        if not len(self._matrix):
            return np.zeros(0)
        if query not in self._scores:
            place = self._place.get(query)
            together = [query] if place is None else self._asked[place : place + _TOGETHER]
            wanted = self._vectors.of("query", together).astype(np.float64)
            blocks = range(0, len(self._matrix), _BLOCK)
            made = np.concatenate([wanted @ self._matrix[at : at + _BLOCK].astype(np.float64).T for at in blocks], axis=1)
            self._scores = dict(zip(together, made, strict=True))
        return self._scores[query]

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k nearest passages, nearest first."""
        return best(self.scores(query), k)

    matches = rank


@by_vectors
def dense(corpus: Corpus) -> Dense:
    """Dense retrieval over the frozen vectors of the passages' texts."""
    return Dense([passage.text for passage in corpus.passages], corpus.retrieval.need_vectors(), corpus.asked)
