"""BM25 with rank_bm25's scores (BM25Okapi) over inverted lists.

Scores equal rank_bm25's to 1e-9 (tests hold them against it); the order is by score rounded to 1e-9, then newest first.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# rank_bm25 0.2.2, class BM25Okapi: k1, b and epsilon by default.
K1, B, EPSILON = 1.5, 0.75, 0.25
# Scores closer than this are a tie.
DECIMALS = 9

_ASCII = re.compile(r"[A-Za-z0-9]+")


def ascii_tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits, lowercased: the papers' tokeniser. Other scripts have no token."""
    return [token.lower() for token in _ASCII.findall(text)]


def unicode_tokens(text: str) -> list[str]:
    """Runs of letters, the marks on them and digits of any script, NFKC, lowercased."""
    folded = unicodedata.normalize("NFKC", text).lower()
    return "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded).split()


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {"ascii": ascii_tokens, "unicode": unicode_tokens}


class BM25:
    """An index over documents given newest first; query and documents share one tokeniser."""

    def __init__(self, documents: Sequence[str], tokenize: Callable[[str], list[str]] = ascii_tokens) -> None:
        self._tokenize = tokenize
        self.size = len(documents)
        lengths = np.zeros(self.size)
        lists: dict[str, tuple[list[int], list[int]]] = {}
        # In order of documents, as rank_bm25 meets the tokens: its mean idf is summed in that order.
        for index, document in enumerate(documents):
            tokens = tokenize(document)
            lengths[index] = len(tokens)
            for token, count in Counter(tokens).items():
                where, counts = lists.setdefault(token, ([], []))
                where.append(index)
                counts.append(count)
        mean_length = lengths.sum() / self.size if self.size else 0.0
        normal = K1 * (1 - B + B * lengths / mean_length) if mean_length else lengths
        idf = {t: math.log(self.size - len(w) + 0.5) - math.log(len(w) + 0.5) for t, (w, _) in lists.items()}
        floor = EPSILON * (sum(idf.values()) / len(idf)) if idf else 0.0
        self._lists: dict[str, tuple[NDArray[Any], NDArray[np.float64]]] = {}
        for token, (where, counts) in lists.items():
            documents_of = np.array(where, dtype=np.int32)
            frequency = np.array(counts, dtype=np.int64)
            weight = idf[token] if idf[token] >= 0 else floor
            self._lists[token] = (documents_of, weight * (frequency * (K1 + 1) / (frequency + normal[documents_of])))

    def scores(self, query: str) -> NDArray[np.float64]:
        """float64[documents]: each document's score, summed in the order of the query's tokens."""
        scores = np.zeros(self.size)
        for token in self._tokenize(query):
            if token in self._lists:
                documents, weights = self._lists[token]
                scores[documents] += weights
        return scores

    def rank(self, query: str, k: int) -> list[int]:
        """Indices of the k best documents, best first; zero scores fill up, fewer than k only if there are fewer."""
        k = min(k, self.size)
        if k == 0:
            return []
        # Negated, so that a stable ascending sort keeps equal scores in document order, newest first.
        keys = -np.round(self.scores(query), DECIMALS)
        candidates = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
        best = candidates[np.argsort(keys[candidates], kind="stable")[:k]]
        return [int(index) for index in best]
