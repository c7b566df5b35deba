import hashlib
import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PROMPT, RealWorld, memory, question, show

from offline.config.experiment import Prompt, ViewSettings
from offline.config.yaml import find_config, load_yaml
from offline.errors import ConfigurationError
from offline.freeze import Frozen, freeze, freeze_memory
from offline.memory import Memory, Selection
from offline.records import Evidence, Packet
from offline.views import View, find_view

CHAIN = [f"{a} leads to {b}." for a, b in zip("ABCDEFG", "BCDEFGH", strict=True)]
# A world with an overwritten key, a second branch and a record that nobody asks about.
CHANGED = [
    "Ada leads to Bo.",
    "Bo leads to Cy.",
    "Ada leads to Di.",
    "Di leads to Ed.",
    "Zoe leads to Yan.",
    "The capital of Ada is Fay.",
]


def _positions(statements: list[str], text: str, view: str, **changes: object) -> tuple[int, ...]:
    _, evidence = show(statements, text, view, **changes)
    return evidence.positions


# What each view shows


@pytest.mark.parametrize(
    ("view", "positions"),
    [
        # Ada -> Di (2, current), Ada's capital Fay (5), then Di -> Ed (3).
        ("cmc", (2, 3, 5)),
        # The same keys with their previous values: Ada led to Bo (0); the others never had another value.
        ("stale_closure", (0, 3, 5)),
        # In the previous-value graph Ada leads to Bo, so Bo's key is reached and Di's is not; current values: 2, 5, 1.
        ("prior_refresh", (1, 2, 5)),
        ("latest_state", (1, 2, 3, 4, 5)),
        ("stale_state", (0, 1, 3, 4, 5)),
        ("raw_history", (0, 1, 2, 3, 4, 5)),
        ("closed_book", ()),
        ("cmc_h1", (2, 5)),
        ("stale_closure_h1", (0, 5)),
        ("prior_refresh_h1", (2, 5)),
    ],
)
def test_a_view_shows_the_records_that_its_definition_names(view: str, positions: tuple[int, ...]) -> None:
    assert _positions(CHANGED, "Where does Ada lead to?", view) == positions


def test_records_are_shown_in_full_in_position_order_below_the_heading() -> None:
    _, evidence = show(CHANGED, "Where does Ada lead to?")
    expected = "Records:\n[2] Ada leads to Di.\n[3] Di leads to Ed.\n[5] The capital of Ada is Fay."
    assert evidence.text == expected


@pytest.mark.parametrize(("view", "edges"), [("cmc_h1", 1), ("cmc_h2", 2), ("cmc_h3", 3), ("cmc_h4", 4), ("cmc_h5", 5)])
def test_cmc_at_n_hops_shows_the_first_n_records_of_a_chain(view: str, edges: int) -> None:
    assert _positions(CHAIN, "Where does A lead to?", view) == tuple(range(edges))


def test_cmc_without_a_number_has_the_configured_cap_which_is_five() -> None:
    assert _positions(CHAIN, "Where does A lead to?", "cmc") == (0, 1, 2, 3, 4)
    assert _positions(CHAIN, "Where does A lead to?", "cmc", hops=6) == (0, 1, 2, 3, 4, 5)
    assert _positions(CHAIN, "Where does A lead to?", "cmc_h2", hops=6) == (0, 1)


def test_a_cycle_shows_each_record_once() -> None:
    assert _positions(["A leads to B.", "B leads to C.", "C leads to A."], "Where does B lead to?", "cmc") == (0, 1, 2)


def test_a_question_with_two_anchors_reaches_the_records_of_both() -> None:
    assert _positions(CHANGED, "Do Bo and Zoe meet?", "cmc") == (1, 4)


# Fallbacks of the two regimes

GRAPH_VIEWS = pytest.mark.parametrize("view", ["cmc", "stale_closure", "prior_refresh", "cmc_h2"])


@GRAPH_VIEWS
def test_a_question_without_an_anchor_gets_the_raw_history_marked_in_the_shared_regime(view: str) -> None:
    packet, evidence = show(CHANGED, "Who is nobody?", view)
    assert (evidence.positions, packet.fallback) == ((0, 1, 2, 3, 4, 5), "raw_history")


@GRAPH_VIEWS
def test_a_question_without_an_anchor_gets_the_latest_state_marked_in_the_grid_regime(view: str) -> None:
    packet, evidence = show(CHANGED, "Who is nobody?", view, "grid")
    assert (evidence.positions, packet.fallback) == ((1, 2, 3, 4, 5), "latest_state")


def test_an_incomplete_parse_falls_back_to_the_raw_history_in_the_grid_regime_alone() -> None:
    statements = [*CHANGED, "Perhaps Ada moved to Rome."]
    shared, shared_evidence = show(statements, "Where does Ada lead to?", "cmc")
    grid, grid_evidence = show(statements, "Where does Ada lead to?", "cmc", "grid")
    assert (shared.fallback, shared_evidence.positions) == (None, (2, 3, 5, 6))
    assert (grid.fallback, grid_evidence.positions) == ("raw_history", (0, 1, 2, 3, 4, 5, 6))


@pytest.mark.parametrize("regime", ["shared", "grid"])
def test_a_history_without_a_fact_falls_back_to_the_raw_history(regime: str) -> None:
    packet, evidence = show(["Ada had lunch with Bo."], "Who is Ada?", "cmc", regime)
    assert (evidence.positions, packet.fallback) == ((0,), "raw_history")


@pytest.mark.parametrize("regime", ["shared", "grid"])
@pytest.mark.parametrize("view", ["raw_history", "closed_book", "random_disjoint", "fact_bm25_matched"])
def test_a_control_never_falls_back(view: str, regime: str) -> None:
    packet, _ = show([*CHANGED, "gibberish"], "Who is nobody?", view, regime)
    assert packet.fallback is None


def test_a_fallback_is_cut_to_the_budget_like_the_raw_history() -> None:
    # Heading 8; "[5] The capital of Ada is Fay." 30 and a line break; "[4] Zoe leads to Yan." 21 and a line break: 61.
    packet, evidence = show(CHANGED, "Who is nobody?", "cmc", budget=61)
    raw, raw_evidence = show(CHANGED, "Who is nobody?", "raw_history", budget=61)
    assert evidence == raw_evidence
    assert (packet.truncated, packet.dropped) == (raw.truncated, raw.dropped) == (True, 4)


# Unresolved records


@pytest.mark.parametrize(
    "view", ["cmc", "stale_closure", "prior_refresh", "latest_state", "stale_state", "fact_bm25", "random_disjoint"]
)
def test_every_structured_view_shows_the_unresolved_records(view: str) -> None:
    statements = ["Perhaps Ada moved to Rome.", *CHANGED, "gibberish"]
    positions = _positions(statements, "Where does Ada lead to?", view)
    assert positions[0] == 0
    assert positions[-1] == 7


def test_closed_book_shows_no_unresolved_record() -> None:
    assert _positions([*CHANGED, "gibberish"], "Where does Ada lead to?", "closed_book") == ()


def test_a_flood_of_unresolved_records_does_not_push_the_chosen_ones_out() -> None:
    # 500 lines of "[p] Perhaps …" are more than the budget of 1,000; cmc's three records stay.
    statements = [*CHANGED, *(f"Perhaps Ada moved to Rome {n}." for n in range(500))]
    packet, evidence = show(statements, "Where does Ada lead to?", "cmc", budget=1_000)
    assert evidence.positions[:3] == (2, 3, 5)
    assert evidence.positions[-1] == 505
    assert packet.truncated
    assert len(evidence.text) <= 1_000


# Retrieval


def test_fact_bm25_fills_up_to_k_with_the_newest_facts() -> None:
    # Current facts: 1, 2, 3, 4, 5. "Zoe" hits record 4 alone; the rest are all zero, so the newest follow.
    assert _positions(CHANGED, "Zoe?", "fact_bm25", k=3) == (3, 4, 5)
    assert _positions(CHANGED, "Zoe?", "fact_bm25", k=100) == (1, 2, 3, 4, 5)
    assert _positions(CHANGED, "Nothing known", "fact_bm25", k=2) == (4, 5)


def test_fact_bm25_shows_current_facts_and_never_an_overwritten_one() -> None:
    assert 0 not in _positions(CHANGED, "Ada leads to Bo.", "fact_bm25", k=100)


def test_fact_bm25_over_a_history_without_a_fact_falls_back_to_the_raw_history() -> None:
    packet, _ = show(["Ada had lunch with Bo."], "Who is Ada?", "fact_bm25")
    assert packet.fallback == "raw_history"


def _matched_by_hand(compiled: Memory, text: str) -> list[int]:
    """Spec, section 6: walk the ranking; take each whole fact that still fits cmc's length less the unresolved records."""
    keys = compiled.closure(text)
    cmc = {compiled.graph.current[key].position for key in keys} | set(compiled.graph.unresolved)
    if not keys:
        cmc = {statement.position for statement in compiled.history.statements}
    room = sum(1 + len(compiled.line(p)) for p in cmc)
    room -= sum(1 + len(compiled.line(p)) for p in compiled.graph.unresolved)
    taken: list[int] = []
    for fact in compiled.corpus("fact").rank("bm25", text, 100):
        (position,) = fact.positions
        if position in taken or position in compiled.graph.unresolved:
            continue
        if 1 + len(compiled.line(position)) <= room:
            taken.append(position)
            room -= 1 + len(compiled.line(position))
    return sorted({*taken, *compiled.graph.unresolved})


NAMES = ["Ada", "Bo", "Cy", "Dieter Long Name", "Ed"]
TEXTS = st.lists(
    st.builds("{} leads to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES))
    | st.builds("{} is married to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES))
    | st.builds("Perhaps {} moved to {}.".format, st.sampled_from(NAMES), st.sampled_from(NAMES)),
    min_size=1,
    max_size=20,
)


@given(TEXTS, st.sampled_from(NAMES))
def test_fact_bm25_matched_takes_whole_facts_that_still_fit_cmcs_length(texts: list[str], name: str) -> None:
    compiled = memory(texts)
    text = f"Where does {name} lead to?"
    selection = find_view("fact_bm25_matched")(compiled, question(text))
    assert sorted(selection.positions) == _matched_by_hand(compiled, text)
    cmc = compiled.render(compiled.settle(find_view("cmc")(compiled, question(text)))).text
    assert len(compiled.render(compiled.settle(selection)).text) <= len(cmc)


# The negative control


@given(TEXTS, st.sampled_from(NAMES), st.integers(0, 3))
def test_random_disjoint_shows_current_records_outside_cmcs_keys_as_many_as_cmc_where_there_are(
    texts: list[str], name: str, seed: int
) -> None:
    compiled = memory(texts, seed=seed)
    asked = question(f"Where does {name} lead to?")
    drawn = find_view("random_disjoint")(compiled, asked).positions
    shown = set(find_view("cmc")(compiled, asked).positions)
    outside = {edge.position for edge in compiled.graph.current.values()} - shown
    assert set(drawn) <= outside
    assert len(set(drawn)) == len(drawn) == min(len(shown), len(outside))


def _pairs(names: range, length: int = 4) -> list[str]:
    return [f"{'N' * length}{n} leads to M{n}." for n in names]


def test_random_disjoint_draws_by_the_sha256_of_seed_question_and_position() -> None:
    # All lines outside have one length, that of cmc's one record, so no swap can help and the first draw stands.
    texts = _pairs(range(100, 160))
    asked = question("Where does NNNN100 lead to?", "some id")
    drawn = find_view("random_disjoint")(memory([(n + 100, t) for n, t in enumerate(texts)], seed=3), asked).positions
    order = sorted(range(101, 160), key=lambda p: hashlib.sha256(f"3\nsome id\n{p}".encode()).digest())
    assert drawn == (order[0],)


def test_another_seed_or_question_draws_other_records() -> None:
    # Three-digit positions, so that all lines have one length and the first draw stands.
    texts = list(enumerate(_pairs(range(100, 200)), 100))
    draw = find_view("random_disjoint")
    asked = "Where does NNNN100 lead to?"
    drawn = {
        draw(memory(texts, seed=seed), question(asked, name)).positions for seed in range(4) for name in ("a", "b", "c", "d")
    }
    assert len(drawn) > 8


def test_random_disjoint_comes_as_close_to_cmcs_length_as_one_swap_can() -> None:
    # cmc shows one long record; of the others exactly one is as long.
    texts = [*_pairs(range(10, 40)), f"Ada{'x' * 40} leads to Bo.", f"Zoe{'x' * 40} leads to Bo."]
    assert _positions(texts, f"Where does Ada{'x' * 40} lead to?", "random_disjoint") == (31,)


def test_random_disjoint_is_measured_in_the_unit_that_was_asked_for() -> None:
    # In words, every record of the world is as long as any other: the swap to the long one brings nothing.
    texts = [*_pairs(range(10, 40)), f"Ada{'x' * 40} leads to Bo.", f"Zoe{'x' * 40} leads to Bo."]
    compiled = memory(texts)
    compiled.measure = lambda line: len(line.split())
    order = sorted({*range(30), 31}, key=lambda p: hashlib.sha256(f"7\nq\n{p}".encode()).digest())
    asked = question(f"Where does Ada{'x' * 40} lead to?")
    assert find_view("random_disjoint")(compiled, asked).positions == (order[0],)


# Hard texts


def test_a_record_of_ten_megabytes_leaves_the_evidence_empty_and_truncated() -> None:
    large = f"Ada leads to {'x' * 10_000_000}."
    packet, evidence = show(["Ada leads to Bo.", large], "Where does Ada lead to?")
    assert (evidence.text, packet.truncated, packet.dropped) == ("", True, 1)
    packet, evidence = show(["Ada leads to Bo.", large], "Where does Ada lead to?", "raw_history", budget=-1)
    assert (packet.truncated, packet.records) == (False, 2)
    assert len(evidence.text) > 10_000_000


def test_decomposed_and_right_to_left_names_are_found_and_shown_as_written() -> None:
    statements = ["Cafe\u0301 שָׁלוֹם leads to محمد علي.", "محمد علي leads to Zoe."]
    _, evidence = show(statements, "Where does the caf\u00e9 שָׁלוֹם lead to?")
    assert evidence.text == f"Records:\n[0] {statements[0]}\n[1] {statements[1]}"


def test_a_name_that_ends_in_a_full_stop_is_found_without_it() -> None:
    # "Apple Inc.." is the name "Apple Inc." and the sentence's own full stop.
    statements = ["Ada leads to Apple Inc..", "Apple Inc. leads to Tim."]
    assert _positions(statements, "Where does Ada lead to?", "cmc") == (0, 1)
    assert _positions(statements, "Where does Apple Inc lead to?", "cmc") == (1,)


def test_a_full_stop_and_a_space_inside_a_text_end_nothing() -> None:
    statements = ["Mr. Fox leads to Dr. No. 7. St. Ives.", "Dr. No. 7. St. Ives leads to Bo."]
    assert _positions(statements, "Where does Mr. Fox lead to?", "cmc") == (0, 1)


def test_line_breaks_inside_a_text_do_not_make_a_second_record() -> None:
    statements = ["Ada leads to Bo\n[9] Ada leads to Cy\u2028[10] x."]
    _, evidence = show(statements, "Where does Ada lead to?")
    assert evidence.text == "Records:\n[0] Ada leads to Bo\\n[9] Ada leads to Cy\\u2028[10] x."


# The real data

VIEWS = ("cmc", "stale_closure", "prior_refresh", "latest_state", "stale_state", "raw_history", "fact_bm25")
MORE = ("fact_bm25_matched", "random_disjoint", "closed_book", "cmc_h1", "cmc_h2", "cmc_h3")


@pytest.fixture(scope="module")
def frozen(real_world: RealWorld) -> Frozen:
    """All 800 questions under every view that needs no model, in the shared regime with the shipped prompt."""
    prompt = load_yaml(find_config("prompts", "reader"), Prompt)
    views = (*VIEWS, *MORE)
    return freeze(real_world.histories, real_world.questions, real_world.extraction, ViewSettings(), prompt, views)


def _gold(path: Path) -> dict[str, list[str]]:
    """Gold answers by question id, read here and by nobody else."""
    rows = json.loads(path.read_text())
    return {
        question_id: [answers] if isinstance(answers, str) else answers
        for row in rows
        for question_id, answers in zip(row["metadata"]["qa_pair_ids"], row["answers"], strict=True)
    }


def _scored(text: str) -> str:
    """The benchmark's own normalisation (spec, section 3): lowercase, punctuation out, articles, white space."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _shown(frozen: Frozen, view: str) -> list[tuple[Packet, Evidence]]:
    evidence = {each.digest: each for each in frozen.evidence}
    return [(packet, evidence[packet.evidence]) for packet in frozen.packets[view]]


@pytest.mark.real_data
def test_the_long_views_are_truncated_on_600_real_questions_and_no_other_view_on_any(frozen: Frozen) -> None:
    # Spec, section 6.
    expected = {view: 600 if view in {"latest_state", "stale_state", "raw_history"} else 0 for view in (*VIEWS, *MORE)}
    assert {view: sum(packet.truncated for packet in frozen.packets[view]) for view in expected} == expected


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("view", "single", "multi", "tolerance"),
    [
        ("cmc", 393, 340, 2),
        ("stale_closure", 329, 164, 2),
        ("prior_refresh", 397, 101, 2),
        ("latest_state", 337, 291, 2),
        ("stale_state", 278, 196, 2),
        ("raw_history", 334, 292, 2),
        ("fact_bm25", 396, 233, 20),
        ("fact_bm25_matched", 390, 36, 20),
        ("closed_book", 0, 0, 0),
    ],
)
def test_the_gold_string_is_in_the_evidence_as_often_as_the_specification_says(
    frozen: Frozen, real_world: RealWorld, real_data: Path, view: str, single: int, multi: int, tolerance: int
) -> None:
    gold = _gold(real_data)
    normalised: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for asked, (_, evidence) in zip(real_world.questions, _shown(frozen, view), strict=True):
        if evidence.digest not in normalised:
            normalised[evidence.digest] = _scored(evidence.text)
        counts[asked.hop_class] += any(_scored(answer) in normalised[evidence.digest] for answer in gold[asked.id])
    assert abs(counts["sh"] - single) <= tolerance
    assert abs(counts["mh"] - multi) <= tolerance


@pytest.mark.real_data
def test_real_cmc_packets_hold_5_4_records_and_332_characters_on_average(frozen: Frozen) -> None:
    packets = frozen.packets["cmc"]
    # Spec, section 6. The characters there are those of the records; a heading of its own length comes on top.
    prompt = load_yaml(find_config("prompts", "reader"), Prompt)
    assert sum(packet.records for packet in packets) / 800 == pytest.approx(5.4, abs=0.05)
    assert sum(packet.characters - len(prompt.heading) for packet in packets) / 800 == pytest.approx(332, abs=10)


@pytest.mark.real_data
def test_no_real_question_falls_back(frozen: Frozen) -> None:
    assert all(packet.fallback is None for packets in frozen.packets.values() for packet in packets)


@pytest.mark.real_data
@pytest.mark.parametrize(("view", "reached"), [("cmc_h1", 0), ("cmc_h2", 225), ("cmc_h3", 295), ("cmc", 339)])
def test_the_multi_hop_gold_is_an_object_of_a_shown_edge_as_often_as_the_specification_says(
    real_world: RealWorld, real_data: Path, view: str, reached: int
) -> None:
    gold = _gold(real_data)
    count = 0
    for asked in real_world.questions:
        if asked.hop_class == "mh":
            compiled = real_world.memory(asked)
            hops = int(view.removeprefix("cmc_h")) if view != "cmc" else 5
            values = {_scored(compiled.graph.current[key].value) for key in compiled.closure(asked.text, hops)}
            count += any(_scored(answer) in values for answer in gold[asked.id])
    # Spec, section 6: 0 / 225 / 295 / 339, +-2 questions.
    assert abs(count - reached) <= 2


@pytest.mark.real_data
def test_real_random_packets_have_cmcs_record_count_and_length_and_share_no_record(frozen: Frozen) -> None:
    differences = []
    for (cmc, shown), (random, drawn) in zip(_shown(frozen, "cmc"), _shown(frozen, "random_disjoint"), strict=True):
        assert random.records == cmc.records
        assert not set(shown.positions) & set(drawn.positions)
        differences.append(abs(random.characters - cmc.characters))
    # Hundreds of records to swap with: a difference of more than a few characters is rare.
    assert sorted(differences)[int(0.95 * len(differences))] <= 2


@pytest.mark.real_data
def test_a_real_matched_packet_is_never_longer_than_cmcs(frozen: Frozen) -> None:
    for cmc, matched in zip(frozen.packets["cmc"], frozen.packets["fact_bm25_matched"], strict=True):
        assert matched.characters <= cmc.characters


@pytest.mark.real_data
def test_christian_abbiatis_question_shows_the_chain_to_the_philippines_at_262k(frozen: Frozen, real_world: RealWorld) -> None:
    # Spec, section 6: Christian Abbiati -> cornerback -> field hockey -> Philippines.
    found: list[Any] = []
    for asked, (_, evidence) in zip(real_world.questions, _shown(frozen, "cmc"), strict=True):
        if "Christian Abbiati" in asked.text and asked.row.endswith("mh_262k"):
            found.append(evidence.text)
    assert found
    for text in found:
        for part in (
            "Christian Abbiati plays the position of cornerback.",
            "cornerback is associated with the sport of field hockey.",
            "field hockey was created in the country of Philippines.",
        ):
            assert part in text


def test_matched_bm25_subtracts_the_unresolved_records_that_cmc_shows_and_no_others() -> None:
    # A hundred unresolved records do not fit the budget; cmc shows its fact and a quarter of the room in unresolved ones.
    texts = [f"Perhaps {i} will come." for i in range(100)] + ["Ada leads to Rome."]
    compiled = memory(texts, budget=400)
    asked = question("Where does Ada lead?")
    cmc, matched = (compiled.render(find_view(name)(compiled, asked)) for name in ("cmc", "fact_bm25_matched"))
    assert 100 in cmc.positions
    assert matched.positions == cmc.positions


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda memory, question: Selection((99,)), "position 99"),
        (lambda memory, question: [0], "not list"),
        (lambda memory, question: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_view_that_breaks_its_contract_is_named_with_the_question(view: View, message: str) -> None:
    compiled = memory(["Ada leads to Rome."])
    with pytest.raises(ConfigurationError, match=message):
        list(freeze_memory(compiled, [question("Where does Ada lead?")], [("theirs", view)], PROMPT))


def test_a_view_may_give_its_positions_as_a_list() -> None:
    assert Selection([2, 1]) == Selection((2, 1))  # type: ignore[arg-type]
