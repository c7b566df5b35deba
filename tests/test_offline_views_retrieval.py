from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import drawn_retrieval, memory, show, vectors

from offline.config.experiment import RetrievalSettings
from offline.errors import ConfigurationError
from offline.memory import Memory
from offline.vectors import PairScores, Retrieval, Scores, text_digest
from offline.views import find_view
from offline.views.retrieval import RetrievalView

# Record 2 overwrites the fact of record 0; nothing is known of record 4's form.
WORLD = [
    "Ada leads to Bo.",
    "Bo leads to Cy.",
    "Ada leads to Di.",
    "Zoe leads to Yan.",
    "Perhaps Ada moved to Rome.",
    "Ed is married to Fay.",
]


def _positions(view: str, text: str, retrieval: Retrieval | None = None, **changes: object) -> tuple[int, ...]:
    _, evidence = show(WORLD, text, view, retrieval=retrieval, **changes)
    return evidence.positions


def test_statements_are_ranked_as_they_were_said_every_version_and_shown_alone() -> None:
    # "Di" stands in record 2 alone, "Bo" in 0 and 1, equally long; record 0 is overwritten and seen all the same. Record 4 is
    # unresolved: every view of facts would add it.
    assert _positions("statement_bm25_k2", "Bo or Di?") == (1, 2)
    assert _positions("statement_bm25_k3", "Bo or Di?") == (0, 1, 2)
    # Where no statement holds a word of the question, the newest fill up.
    assert _positions("statement_bm25_k2", "nothing") == (4, 5)


# Names


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("fact_bm25", RetrievalView("fact", "bm25")),
        ("fact_bm25_k10", RetrievalView("fact", "bm25", k=10)),
        ("fact_dense", RetrievalView("fact", "dense")),
        ("fact_hybrid", RetrievalView("fact", "hybrid")),
        ("fact_dense_rerank_k3", RetrievalView("fact", "dense_rerank", k=3)),
        ("chunk_dense_rerank", RetrievalView("chunk", "dense_rerank")),
        ("chunk4096_bm25", RetrievalView("chunk4096", "bm25")),
        ("window_bm25", RetrievalView("window", "bm25")),
        ("statement_bm25_k10", RetrievalView("statement", "bm25", k=10)),
        ("fact_dense_matched", RetrievalView("fact", "dense", match=find_view("cmc"))),
        ("fact_dense_matched_to_prior_refresh", RetrievalView("fact", "dense", match=find_view("prior_refresh"))),
        ("fact_bm25_k7_matched", RetrievalView("fact", "bm25", k=7, match=find_view("cmc"))),
        (
            "chunk4096_bm25_matched_to_fact_bm25",
            RetrievalView("chunk4096", "bm25", match=RetrievalView("fact", "bm25")),
        ),
        ("fact_bm25_matched_to_fact_dense_k3", RetrievalView("fact", "bm25", match=RetrievalView("fact", "dense", k=3))),
        (
            "fact_dense_matched_to_fact_bm25_matched",
            RetrievalView("fact", "dense", match=RetrievalView("fact", "bm25", match=find_view("cmc"))),
        ),
    ],
)
def test_a_name_spells_unit_retriever_number_and_the_view_it_is_matched_to(name: str, view: RetrievalView) -> None:
    assert find_view(name) == view


@pytest.mark.parametrize(
    "name",
    [
        "fact",
        "fact_",
        "fact_tfidf",
        "fact_tfidf_k3",
        "fact_tfidf_matched",
        "facts_bm25",
        "Fact_bm25",
        "chunk4096",
        "chunk04096_bm25",
        "chunk9_bm25",
        "window2048_bm25",
        "fact_bm25_k",
        "fact_bm25_k0",
        "fact_bm25_k03",
        "fact_bm25_rerank_rerank",
        "fact_bm25_h2",
        "bm25",
    ],
)
def test_an_unknown_unit_or_retriever_is_an_unknown_view_and_the_error_says_how_names_are_made(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_view(name)
    assert str(caught.value).startswith(f"unknown view '{name}'; known: closed_book, cmc, ")
    assert "; (fact|statement|chunk|chunkN|window)_(bm25|dense|hybrid) with _rerank, _kN, _matched; if a package" in str(
        caught.value
    )


@pytest.mark.parametrize("name", ["fact_bm25_k3_k5", "fact_bm25_matched_k3", "fact_bm25_matched_matched"])
def test_a_name_gives_each_part_once_and_in_order(name: str) -> None:
    # Else fact_bm25_k3_matched would have a second name, and which of two numbers counts would be for the reader to guess.
    with pytest.raises(ConfigurationError, match=f"unknown view '{name}'"):
        find_view(name)


@pytest.mark.parametrize("other", ["nothing", "fact_tfidf", ""])
def test_a_view_matched_to_an_unknown_one_is_refused_and_the_unknown_one_is_named(other: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown view '{other or 'fact_bm25_matched_to_'}'"):
        find_view(f"fact_bm25_matched_to_{other}")


# What is shown, by hand


def _dense_world(query: str) -> Retrieval:
    """Cosines with the query: 0.8 for the fact of record 5, 0.6 for 2 and 1, 0 for 3; scores the other way round."""
    near = {WORLD[5]: [0.8, 0.6], WORLD[2]: [0.6, 0.8], WORLD[1]: [0.6, -0.8], WORLD[3]: [0.0, 1.0]}
    scores = PairScores(text_digest(query), tuple(map(text_digest, near)), ("0.1", "0.2", "0.3", "0.4"))
    return Retrieval(RetrievalSettings(candidates=3), vectors(near, {query: [1.0, 0.0]}), Scores([scores]))


@pytest.mark.parametrize(
    ("view", "positions"),
    [
        # Record 4 is unresolved and shown with every fact.
        ("fact_dense_k1", (4, 5)),
        # 1 and 2 have one cosine: the newer one first.
        ("fact_dense_k2", (2, 4, 5)),
        ("fact_dense_k3", (1, 2, 4, 5)),
        ("fact_dense", (1, 2, 3, 4, 5)),
        # Three candidates, 5, 2 and 1, whose scores are 0.1, 0.2 and 0.3; record 3 has 0.4 and is none of them.
        ("fact_dense_rerank_k1", (1, 4)),
        ("fact_dense_rerank_k2", (1, 2, 4)),
        ("fact_dense_rerank", (1, 2, 4, 5)),
        # "Zoe" is in record 3 alone, which has 1/61 + nothing, since vectors name but 5, 2 and 1; 5 has 1/61 and is newer.
        ("fact_hybrid_k1", (4, 5)),
        ("fact_hybrid_k2", (3, 4, 5)),
        ("fact_hybrid_k3", (2, 3, 4, 5)),
        # BM25 says 3; the rest of its three candidates are filled up with the newest, 5 and 2.
        ("fact_bm25_rerank_k1", (3, 4)),
        ("fact_bm25_rerank_k2", (2, 3, 4)),
    ],
)
def test_a_fact_view_shows_the_facts_that_its_definition_names(view: str, positions: tuple[int, ...]) -> None:
    assert _positions(view, "Zoe?", _dense_world("Zoe?")) == positions


@pytest.mark.parametrize(
    ("view", "positions"),
    [
        # One chunk holds all; in source order, the overwritten and the unresolved record like any other.
        ("chunk4096_bm25", (0, 1, 2, 3, 4, 5)),
        # "[0] Ada leads to Bo." has 20 characters, and so have the next two: two lines and a break are 41. Record 3 has 21,
        # 4 has 30, 5 has 25: chunks 0-1, 2, 3, 4, 5.
        ("chunk41_bm25_k1", (3,)),
        # Of the rest nobody holds "Zoe": the newest come next.
        ("chunk41_bm25_k2", (3, 5)),
        ("chunk41_bm25_k4", (2, 3, 4, 5)),
        ("chunk41_bm25_k5", (0, 1, 2, 3, 4, 5)),
        # Ten characters: each record is cut for ranking and shown whole. "Zoe" is in one piece of record 3.
        ("chunk10_bm25_k1", (3,)),
        ("window_bm25", (0, 1, 2, 3, 4, 5)),
    ],
)
def test_a_view_of_the_raw_history_shows_whole_records_in_source_order(view: str, positions: tuple[int, ...]) -> None:
    assert _positions(view, "Zoe?") == positions


def test_chunks_of_the_encoders_tokens_are_shown_by_their_stored_boundaries() -> None:
    made = drawn_retrieval(WORLD, ["Zoe?"], ["chunk"], chunk_characters=41)
    assert _positions("chunk_bm25_k1", "Zoe?", made) == (3,)
    assert _positions("chunk_bm25_k2", "Zoe?", made) == (3, 5)


def test_chunks_number_ten_unless_the_experiment_says_otherwise() -> None:
    statements = [f"Ada{n} leads to Bo." for n in range(100, 130)]
    # Each line has 26 characters: a chunk of 30 is one record.
    for numbers, shown in ((RetrievalSettings(), 10), (RetrievalSettings(chunk_k=3), 3)):
        _, evidence = show(statements, "Nobody", "chunk30_bm25", retrieval=Retrieval(numbers))
        assert evidence.positions == tuple(range(30 - shown, 30))


# Windows


LONG = [f"Word{n} {'x' * 290} end." for n in range(60)]


def _windows_by_hand(compiled: Memory, text: str, windows: int, budget: int) -> list[int]:
    """The best windows whose new records fit, a line break before each record, until so many have been taken."""
    shown: list[int] = []
    taken, left = 0, budget - len("Records:")
    for window in compiled.corpus("window").rank("bm25", text, compiled.retrieval.settings.window_candidates):
        new = [position for position in window.positions if position not in shown]
        size = sum(len(compiled.line(position)) + 1 for position in new)
        if taken < windows and new and (budget < 0 or size <= left):
            shown += new
            taken, left = taken + 1, left - size
    return sorted(shown)


@given(
    st.lists(st.integers(0, 59), max_size=5),
    st.integers(1, 6),
    st.sampled_from([-1, 1, 100, 2_000, 4_500, 9_000, 60_000]),
)
def test_the_window_view_takes_so_many_windows_within_the_budget_each_record_once_in_source_order(
    words: list[int], windows: int, budget: int
) -> None:
    numbers = RetrievalSettings(windows=windows, window_candidates=9)
    text = " ".join(f"Word{n}" for n in words)
    packet, evidence = show(LONG, text, "window_bm25", retrieval=Retrieval(numbers), budget=budget)
    compiled = memory(LONG, retrieval=Retrieval(numbers), budget=budget)
    assert list(evidence.positions) == _windows_by_hand(compiled, text, windows, budget)
    assert budget < 0 or len(evidence.text) <= budget
    assert not packet.truncated
    # A window holds six records of some 300 characters, and shares none or, where the overlap allows, whole ones.
    assert len(evidence.positions) <= 6 * windows


def test_24_windows_are_shown_out_of_64() -> None:
    # Records of 1,000 characters: two in a window, none shared, so 100 windows; no word is known, so the newest 24 are shown.
    statements = [f"Word{n} {'x' * 980}." for n in range(200)]
    packet, evidence = show(statements, "Nobody", "window_bm25")
    assert evidence.positions == tuple(range(200 - 48, 200))
    assert not packet.truncated
    # At a number of one's own, that is what is shown, be it more or less.
    assert show(statements, "Nobody", "window_bm25_k3")[1].positions == tuple(range(194, 200))
    assert show(statements, "Nobody", "window_bm25_k29")[1].positions == tuple(range(142, 200))


def test_the_heading_and_the_line_breaks_count_towards_the_windows_budget() -> None:
    # Two windows of one record each: eight characters of heading, then each line with its break.
    statements = [f"Word{n} {'x' * 1_100}" for n in range(2)]
    whole = len(show(statements, "Nobody", "window_bm25", budget=-1)[1].text)
    assert whole == 8 + 2 * (1 + len("[0] Word0 ") + 1_100)
    assert show(statements, "Nobody", "window_bm25", budget=whole)[1].positions == (0, 1)
    packet, evidence = show(statements, "Nobody", "window_bm25", budget=whole - 1)
    assert (evidence.positions, packet.truncated) == ((1,), False)


def test_windows_that_overlap_are_merged() -> None:
    # Lines of 200 to 202 characters: ten in a window, of which the last is repeated in the next one.
    statements = [f"Word{n} {'x' * (191 - len(str(n)) * 2)}" for n in range(30)]
    compiled = memory(statements)
    windows = [window.positions for window in compiled.corpus("window").passages][::-1]
    assert windows[0] == tuple(range(10))
    assert windows[1] == tuple(range(9, 19))
    _, evidence = show(statements, "Word3 or Word14", "window_bm25", retrieval=Retrieval(RetrievalSettings(windows=2)))
    assert evidence.positions == tuple(range(19))


def test_the_pieces_of_a_long_record_count_as_one_window() -> None:
    # "Ada" is in each of the four pieces of record 0, which come first; of two windows, the second is that of record 2.
    statements = [" ".join(["Ada"] * 1_800), f"Bo {'x' * 2_000}", f"Cy {'x' * 2_000}"]
    ranked = memory(statements).corpus("window").rank("bm25", "Ada?", 64)
    assert [window.positions for window in ranked] == [(0,), (0,), (0,), (0,), (2,), (1,)]
    _, evidence = show(statements, "Ada?", "window_bm25", retrieval=Retrieval(RetrievalSettings(windows=2)))
    assert evidence.positions == (0, 2)


# Hard worlds: every question gets a packet

EVERY = [
    "fact_bm25",
    "fact_dense",
    "fact_hybrid",
    "fact_bm25_rerank",
    "fact_hybrid_rerank",
    "chunk_dense",
    "chunk_dense_rerank",
    "chunk_hybrid",
    "chunk4096_bm25",
    "window_bm25",
    "window_hybrid",
    "window_dense_rerank",
]
UNITS = ("fact", "chunk", "chunk4096", "window")


@pytest.mark.parametrize("view", EVERY)
@pytest.mark.parametrize(
    "statements",
    [
        ["Ada leads to Bo."],
        ["Ada leads to Bo."] * 3,
        ["Ada leads to Bo.", "Ada leads to Bo.", "Bo leads to Bo.", "Ada leads to Bo."],
        ["Perhaps Ada moved to Rome."],
        ["東京", "...", ""],
    ],
    ids=["one", "one text", "repeated", "no fact", "no word"],
)
def test_every_question_gets_a_packet_with_evidence_even_where_no_word_is_known(statements: Sequence[str], view: str) -> None:
    queries = ["", "...", "unknown words", "東京", "Where does Ada lead to?"]
    made = drawn_retrieval(statements, queries, UNITS)
    for query in queries:
        packet, evidence = show(statements, query, view, retrieval=made)
        assert (packet.view, packet.records) == (view, len(evidence.positions))
        assert set(evidence.positions) <= set(range(len(statements)))
        # A world smaller than any k is shown whole: of facts the newest of each key, or, without a fact, the raw history.
        newest = {text.split(" leads")[0]: at for at, text in enumerate(statements) if "leads" in text}
        facts = view.startswith("fact")
        assert evidence.positions == tuple(sorted(newest.values()) if facts and newest else range(len(statements)))
        assert packet.fallback == ("raw_history" if facts and not newest else None)


@pytest.mark.parametrize("view", EVERY)
def test_an_empty_history_gives_an_empty_packet(view: str) -> None:
    packet, evidence = show([], "Ada?", view, retrieval=drawn_retrieval([], ["Ada?"], UNITS))
    assert (packet.records, evidence.text) == (0, "")
