import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from worlds import RealWorld, memory

from offline.retrievers.bm25 import BM25, ascii_tokens, unicode_tokens

WORDS = st.lists(st.sampled_from(["ada", "bo", "cy", "di", "the", "of", "Ada", "x1"]), max_size=8).map(" ".join)
CORPUS = st.lists(WORDS, min_size=1, max_size=12).filter(lambda documents: any(documents))


def _tokens(text: str) -> list[str]:
    """The papers' tokens, on their own: `[A-Za-z0-9]+` lowercased."""
    return [token.lower() for token in re.findall(r"[A-Za-z0-9]+", text)]


def _oracle(documents: list[str], query: str, **numbers: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.asarray(BM25Okapi([_tokens(document) for document in documents], **numbers).get_scores(_tokens(query)))


# (k1, b): the usual ones, those of sliding windows (compiler paper, appendix I), and two others.
NUMBERS = st.sampled_from([(1.5, 0.75), (1.2, 0.75), (0.5, 0.0), (2.0, 0.5)])


@given(CORPUS, WORDS, NUMBERS)
def test_scores_equal_those_of_rank_bm25(documents: list[str], query: str, numbers: tuple[float, float]) -> None:
    k1, b = numbers
    oracle = _oracle(documents, query, k1=k1, b=b)
    np.testing.assert_allclose(BM25(documents, k1=k1, b=b).scores(query), oracle, rtol=0, atol=1e-9)


@given(CORPUS, WORDS, st.integers(1, 15))
def test_the_order_is_by_score_and_equal_scores_keep_the_newest_first(documents: list[str], query: str, k: int) -> None:
    scores = _oracle(documents, query)
    # Documents are given newest first, so the smaller index is the newer one.
    expected = sorted(range(len(documents)), key=lambda i: (-round(float(scores[i]), 9), i))[:k]
    assert BM25(documents).rank(query, k) == expected


@pytest.mark.parametrize(("unit", "k1"), [("fact", 1.5), ("chunk2000", 1.5), ("window", 1.2)])
def test_sliding_windows_alone_take_a_k1_of_their_own(unit: str, k1: float) -> None:
    # Records of more than half a window or chunk: each is a passage.
    texts = [f"{text} {'x' * 1_500}." for text in ("Ada leads to Bo", "Bo leads to Cy and to Cy again", "Di leads to Ed")]
    corpus = memory(texts).corpus(unit)
    words = [passage.words for passage in corpus.passages]
    ours = corpus.retriever("bm25")
    assert isinstance(ours, BM25)
    np.testing.assert_allclose(ours.scores("Ada or Cy?"), _oracle(words, "Ada or Cy?", k1=k1, b=0.75), rtol=0, atol=1e-9)
    # With the other one the scores are others.
    assert not np.allclose(ours.scores("Ada or Cy?"), _oracle(words, "Ada or Cy?", k1=2.7 - k1, b=0.75), rtol=0, atol=1e-3)


def test_a_score_is_what_the_formula_gives_by_hand() -> None:
    # Three documents of 2, 1 and 3 tokens: mean 2. "bo" stands in one of three: idf = ln((3 - 1 + 0.5) / (1 + 0.5)).
    # In document 2 it stands twice among three tokens: 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / 2)).
    scores = BM25(["ada cy", "cy", "bo bo di"]).scores("Bo")
    idf = math.log(2.5 / 1.5)
    assert scores.tolist() == pytest.approx([0, 0, idf * 5 / (2 + 1.5 * (0.25 + 0.75 * 1.5))], abs=1e-12)


def test_a_term_in_half_of_the_documents_weighs_nothing() -> None:
    # idf = ln(2 - 1 + 0.5) - ln(1 + 0.5) = 0.
    assert BM25(["ada", "bo"]).scores("ada").tolist() == [0, 0]
    assert BM25(["ada", "bo"]).rank("bo", 2) == [0, 1]


def test_a_term_in_every_document_takes_the_epsilon_rule_and_may_weigh_less_than_nothing() -> None:
    # "ada" in 2 of 2: ln(0.5 / 2.5) < 0, so it gets a quarter of the mean idf, which that term alone makes negative:
    # 0.25 * ln(0.2). Both documents have the mean length: frequency 1 * 2.5 / (1 + 1.5) = 1.
    weight = 0.25 * math.log(0.2)
    assert BM25(["ada", "ada"]).scores("ada").tolist() == pytest.approx([weight, weight], abs=1e-12)
    assert BM25(["ada", "ada"]).rank("ada", 2) == [0, 1]


def test_a_document_without_the_term_comes_before_one_whose_score_is_negative() -> None:
    documents = ["ada", "ada", "ada", ""]
    assert BM25(documents).scores("ada")[0] < 0
    assert BM25(documents).rank("ada", 4) == [3, 0, 1, 2]


def test_scores_that_differ_by_rounding_alone_are_a_tie() -> None:
    # "a" stands in three of four documents and takes the epsilon rule: a quarter of a mean idf that is nought but for
    # rounding. Documents 0, 1 and 2 score -2e-17, -9e-18 and -2e-17, which is a tie: newest first.
    index = BM25(["a d f", "c f d", "f d a", "e a b"])
    assert len(set(index.scores("a d b e")[:3].tolist())) > 1
    assert index.rank("a d b e", 4) == [3, 0, 1, 2]


def test_a_word_asked_twice_counts_twice() -> None:
    index = BM25(["ada bo", "cy", "di"])
    assert index.scores("ada ada").tolist() == pytest.approx((2 * index.scores("ada")).tolist())


def test_an_empty_corpus_ranks_nothing() -> None:
    assert BM25([]).rank("ada", 10) == []
    assert BM25([]).scores("ada").tolist() == []


def test_documents_without_a_token_are_ranked_newest_first() -> None:
    assert BM25(["", "...", "東京"]).rank("ada", 10) == [0, 1, 2]


@pytest.mark.parametrize("query", ["", "...", "unknown words", "東京"])
def test_a_query_that_hits_nothing_still_ranks_k_documents_newest_first(query: str) -> None:
    assert BM25(["ada", "bo", "cy"]).rank(query, 2) == [0, 1]


def test_a_k_beyond_the_corpus_ranks_it_all_and_a_k_of_nought_nothing() -> None:
    assert sorted(BM25(["ada", "bo"]).rank("bo", 100)) == [0, 1]
    assert BM25(["ada", "bo"]).rank("bo", 0) == []


def test_query_and_documents_go_through_one_tokeniser() -> None:
    # A capital, an apostrophe and a hyphen on either side change nothing.
    index = BM25(["Ada's well-known Tower", "bo", "cy"])
    assert index.scores("ADA S WELL KNOWN TOWER").tolist() == index.scores("ada's well-known tower").tolist()
    assert index.scores("tower")[0] > 0


def test_ascii_tokens_are_the_papers_and_find_nothing_in_another_script() -> None:
    assert ascii_tokens("St. Paul's-2 Caf\u00e9 東京 ſ") == ["st", "paul", "s", "2", "caf"]
    assert ascii_tokens("محمد علي") == []


def test_unicode_tokens_hold_other_scripts_whole() -> None:
    assert unicode_tokens("St. Paul's_2 Caf\u00e9 東京 محمد") == ["st", "paul", "s", "2", "caf\u00e9", "東京", "محمد"]
    # Vowel signs and points are part of their word, and the encoding of an accent does not matter.
    assert unicode_tokens("हिन्दी") == ["हिन्दी"]
    assert unicode_tokens("Cafe\u0301") == unicode_tokens("Caf\u00e9")


def test_the_tokeniser_setting_decides_whether_another_script_is_found() -> None:
    # "Cafe" and a combining accent in the record, one composed letter in the question.
    texts = ["محمد leads to Cafe\u0301.", "Bo leads to Cy.", "Di leads to Ed."]
    found = {
        tokenizer: memory(texts, tokenizer=tokenizer).corpus("fact").rank("bm25", "محمد café", 1)[0].positions[0]
        for tokenizer in ("ascii", "unicode")
    }
    # ASCII: no token but "caf", a token of neither; all scores are zero and the newest record comes first.
    assert found == {"ascii": 2, "unicode": 0}


@pytest.mark.real_data
@pytest.mark.parametrize("length", ["6k", "32k", "64k", "262k"])
def test_scores_and_order_on_the_real_facts_equal_rank_bm25_for_every_question(real_world: RealWorld, length: str) -> None:
    (history,) = (h for h in real_world.histories if h.length == length)
    compiled = real_world.memories[history.id]
    texts = {statement.position: statement.text for statement in history.statements}
    words = {relation.name: relation.words for relation in real_world.extraction.relations}
    # Spec, section 6: text, subject, object, sentence form without its slots; current facts, newest first.
    facts = sorted(compiled.graph.current.values(), key=lambda edge: (-edge.position, edge.key))
    documents = [f"{texts[f.position]} {f.surface} {f.value} {words[f.relation]}" for f in facts]
    oracle = BM25Okapi([_tokens(document) for document in documents])
    corpus = compiled.corpus("fact")
    ours = corpus.retriever("bm25")
    assert isinstance(ours, BM25)
    questions = [question for question in real_world.questions if question.history == history.id]
    assert len(questions) == 200
    for question in questions:
        scores = oracle.get_scores(_tokens(question.text))
        np.testing.assert_allclose(ours.scores(question.text), scores, rtol=0, atol=1e-9)
        rounded = np.round(scores, 9)
        # numpy's sort by several keys, the last one first: by score, then by place among the facts.
        expected = np.lexsort((np.arange(len(facts)), -rounded))[:100].tolist()
        assert ours.rank(question.text, 100) == expected
        assert [p.positions for p in corpus.rank("bm25", question.text, 100)] == [(facts[i].position,) for i in expected]
