"""Frozen outputs of retrieval models: vectors of texts, scores of pairs, and chunk boundaries that a tokenizer set.

A model's last bits depend on batch, device and library. So its outputs are stored and hashed, and rankings depend on them
alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline.canonical import Record, digest, read_bytes, read_lines, write_bytes, write_lines
from offline.config.experiment import RetrievalSettings
from offline.errors import AlteredError, ConfigurationError
from offline.passages import Chunk

Role = Literal["query", "passage"]
# Fractional bits of a fixed-point coordinate. Vectors have length 1, so a product of two coordinates, and any sum of these,
# takes 48 bits: float64, which holds 53, adds them exactly, in whatever order.
BITS = 24
TEXTS, VECTORS, CHUNKS, SCORES = "texts.jsonl", "vectors.f32", "chunks.jsonl", "scores.jsonl"


def text_digest(text: str) -> str:
    """The name that a text is stored under."""
    return digest(text.encode())


class TextRow(Record, frozen=True, gc=False):
    """The text that a row of vectors.f32 encodes."""

    role: Role
    digest: str  # sha256 of the text


class PairScores(Record, frozen=True, gc=False):
    """A reranker's scores of one query with its candidate passages."""

    query: str  # sha256 of its text
    passages: tuple[str, ...]  # sha256 of their texts
    scores: tuple[str, ...]


class Vectors:
    """Encoded texts: float32[texts, dimension], one row of `matrix` for each of `rows`; chunk boundaries by history."""

    def __init__(self, rows: Sequence[TextRow], matrix: NDArray[np.float32], chunks: Sequence[Chunk]) -> None:
        self._rows = {(row.role, row.digest): number for number, row in enumerate(rows)}
        self._matrix = matrix
        self.chunks: dict[str, list[Chunk]] = {}
        for chunk in chunks:
            self.chunks.setdefault(chunk.history, []).append(chunk)

    def raw(self, rows: Sequence[TextRow]) -> NDArray[np.float32]:
        """float32[rows, dimension], as they were stored."""
        return self._matrix[[self._rows[row.role, row.digest] for row in rows]]

    def of(self, role: Role, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32[texts, dimension]: coordinates times 2^24, exact integers; AlteredError for a text that was not encoded."""
        rows = []
        for text in texts:
            row = self._rows.get((role, text_digest(text)))
            if row is None:
                raise AlteredError(f"{TEXTS}: the {role} {text[:60]!r} was not encoded; run `coldread encode` again")
            rows.append(row)
        fixed: NDArray[np.float32] = np.rint(self._matrix[rows] * np.float32(1 << BITS))
        return fixed


class Scores:
    """A reranker's score for each (query, passage)."""

    def __init__(self, pairs: Sequence[PairScores]) -> None:
        self._of = {pair.query: dict(zip(pair.passages, map(float, pair.scores), strict=True)) for pair in pairs}

    def of(self, query: str, passages: Sequence[str]) -> list[float]:
        """Scores of these passage texts for a query; AlteredError for a pair that was not scored."""
        known = self._of.get(text_digest(query), {})
        try:
            return [known[text_digest(passage)] for passage in passages]
        except KeyError as error:
            raise AlteredError(
                f"{SCORES}: a passage of the question {query[:60]!r} was not scored; run `coldread encode` again"
            ) from error

    def beside(self, pairs: Sequence[PairScores]) -> Iterator[tuple[float, float]]:
        """The stored and the given score of each of these pairs."""
        for pair in pairs:
            for passage, score in zip(pair.passages, pair.scores, strict=True):
                yield self._of[pair.query][passage], float(score)


@dataclass(frozen=True)
class Retrieval:
    """Inputs of retrieval views besides the history: settings, vectors and scores."""

    settings: RetrievalSettings = field(default_factory=RetrievalSettings)
    vectors: Vectors | None = None
    scores: Scores | None = None

    def need_vectors(self) -> Vectors:
        """The vectors; ConfigurationError if none were made."""
        if self.vectors is None:
            raise ConfigurationError("a dense view needs an embedding model: name one under `retrieval: {encoder: …}`")
        return self.vectors

    def need_scores(self) -> Scores:
        """The scores; ConfigurationError if none were made."""
        if self.scores is None:
            raise ConfigurationError("a reranked view needs a reranker: name one under `retrieval: {reranker: …}`")
        return self.scores


def write_vectors(folder: Path, rows: Sequence[TextRow], matrix: NDArray[np.float32], chunks: Sequence[Chunk]) -> None:
    """Store vectors as little-endian float32 in row order, the text of each row, and the chunk boundaries."""
    write_lines(folder / TEXTS, rows)
    write_bytes(folder / VECTORS, [matrix.astype("<f4", copy=False).tobytes()])
    write_lines(folder / CHUNKS, chunks)


def read_vectors(folder: Path) -> Vectors:
    """The vectors that `write_vectors` stored; AlteredError if the array does not fit its index."""
    rows = list(read_lines(folder / TEXTS, TextRow))
    data = read_bytes(folder / VECTORS)
    if not data or not rows or len(data) % (4 * len(rows)):
        raise AlteredError(f"{folder / VECTORS}: {len(data)} bytes do not fit the {len(rows)} texts of {TEXTS}")
    matrix = np.frombuffer(data, dtype="<f4").reshape(len(rows), -1)
    return Vectors(rows, matrix, list(read_lines(folder / CHUNKS, Chunk)))


def read_scores(folder: Path) -> Scores:
    """The stored scores of a reranker."""
    return Scores(list(read_lines(folder / SCORES, PairScores)))


def check_vectors(matrix: NDArray[np.float32], name: str) -> None:
    """ConfigurationError unless every row has length 1 (or 0), as fixed point requires."""
    lengths = np.linalg.norm(matrix.astype(np.float64), axis=1)
    wrong = ~(np.abs(lengths - 1) < 1e-3) & (lengths != 0)
    if wrong.any():
        raise ConfigurationError(
            f"encoder {name!r}: {int(wrong.sum())} of {len(matrix)} vectors are not of length 1 (the first: "
            f"{lengths[wrong][0]}); with float16 weights this can be an overflow: try another dtype"
        )
