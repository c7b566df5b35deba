"""BM25Okapi over inverted lists. Scores agree with rank_bm25's to 1e-9 (tested), closer ones are ties, newest first."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline.retrievers import Corpus, best

# rank_bm25 0.2.2, class BM25Okapi: k1, b and epsilon by default.
K1, B, EPSILON = 1.5, 0.75, 0.25
# For sliding windows (compiler paper, appendix I; its b is 0.75 too).
WINDOW_K1 = 1.2
# Scores are rounded to this many decimals before they are ranked.
DECIMALS = 9

_ASCII = re.compile(r"[A-Za-z0-9]+")


def ascii_tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits, lowercased: the papers' tokeniser. Other scripts have no token."""
    return [token.lower() for token in _ASCII.findall(text)]


def unicode_tokens(text: str) -> list[str]:
    """Runs of letters, with their marks, and digits of any script, NFKC, lowercased."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded).split()


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {"ascii": ascii_tokens, "unicode": unicode_tokens}


class BM25:
    """An index over documents given newest first; query and documents share one tokeniser."""

    def __init__(
        self, documents: Sequence[str], tokenize: Callable[[str], list[str]] = ascii_tokens, k1: float = K1, b: float = B
    ) -> None:
        self._tokenize = tokenize
        self.size = len(documents)
        lengths = np.zeros(self.size)
        lists: dict[str, tuple[list[int], list[int]]] = {}
        # In document order, as in rank_bm25, whose mean idf is summed in that order.
        for index, document in enumerate(documents):
            tokens = tokenize(document)
            lengths[index] = len(tokens)
            for token, count in Counter(tokens).items():
                where, counts = lists.setdefault(token, ([], []))
                where.append(index)
                counts.append(count)
        mean_length = lengths.sum() / self.size if self.size else 0.0
        normal = k1 * (1 - b + b * lengths / mean_length) if mean_length else lengths
        idf = {t: math.log(self.size - len(w) + 0.5) - math.log(len(w) + 0.5) for t, (w, _) in lists.items()}
        floor = EPSILON * (sum(idf.values()) / len(idf)) if idf else 0.0
        self._lists: dict[str, tuple[NDArray[Any], NDArray[np.float64]]] = {}
        for token, (where, counts) in lists.items():
            documents_of = np.array(where, dtype=np.int32)
            frequency = np.array(counts, dtype=np.int64)
            weight = idf[token] if idf[token] >= 0 else floor
            self._lists[token] = (documents_of, weight * (frequency * (k1 + 1) / (frequency + normal[documents_of])))

    def scores(self, query: str) -> NDArray[np.float64]:
        """float64[documents]: each document's score, summed in the order of the query's tokens."""
        scores = np.zeros(self.size)
        for token in self._tokenize(query):
            if token in self._lists:
                documents, weights = self._lists[token]
                scores[documents] += weights
        return scores

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k best documents, best first, zero scores included; fewer only if there are fewer documents."""
        return best(np.round(self.scores(query), DECIMALS), k)

    def matches(self, query: str, k: int) -> list[int]:
        """The k best of the documents that share a token with the query."""
        holding = [self._lists[token][0] for token in set(self._tokenize(query)) if token in self._lists]
        return self.rank_among(np.unique(np.concatenate(holding)) if holding else np.zeros(0, dtype=np.int32), query, k)

    def rank_among(self, documents: NDArray[Any], query: str, k: int) -> list[int]:
        """As `rank`, among these documents only; their indices ascend."""
        scores = np.round(self.scores(query)[documents], DECIMALS)
        return [int(documents[place]) for place in best(scores, k)]


def bm25(corpus: Corpus) -> BM25:
    """BM25 over the passages' words; sliding windows use the compiler paper's k1."""
    words = [passage.words for passage in corpus.passages]
    return BM25(words, TOKENIZERS[corpus.settings.tokenizer], k1=WINDOW_K1 if corpus.unit == "window" else K1)
