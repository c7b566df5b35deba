"""Cost of ranking: BM25 against rank_bm25, dense retrieval against plain float32 arithmetic."""

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import time_each, timed

from offline.config.models import Encoder
from offline.config.yaml import find_config, load_yaml
from offline.retrievers.bm25 import BM25, DECIMALS, TOKENIZERS
from offline.retrievers.dense import Dense
from offline.vectors import TextRow, Vectors, text_digest
from readers.encoders.embedding import EmbeddingModel
from readers.encoders.process import model_process
from readers.models.pins import locate


def lexical(documents: Sequence[str], texts: Sequence[str], tokenizer: str, k: int, queries: int) -> dict[str, Any]:
    """Query and index times, ours and rank_bm25's, and how many of the first k differ in order."""
    from rank_bm25 import BM25Okapi

    tokenize = TOKENIZERS[tokenizer]
    index, ours = timed(BM25, documents, tokenize)
    their_index, theirs = timed(lambda: BM25Okapi([tokenize(document) for document in documents]))

    def their_rank(query: str) -> list[int]:
        # Documents come newest first, so a stable sort keeps the newest of equal scores in front.
        keys = -np.round(theirs.get_scores(tokenize(query)), DECIMALS)
        return [int(document) for document in np.argsort(keys, kind="stable")[:k]]

    sample = texts[:: max(1, len(texts) // queries)][:queries]
    query = float(np.median(time_each(lambda text: ours.rank(text, k), texts)))
    their_query = float(np.median(time_each(their_rank, sample)))
    different = sum(ours.rank(text, k) != their_rank(text) for text in sample)
    result: dict[str, Any] = {"documents": len(documents), "queries": len(texts), "queries_of_rank_bm25": len(sample)}
    result |= {"query_ms": query * 1e3, "query_ms_of_rank_bm25": their_query * 1e3, "ratio_median": their_query / query}
    result |= {"order_differences": different, "index_seconds": index, "index_seconds_ratio": index / their_index}
    pay_back = math.ceil(max(0.0, index - their_index) / max(their_query - query, 1e-9))
    return {**result, "queries_to_pay_back": pay_back}


def _vectors(
    passages: NDArray[np.float32], queries: NDArray[np.float32], texts: Sequence[str], asked: Sequence[str]
) -> Vectors:
    rows = [TextRow("passage", text_digest(t)) for t in texts] + [TextRow("query", text_digest(t)) for t in asked]
    return Vectors(rows, np.concatenate([passages, queries]), [])


def _against_float32(vectors: Vectors, texts: Sequence[str], asked: Sequence[str], raw: Any, k: int) -> dict[str, Any]:
    """Our exact ranking against one float32 product and a stable sort. raw: passages and queries."""
    build, ours = timed(Dense, texts, vectors, asked)
    passages, queries = raw
    places = {text: number for number, text in enumerate(asked)}

    def plain(text: str) -> list[int]:
        scores = passages @ queries[places[text]]
        return [int(index) for index in np.argsort(-scores, kind="stable")[:k]]

    # The mean, since one question in 32 pays for the others.
    exact = float(np.mean(time_each(lambda text: ours.rank(text, k), asked)))
    rounded = float(np.mean(time_each(plain, asked)))
    different = sum(ours.rank(text, k) != plain(text) for text in asked)
    result: dict[str, Any] = {"passages": len(texts), "dimension": passages.shape[1], "index_seconds": build}
    result |= {"query_ms": exact * 1e3, "query_ms_of_float32": rounded * 1e3, "ratio_to_float32": exact / rounded}
    return {**result, "orders_that_float32_changes": different, "queries": len(asked)}


def dense(documents: Sequence[str], asked: Sequence[str], k: int, sample: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Encoding one by one and in batches of 32, then ranking real vectors, and random ones of growing number."""
    encoder = load_yaml(find_config("encoders", "minilm"), Encoder)
    texts = list(dict.fromkeys(documents))
    some = sorted(texts[:: max(1, len(texts) // sample)][:sample], key=len)
    with model_process(EmbeddingModel, encoder, str(locate(encoder)), whose="encoder 'minilm'") as call:
        call("encode", "passage", some[:32], 32)
        one, alone = timed(call, "encode", "passage", some, 1)
        many, together = timed(call, "encode", "passage", some, 32)
        passages = call("encode", "passage", texts, 32)
        queries = call("encode", "query", list(asked), 32)
    result: dict[str, Any] = {"encoded": len(some), "texts_a_second": len(some) / many, "ratio_to_batch_1": one / many}
    result |= {"vectors_that_batches_change": int((alone != together).any(axis=1).sum())}
    result |= {"largest_difference": float(np.abs(alone - together).max())}
    rows = [_against_float32(_vectors(passages, queries, texts, asked), texts, asked, (passages, queries), k)]
    random = np.random.default_rng(7)
    for size in sizes:
        made = [str(number) for number in range(size)]
        drawn = random.standard_normal((size, passages.shape[1]), dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        few = list(asked)[:20]
        vectors = _vectors(drawn, queries[:20], made, few)
        rows.append(_against_float32(vectors, made, few, (drawn, queries[:20]), k))
    return {**result, "threads": os.environ.get("OMP_NUM_THREADS", "all"), "ranking": rows}
