"""Reciprocal rank fusion: several rankings merged by ranks alone."""

from collections.abc import Sequence
from math import lcm

from offline.retrievers import Corpus, Retriever, by_vectors


class Fusion:
    """Sums 1 / (constant + rank) over rankings, ranks counted from 1, each ranking taken `depth` deep (Cormack et al., 2009).

    Sums are exact fractions. Passages that no ranking matches fill up, newest first, so none earns a rank merely by being new.
    The depth does not follow k: a passage's rank must not depend on how many are asked for.
    """

    def __init__(self, rankers: Sequence[Retriever], size: int, constant: int, depth: int) -> None:
        self._rankers = rankers
        self._size = size
        # 1 / (constant + rank) over a common denominator: integers, whose sums are exact and quick to compare.
        denominators = range(constant + 1, constant + depth + 1)
        common = lcm(*denominators)
        self._weights = [common // denominator for denominator in denominators]

    def matches(self, query: str, k: int) -> list[int]:
        """Indices of the k best passages that a ranking matches."""
        scores: dict[int, int] = {}
        for ranker in self._rankers:
            for index, weight in zip(ranker.matches(query, len(self._weights)), self._weights, strict=False):
                scores[index] = scores.get(index, 0) + weight
        return sorted(scores, key=lambda index: (-scores[index], index))[:k]

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k best passages, best first."""
        named = self.matches(query, k)
        if len(named) < min(k, self._size):
            known = set(named)
            named += [index for index in range(self._size) if index not in known][: k - len(named)]
        return named


@by_vectors
def hybrid(corpus: Corpus) -> Fusion:
    """BM25 and dense retrieval, with equal weight."""
    rankers = [corpus.retriever("bm25"), corpus.retriever("dense")]
    numbers = corpus.retrieval.settings
    return Fusion(rankers, len(corpus.passages), numbers.rrf, numbers.candidates)
