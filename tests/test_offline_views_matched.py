import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import drawn_retrieval, memory, question

from offline.memory import Memory
from offline.render import Rendered
from offline.views import find_view

NAMES = ["Ada", "Bo", "Cy", "Dieter Long Name", "Ed"]
TEXTS = st.lists(
    st.builds("{} leads to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES))
    | st.builds("{} is married to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES))
    | st.builds("{} had lunch with {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES))
    | st.builds("Perhaps {} moved to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES)),
    min_size=1,
    max_size=20,
)
QUERIES = st.sampled_from([*(f"Where does {name} lead to?" for name in NAMES), "Who is nobody?", ""])
# From no limit down to what one line does not fit, with the eight characters of the heading.
BUDGETS = st.sampled_from([-1, 60_000, 400, 200, 120, 60, 30, 10])
REGIMES = st.sampled_from(["shared", "grid"])

VIEWS = ["fact_bm25", "fact_dense", "fact_hybrid_k4", "fact_dense_rerank_k3", "chunk_dense", "chunk60_bm25_k4", "window_bm25"]
OTHERS = [*VIEWS, "cmc", "prior_refresh", "stale_state", "latest_state", "raw_history", "closed_book", "random_disjoint"]
UNITS = ("fact", "chunk", "chunk60", "window")


def _world(texts: list[str], query: str, regime: str, budget: int) -> Memory:
    return memory(texts, regime, retrieval=drawn_retrieval(texts, [query], UNITS), budget=budget)


def _shown(compiled: Memory, view: str, query: str) -> Rendered:
    return compiled.render(compiled.settle(find_view(view)(compiled, question(query))))


def _by_hand(compiled: Memory, view: str, other: str, query: str) -> list[int]:
    """Walk the view's ranking; take each passage whose new records still fit the other view's evidence.

    A fact view also shows the unresolved records that the other one shows, and their room is not there for facts.
    """
    unit, _, rest = view.partition("_")
    retriever, _, k = rest.partition("_k")
    against = _shown(compiled, other, query)
    usual = {"fact": compiled.settings.k, "window": 64}.get(unit, 10)
    taken = {p for p in against.positions if p in compiled.graph.unresolved} if unit == "fact" else set()
    left = len(against.text) - len("Records:") - sum(len(compiled.line(p)) + 1 for p in taken)
    for passage in compiled.corpus(unit).rank(retriever, query, int(k or usual)):
        size = sum(len(compiled.line(p)) + 1 for p in set(passage.positions) - taken)
        if size <= left:
            taken |= set(passage.positions)
            left -= size
    return sorted(taken)


@pytest.mark.parametrize("view", VIEWS)
@given(TEXTS, QUERIES, BUDGETS, REGIMES, st.sampled_from(OTHERS))
def test_a_matched_view_is_never_longer_than_the_other_and_takes_whole_passages_that_fit(
    view: str, texts: list[str], query: str, budget: int, regime: str, other: str
) -> None:
    compiled = _world(texts, query, regime, budget)
    against, matched = _shown(compiled, other, query), _shown(compiled, f"{view}_matched_to_{other}", query)
    assert len(matched.text) <= len(against.text)
    assert list(matched.positions) == _by_hand(compiled, view, other, query)
    assert not matched.truncated


@given(TEXTS, QUERIES, BUDGETS, REGIMES)
def test_matched_without_a_name_is_matched_to_cmc(texts: list[str], query: str, budget: int, regime: str) -> None:
    compiled = _world(texts, query, regime, budget)
    assert _shown(compiled, "fact_dense_matched", query) == _shown(compiled, "fact_dense_matched_to_cmc", query)


@given(TEXTS, QUERIES, BUDGETS, st.sampled_from(["fact_bm25", "chunk60_bm25_k4", "window_bm25"]))
def test_a_view_matched_to_itself_shows_what_it_shows(texts: list[str], query: str, budget: int, view: str) -> None:
    # Where the budget cuts nothing: what it cuts is the oldest, and a matched view takes the best.
    compiled = _world(texts, query, "shared", budget)
    alone = _shown(compiled, view, query)
    if not alone.truncated and compiled.settle(find_view(view)(compiled, question(query))).fallback is None:
        assert _shown(compiled, f"{view}_matched_to_{view}", query) == alone


def test_a_fact_view_matched_to_one_without_evidence_shows_nothing_not_even_unresolved_records() -> None:
    compiled = _world(["Perhaps Ada moved to Rome.", "Ada leads to Bo."], "Ada?", "shared", -1)
    assert _shown(compiled, "fact_bm25_matched_to_closed_book", "Ada?").text == ""


def test_a_fact_view_matched_to_a_raw_one_shows_the_unresolved_records_of_that_one_alone() -> None:
    # The chunk that holds "Zoe" is of records 2 and 3; the unresolved record 0 is not in it. The unresolved record 3 is, and
    # leaves 22 characters for facts: "[2] Zoe leads to Yan." and its line break.
    texts = ["Perhaps Ada moved to Rome.", "Bo leads to Cy.", "Zoe leads to Yan.", "Perhaps Zoe moved to Rome."]
    compiled = _world(texts, "Zoe?", "shared", -1)
    assert _shown(compiled, "chunk60_bm25_k1", "Zoe?").positions == (2, 3)
    assert _shown(compiled, "fact_bm25_matched_to_chunk60_bm25_k1", "Zoe?").positions == (2, 3)


def test_a_passage_that_does_not_fit_is_skipped_and_the_walk_goes_on() -> None:
    # cmc shows Bo's record alone: 19 characters and a line break. Of BM25's two hits the first is longer, the second fits.
    texts = ["Ada leads to the old town of Zed.", "Cy leads to Di.", "Bo leads to Ed.", "Ed leads to Fay.", "Gus leads to Hal."]
    compiled = _world(texts, "Old town of Zed, Bo?", "shared", -1)
    assert [p.positions for p in compiled.corpus("fact").rank("bm25", "Old town of Zed, Bo?", 2)] == [(0,), (2,)]
    assert _shown(compiled, "cmc_h1", "Old town of Zed, Bo?").positions == (2,)
    assert _shown(compiled, "fact_bm25_matched_to_cmc_h1", "Old town of Zed, Bo?").positions == (2,)
    # Among the first one alone there is none that fits.
    assert _shown(compiled, "fact_bm25_k1_matched_to_cmc_h1", "Old town of Zed, Bo?").text == ""


def test_the_pieces_of_a_record_count_and_are_shown_as_the_whole_record_once() -> None:
    # In chunks of ten characters every record is cut; "Ada" is in a piece of record 0, whose line has 20 characters.
    compiled = _world(["Ada leads to Bo.", "Bo leads to Cy."], "Ada?", "shared", -1)
    assert _shown(compiled, "chunk10_bm25_matched_to_raw_history", "Ada?").positions == (0, 1)
    assert _shown(compiled, "chunk10_bm25_matched_to_cmc_h1", "Ada?").positions == (0,)


def test_a_matched_view_never_falls_back() -> None:
    # Nothing fits an empty evidence; in the grid regime cmc shows the raw history for an incomplete parse.
    for regime in ("shared", "grid"):
        compiled = _world(["Ada leads to Bo.", "Perhaps Ada moved to Rome."], "Ada?", regime, -1)
        for view in ("fact_bm25_matched", "fact_bm25_matched_to_closed_book", "window_bm25_matched_to_closed_book"):
            assert compiled.settle(find_view(view)(compiled, question("Ada?"))).fallback is None
