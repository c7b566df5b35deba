from collections.abc import Sequence
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import memory, vectors

from offline.config.experiment import RetrievalSettings
from offline.errors import AlteredError, ConfigurationError
from offline.passages import Passage
from offline.retrievers import best, find_retriever, needs_vectors, retriever_names
from offline.retrievers.bm25 import BM25
from offline.retrievers.dense import Dense
from offline.retrievers.fusion import Fusion
from offline.retrievers.rerank import Reranked
from offline.vectors import PairScores, Retrieval, Scores, text_digest

# Directions with many equal and nearly equal angles between them, and ones of any kind.
COORDINATES = st.integers(-3, 3).map(float) | st.floats(-1, 1, width=32)


def _directions(size: int) -> st.SearchStrategy[list[float]]:
    """Vectors of length 1 (or 0)."""
    return st.lists(COORDINATES, min_size=size, max_size=size).map(
        lambda raw: [x / length for x in raw] if (length := sum(x * x for x in raw) ** 0.5) > 1e-6 else [0.0] * size
    )


WORLDS = st.integers(1, 6).flatmap(lambda size: st.tuples(st.lists(_directions(size), max_size=12), _directions(size)))


def _dense(passages: Sequence[Sequence[float]], query: Sequence[float], order: Sequence[int] | None = None) -> Dense:
    """Passages p0, p1, … newest first and the query q; `order`: how the rows are stored."""
    stored = {f"p{at}": passages[at] for at in (range(len(passages)) if order is None else order)}
    return Dense([f"p{at}" for at in range(len(passages))], vectors(stored, {"q": query}))


def _fixed(vector: Sequence[float]) -> list[int]:
    """The stored float32, rounded half to even to a whole number of 2^-24."""
    return [round(Fraction(float(np.float32(x))) * 2**24) for x in vector]


def _cosines(passages: Sequence[Sequence[float]], query: Sequence[float]) -> list[Fraction]:
    """In whole numbers, which cannot round."""
    wanted = _fixed(query)
    return [Fraction(sum(a * b for a, b in zip(_fixed(p), wanted, strict=True)), 2**48) for p in passages]


# Dense


@given(WORLDS, st.integers(1, 15))
def test_dense_ranks_by_the_exact_product_and_equal_ones_newest_first(
    world: tuple[list[list[float]], list[float]], k: int
) -> None:
    passages, query = world
    cosines = _cosines(passages, query)
    expected = sorted(range(len(passages)), key=lambda i: (-cosines[i], i))[:k]
    ranker = _dense(passages, query)
    assert ranker.rank("q", k) == ranker.matches("q", k) == expected
    assert [Fraction(score) / 2**48 for score in ranker.scores("q")] == cosines


@given(WORLDS, st.randoms(use_true_random=False))
def test_neither_the_order_of_the_rows_nor_that_of_the_dimensions_changes_a_score(
    world: tuple[list[list[float]], list[float]], random: Random
) -> None:
    passages, query = world
    rows, dimensions = list(range(len(passages))), list(range(len(query)))
    random.shuffle(rows)
    random.shuffle(dimensions)
    turned = [[vector[at] for at in dimensions] for vector in passages]
    before = _dense(passages, query).scores("q").tolist()
    assert _dense(passages, query, rows).scores("q").tolist() == before
    assert _dense(turned, [query[at] for at in dimensions]).scores("q").tolist() == before


def test_a_thousand_dimensions_are_summed_without_rounding_in_whatever_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # numpy multiplies int64 matrices without BLAS; the sums stay below 2^49.
    random = np.random.default_rng(5)
    raw = random.normal(size=(700, 1024))
    stored = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    whole = np.rint(stored.astype(np.float64) * 2**24).astype(np.int64)
    ranker = _dense(stored[1:].tolist(), stored[0].tolist())
    exact = whole[1:] @ whole[0]
    assert np.abs(exact).max() < 2**53
    for block in (65_536, 699, 64, 1):
        monkeypatch.setattr("offline.retrievers.dense._BLOCK", block)
        assert ranker.scores("q").tolist() == exact.tolist()


def test_the_nearest_passage_comes_first_by_hand() -> None:
    # Cosines 0.6, 1, -1, 0.6 with the query (0, 1).
    assert _dense([[0.8, 0.6], [0, 1], [0, -1], [-0.8, 0.6]], [0, 1]).rank("q", 4) == [1, 0, 3, 2]


def test_vectors_that_differ_by_less_than_fixed_point_holds_are_a_tie() -> None:
    # 2^-26 is a quarter of the last place: float32 holds it, fixed point rounds it away. 2^-24 is a whole one.
    assert _dense([[0.0], [2.0**-26], [2.0**-24]], [1.0]).rank("q", 3) == [2, 0, 1]


def test_a_difference_of_products_that_float32_would_round_away_decides() -> None:
    # Both products are near 1; the second is larger by 2^-24 * 2^-10.
    assert _dense([[1.0, 0.0], [1.0, 2.0**-24]], [1.0, 2.0**-10]).rank("q", 2) == [1, 0]


def test_passages_of_one_text_share_its_vector_and_tie_newest_first() -> None:
    ranker = Dense(["b", "a", "b", "a"], vectors({"a": [1, 0], "b": [0, 1]}, {"q": [1, 0]}))
    assert ranker.rank("q", 4) == [1, 3, 0, 2]
    assert ranker.rank("q", 1) == [1]


def test_a_k_beyond_the_corpus_ranks_it_all_and_an_empty_corpus_nothing() -> None:
    assert _dense([[1.0], [-1.0]], [1.0]).rank("q", 100) == [0, 1]
    assert _dense([[1.0]], [1.0]).rank("q", 0) == []
    assert Dense([], vectors({}, {"q": [1.0]})).rank("q", 5) == []


def test_a_text_that_was_never_encoded_is_refused_by_name() -> None:
    stored = vectors({"known": [1.0]}, {"q": [1.0]})
    with pytest.raises(AlteredError, match=r"the passage 'other' was not encoded; run `coldread encode`"):
        Dense(["known", "other"], stored)
    # As a query and as a passage a text has two vectors.
    with pytest.raises(AlteredError, match="the query 'known' was not encoded"):
        Dense(["known"], stored).rank("known", 1)


@given(st.lists(st.integers(-2, 2).map(float), max_size=12), st.integers(0, 15))
def test_best_is_the_first_k_of_a_stable_sort(scores: list[float], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert best(np.array(scores, dtype=np.float64), k) == expected


# BM25's matches


DOCUMENTS = st.lists(st.lists(st.sampled_from(["ada", "bo", "cy", "di"]), max_size=4).map(" ".join), max_size=10)


@given(DOCUMENTS, st.lists(st.sampled_from(["ada", "bo", "cy", "ed"]), max_size=3).map(" ".join), st.integers(0, 12))
def test_bm25_matches_are_its_ranking_without_documents_that_hold_no_word_of_the_query(
    documents: list[str], query: str, k: int
) -> None:
    index = BM25(documents)
    holding = [i for i in index.rank(query, len(documents)) if set(documents[i].split()) & set(query.split())]
    assert index.matches(query, k) == holding[:k]


@given(DOCUMENTS, st.sets(st.integers(0, 9)), st.lists(st.sampled_from(["ada", "bo", "ed"]), max_size=3).map(" ".join))
def test_bm25_among_some_documents_is_its_ranking_without_the_others(documents: list[str], some: set[int], query: str) -> None:
    index = BM25(documents)
    among = np.array(sorted(some & set(range(len(documents)))), dtype=np.int64)
    for k in (0, 2, 12):
        expected = [i for i in index.rank(query, len(documents)) if i in some][:k]
        assert index.rank_among(among, query, k) == expected


def test_a_document_that_holds_a_word_of_weight_nought_or_less_is_a_match() -> None:
    # "ada" in half of the documents weighs nothing, in all of them less than nothing.
    assert BM25(["bo", "ada"]).matches("ada", 5) == [1]
    assert BM25(["ada", "ada"]).matches("ada bo", 5) == [0, 1]


# Fusion


class Fixed:
    """A retriever that always ranks alike, and fills up with what is left, newest first."""

    def __init__(self, *matches: int, size: int = 0) -> None:
        self._matches = list(matches)
        self._size = size

    def matches(self, query: str, k: int) -> list[int]:
        return self._matches[:k]

    def rank(self, query: str, k: int) -> list[int]:
        return [*self._matches, *(i for i in range(self._size) if i not in self._matches)][:k]


def test_fusion_adds_one_over_sixty_plus_rank_by_hand() -> None:
    fused = Fusion([Fixed(3, 1, 2), Fixed(2, 3)], size=6, constant=60, depth=100)
    # 3: 1/61 + 1/62; 2: 1/63 + 1/61; 1: 1/62. Since 1/62 > 1/63, 3 comes before 2; nobody names 0, 4 and 5.
    assert fused.matches("q", 10) == [3, 2, 1]
    assert fused.rank("q", 10) == [3, 2, 1, 0, 4, 5]
    assert fused.rank("q", 4) == [3, 2, 1, 0]
    assert fused.rank("q", 2) == [3, 2]


def test_sums_that_are_equal_go_newest_first() -> None:
    # 1/61 + 1/62 for both.
    assert Fusion([Fixed(4, 2), Fixed(2, 4)], size=5, constant=60, depth=100).rank("q", 2) == [2, 4]


def test_the_constant_decides_between_one_first_place_and_two_low_ones() -> None:
    rankers = [Fixed(0, 1, 2, 3), Fixed(4, 5, 6, 3)]
    # Constant 60: 3 has 2/64 > 1/61. Constant 1: 3 has 2/5 < 1/2.
    assert Fusion(rankers, size=7, constant=60, depth=100).rank("q", 1) == [3]
    assert Fusion(rankers, size=7, constant=1, depth=100).rank("q", 1) == [0]


def test_a_ranking_is_fused_only_as_deep_as_asked_for() -> None:
    rankers = [Fixed(0, 1, 2, 3), Fixed(4, 5, 6, 3)]
    assert Fusion(rankers, size=8, constant=60, depth=3).matches("q", 10) == [0, 4, 1, 5, 2, 6]


RANKINGS = st.lists(st.permutations(list(range(8))).flatmap(lambda p: st.integers(0, 8).map(lambda n: p[:n])), max_size=3)


@given(RANKINGS, st.integers(1, 70), st.integers(1, 9), st.integers(0, 10))
def test_fusion_is_what_cormack_and_others_define(rankings: list[list[int]], constant: int, depth: int, k: int) -> None:
    # Cormack, Clarke and Büttcher (2009): the sum over rankings of 1 / (constant + rank), ranks from 1.
    sums = {
        i: sum((Fraction(1, constant + r[:depth].index(i) + 1) for r in rankings if i in r[:depth]), Fraction(0))
        for i in range(8)
    }
    expected = sorted(range(8), key=lambda i: (-sums[i], i))
    fused = Fusion([Fixed(*ranking, size=8) for ranking in rankings], size=8, constant=constant, depth=depth)
    # What nobody names has the sum nought, so newest first is the definition there too.
    assert fused.rank("q", k) == expected[:k]
    assert fused.matches("q", k) == [i for i in expected if sums[i] > 0][:k]


FIVE = ["Ada leads to Bo.", "Cy leads to Di.", "Ed leads to Fay.", "Gus leads to Hal.", "Ida leads to Jo."]


def _five(query: str, direction: Sequence[float], numbers: RetrievalSettings | None = None) -> Retrieval:
    """Five facts at angles 0, 18, 36, 54 and 72 degrees, oldest first, and one query."""
    angles = np.deg2rad([0, 18, 36, 54, 72])
    stored = {text: [float(np.cos(angle)), float(np.sin(angle))] for text, angle in zip(FIVE, angles, strict=True)}
    return Retrieval(numbers or RetrievalSettings(), vectors(stored, {query: direction}))


def _positions(found: Sequence[Passage]) -> list[int]:
    return [position for passage in found for position in passage.positions]


def test_a_query_of_unknown_words_is_ranked_by_the_vectors_alone() -> None:
    # BM25 would fill up with 4, 3, 2, 1, 0; the query's direction is that of the oldest record.
    corpus = memory(FIVE, retrieval=_five("unknown words", [1, 0])).corpus("fact")
    assert _positions(corpus.rank("bm25", "unknown words", 5)) == [4, 3, 2, 1, 0]
    assert _positions(corpus.rank("hybrid", "unknown words", 5)) == [0, 1, 2, 3, 4]


def test_a_hybrid_ranking_takes_the_words_and_the_vectors_alike() -> None:
    # "Gus" is in record 3 alone: BM25 says 3 and nothing else. Vectors say 0, 1, 2, 3, 4. 3: 1/61 + 1/64, 0: 1/61.
    corpus = memory(FIVE, retrieval=_five("Gus?", [1, 0])).corpus("fact")
    assert _positions(corpus.rank("hybrid", "Gus?", 5)) == [3, 0, 1, 2, 4]


def test_the_experiments_numbers_set_how_deep_and_with_which_constant_rankings_are_fused() -> None:
    # As above with only the first of each ranking: 3 and 0 have 1/61 each, newest first; nobody names 4, 2 and 1.
    corpus = memory(FIVE, retrieval=_five("Gus?", [1, 0], RetrievalSettings(candidates=1))).corpus("fact")
    assert _positions(corpus.rank("hybrid", "Gus?", 5)) == [3, 0, 4, 2, 1]


@pytest.mark.parametrize("name", ["bm25", "dense", "hybrid", "hybrid_rerank"])
def test_a_short_ranking_is_the_beginning_of_a_longer_one_whichever_was_asked_for_first(name: str) -> None:
    numbers = RetrievalSettings(candidates=2)
    for query in ("Gus or Ida or Ada?", "unknown words"):
        made = _five(query, [0, 1], numbers)
        pairs = PairScores(text_digest(query), tuple(map(text_digest, FIVE)), ("0.1", "0.5", "0.3", "0.2", "0.4"))
        world = Retrieval(numbers, made.vectors, Scores([pairs]))
        alone = [_positions(memory(FIVE, retrieval=world).corpus("fact").rank(name, query, k)) for k in range(1, 6)]
        assert alone == [alone[-1][:k] for k in range(1, 6)]
        corpus = memory(FIVE, retrieval=world).corpus("fact")
        assert [_positions(corpus.rank(name, query, k)) for k in (5, 3, 1, 4)] == [alone[k - 1] for k in (5, 3, 1, 4)]


# Reranking


def _reranked(first: Sequence[int], scores: Sequence[str], candidates: int) -> Reranked:
    """Passages t0, t1, … newest first with these scores for the query q."""
    passages = [Passage((10 - at,), f"t{at}", f"t{at}") for at in range(len(scores))]
    stored = Scores([PairScores(text_digest("q"), tuple(text_digest(p.text) for p in passages), tuple(scores))])
    return Reranked(Fixed(*first, size=len(scores)), passages, stored, candidates)


def test_reranking_orders_the_candidates_by_score_and_knows_no_others() -> None:
    # The fourth of the first stage, 0, has the highest score and is no candidate.
    ranker = _reranked([2, 3, 1, 0], ["9.5", "0.25", "-1", "3e-05"], 3)
    assert ranker.rank("q", 10) == [1, 3, 2]
    assert ranker.rank("q", 2) == ranker.matches("q", 2) == [1, 3]


def test_equal_scores_go_newest_first_whatever_the_first_stage_said() -> None:
    assert _reranked([3, 2, 1, 0], ["0.5", "0.5", "0.7", "0.5"], 4).rank("q", 4) == [2, 0, 1, 3]


def test_a_pair_that_was_not_scored_is_refused() -> None:
    passages = [Passage((0,), "known", "known"), Passage((1,), "other", "other")]
    stored = Scores([PairScores(text_digest("q"), (text_digest("known"),), ("0.5",))])
    for query in ("q", "never asked"):
        with pytest.raises(AlteredError, match=f"'{query}' was not scored; run `coldread encode`"):
            Reranked(Fixed(1, 0), passages, stored, 2).rank(query, 1)


def test_reranking_needs_scores_and_vectors_need_a_model_and_both_say_which_setting_names_it() -> None:
    corpus = memory(FIVE).corpus("fact")
    for name, cure in (("bm25_rerank", "reranker: …"), ("dense", "encoder: …"), ("hybrid", "encoder: …")):
        with pytest.raises(ConfigurationError, match=cure):
            corpus.rank(name, "Ada?", 1)


# Names


def test_the_first_stages_are_known_by_name_and_which_of_them_need_vectors() -> None:
    assert retriever_names() == ["bm25", "dense", "hybrid"]
    needing = [name for name in ("bm25", "dense", "hybrid", "bm25_rerank", "dense_rerank") if needs_vectors(name)]
    assert needing == ["dense", "hybrid", "dense_rerank"]


@pytest.mark.parametrize("name", ["", "tfidf", "tfidf_rerank", "_rerank", "bm25_rerank_rerank_x", "BM25"])
def test_an_unknown_retriever_is_refused_and_the_known_ones_are_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown retriever .*; known: bm25, dense, hybrid"):
        find_retriever(name)


def test_a_retriever_is_made_once_for_a_corpus() -> None:
    corpus = memory(FIVE).corpus("fact")
    assert corpus.retriever("bm25") is corpus.retriever("bm25")
