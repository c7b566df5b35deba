"""Paired statistics against published values, statsmodels, explicit sums in whole numbers, and a plain-Python bootstrap."""

import gc
import math
import random
import sys
from collections.abc import Iterator
from fractions import Fraction
from math import comb, erfc, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.proportion import proportion_confint

from eval.analysis.label_audit import Sensitivity
from eval.statistics import (
    Pairs,
    bootstrap,
    count_pairs,
    holm,
    interaction,
    interaction_values,
    mcnemar,
    mcnemar_chi_square,
    no_width,
    wilson,
)
from offline.errors import ConfigurationError

COUNTS = st.integers(0, 200)
OUTCOMES = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)
TRIALS = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
# Questions as (value, cluster); few names, so that clusters repeat.
CLUSTERED = st.lists(st.tuples(st.integers(-2, 2), st.sampled_from("abcdefgh")), min_size=1, max_size=30)


def swapped(pairs: Pairs) -> Pairs:
    return Pairs(pairs.both, pairs.only_b, pairs.only_a, pairs.neither)


# Wilson

# Successes, trials, published bounds in percent (papers; rounded either way, so ±0.05).
PUBLISHED = [
    (312, 400, 73.7, 81.8),
    (29, 45, 49.8, 76.8),
    (26, 45, 43.3, 71.0),
    (269, 400, 62.5, 71.7),
    (304, 400, 71.6, 79.9),
    (323, 400, 76.6, 84.3),
    (121, 400, 26.0, 34.9),
    (379, 400, 92.1, 96.5),
]


@pytest.mark.parametrize(("successes", "trials", "low", "high"), PUBLISHED)
def test_published_intervals_come_out(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert 100 * found[0] == pytest.approx(low, abs=0.0501)
    assert 100 * found[1] == pytest.approx(high, abs=0.0501)


@given(TRIALS)
def test_the_interval_solves_wilsons_equation(counts: tuple[int, int]) -> None:
    # Wilson's bounds are the p with (k/n - p)^2 = z^2 p(1-p)/n, z the 97.5 % quantile of the normal distribution.
    k, n = counts
    z = 1.959963984540054
    middle, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    assert wilson(k, n) == pytest.approx((max(0.0, middle - half), min(1.0, middle + half)), abs=1e-9)


@given(TRIALS)
def test_wilson_is_statsmodels_wilson(counts: tuple[int, int]) -> None:
    assert wilson(*counts) == pytest.approx(proportion_confint(*counts, alpha=0.05, method="wilson"), abs=1e-12)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


# McNemar


def test_five_against_two_is_the_published_p() -> None:
    # n = 7: P(at most 2) = (1 + 7 + 21) / 128, twice that is 58 / 128. The paper prints 0.45.
    assert mcnemar(5, 2) == pytest.approx(58 / 128, abs=1e-12)
    assert f"{mcnemar(5, 2):.2f}" == "0.45"


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 0, 0.5), (6, 0, 2 / 64), (0, 6, 2 / 64), (3, 1, 10 / 16)],
)
def test_small_tables_come_out_as_worked_by_hand(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == pytest.approx(p, abs=1e-12)


@given(COUNTS, COUNTS)
def test_p_is_twice_the_smaller_binomial_tail(only_a: int, only_b: int) -> None:
    n = only_a + only_b
    tail = Fraction(sum(comb(n, k) for k in range(min(only_a, only_b) + 1)), 2**n)
    assert mcnemar(only_a, only_b) == pytest.approx(float(min(Fraction(1), 2 * tail)), rel=1e-9)


def test_85_against_42_is_the_published_chi_square() -> None:
    # (85 - 42)² / 127 = 1849 / 127 = 14.559; published as 14.6 with p < 0.001. With one degree of freedom, the tail of x is
    # erfc(sqrt(x / 2)).
    statistic, p = mcnemar_chi_square(85, 42)
    assert statistic == 1849 / 127
    assert f"{statistic:.1f}" == "14.6"
    assert p == pytest.approx(erfc(sqrt(statistic / 2)), rel=1e-9)
    assert p == pytest.approx(0.000136, abs=1e-6)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_both_forms_are_statsmodels_mcnemar(both: int, only_a: int, only_b: int, neither: int) -> None:
    table = [[both, only_a], [only_b, neither]]
    assert mcnemar(only_a, only_b) == pytest.approx(statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-9)
    if only_a + only_b:
        theirs = statsmodels_mcnemar(table, exact=False, correction=False)
        assert mcnemar_chi_square(only_a, only_b) == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-9)


def test_without_discordant_questions_nothing_is_shown() -> None:
    assert (mcnemar(0, 0), mcnemar_chi_square(0, 0)) == (1.0, (0.0, 1.0))


# Win, tie, loss; complementarity


@given(OUTCOMES)
def test_every_question_is_counted_once(outcomes: list[tuple[bool, bool]]) -> None:
    pairs = count_pairs(outcomes)
    assert pairs.questions == len(outcomes) == pairs.only_a + pairs.ties + pairs.only_b
    assert pairs.correct_a == sum(a for a, _ in outcomes)
    assert pairs.correct_b == sum(b for _, b in outcomes)


@given(OUTCOMES)
def test_swapping_the_readers_swaps_wins_and_losses_and_keeps_p(outcomes: list[tuple[bool, bool]]) -> None:
    pairs, other = count_pairs(outcomes), count_pairs((b, a) for a, b in outcomes)
    assert other == swapped(pairs)
    assert (other.points, other.ties, other.p) == (-pairs.points, pairs.ties, pytest.approx(pairs.p, rel=1e-9))


def test_the_published_complementarity_gives_both_accuracies() -> None:
    # 227 / 85 / 42 / 46 of 400: 312 and 269 right, 78.00 and 67.25 %.
    pairs = count_pairs(
        [(True, True)] * 227 + [(True, False)] * 85 + [(False, True)] * 42 + [(False, False)] * 46,
    )
    assert pairs == Pairs(both=227, only_a=85, only_b=42, neither=46)
    assert (pairs.questions, pairs.correct_a, pairs.correct_b, pairs.ties) == (400, 312, 269, 273)
    assert pairs.points == pytest.approx(78.00 - 67.25, abs=1e-9)


def test_the_published_complementarity_of_longmemeval_gives_its_p() -> None:
    pairs = Pairs(both=24, only_a=5, only_b=2, neither=14)
    assert (pairs.questions, pairs.correct_a, pairs.correct_b, f"{pairs.p:.2f}") == (45, 29, 26, "0.45")


# Win, tie, loss, right answers of A (None: not published), published mean difference in points.
ROWS = [
    (667, 130, 3, None, 83.00),
    (547, 223, 30, None, 64.63),
    (233, 164, 3, 313, 57.50),  # 400 multi-hop: cmc against fact BM25, 78.25 - 20.75
    (235, 157, 8, 313, 56.75),  # prior read + refresh, 78.25 - 21.50
    (79, 312, 9, 313, 17.50),  # CAR, 78.25 - 60.75
    (230, 164, 6, 306, 56.00),  # Qwen3.5-4B, BM25: 76.50 - 20.50
    (184, 206, 10, 220, 43.50),  # Llama-3.1-8B, BM25: 55.00 - 11.50
    (1, 395, 4, 389, -0.75),  # 400 single-hop, SH-Conflict: 97.25 - 98.00
]


@pytest.mark.parametrize(("wins", "ties", "losses", "correct", "points"), ROWS)
def test_published_wins_and_losses_give_the_published_difference(
    wins: int, ties: int, losses: int, correct: int | None, points: float
) -> None:
    both = ties // 2 if correct is None else correct - wins
    pairs = Pairs(both=both, only_a=wins, only_b=losses, neither=ties - both)
    assert pairs.neither >= 0
    assert pairs.ties == ties
    assert pairs.points == pytest.approx(points, abs=0.0051)
    assert pairs.points == pytest.approx(100 * (pairs.correct_a - pairs.correct_b) / pairs.questions, abs=1e-9)


def test_without_questions_nothing_differs() -> None:
    empty = count_pairs([])
    assert (empty.questions, empty.points, empty.p) == (0, 0.0, 1.0)


# Bootstrap


def slow_bootstrap(values: list[int], clusters: list[str], replicates: int, seed: int) -> tuple[float, float]:
    """The same procedure one draw at a time, in whole numbers and fractions, on the documented bits of PCG64."""
    bits = np.random.PCG64(seed)
    members: dict[str, list[int]] = {name: [] for name in sorted(clusters)}
    for value, cluster in zip(values, clusters, strict=True):
        members[cluster].append(value)
    names = list(members)
    means = []
    for _ in range(replicates):
        drawn = [value for _ in names for value in members[names[(int(bits.random_raw()) >> 32) * len(names) >> 32]]]
        means.append(Fraction(100 * sum(drawn), len(drawn)))
    means.sort()
    middle = means[replicates // 40 : replicates - replicates // 40]
    return float(middle[0]), float(middle[-1])


@settings(max_examples=30, deadline=None)
@given(CLUSTERED, st.integers(0, 99), st.sampled_from([1, 39, 40, 200, 1001]))
def test_the_fast_bootstrap_is_the_slow_one(questions: list[tuple[int, str]], seed: int, replicates: int) -> None:
    values, clusters = [value for value, _ in questions], [cluster for _, cluster in questions]
    assert bootstrap(values, clusters, replicates=replicates, seed=seed) == slow_bootstrap(values, clusters, replicates, seed)


@settings(max_examples=20, deadline=None)
@given(CLUSTERED, st.randoms(use_true_random=False))
def test_the_order_of_questions_does_not_matter(questions: list[tuple[int, str]], generator: random.Random) -> None:
    shuffled = generator.sample(questions, len(questions))
    one, two = ([list(column) for column in zip(*order, strict=True)] for order in (questions, shuffled))
    assert bootstrap(*one, replicates=400) == bootstrap(*two, replicates=400)  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(CLUSTERED)
def test_swapping_the_arms_mirrors_the_interval(questions: list[tuple[int, str]]) -> None:
    clusters = [cluster for _, cluster in questions]
    low, high = bootstrap([value for value, _ in questions], clusters, replicates=400)
    assert bootstrap([-value for value, _ in questions], clusters, replicates=400) == (-high, -low)
    assert low <= high


def test_the_seed_and_nothing_else_decides_the_draws() -> None:
    values, clusters = [1] * 60 + [0] * 30 + [-1] * 10, [f"q{number}" for number in range(100)]
    assert bootstrap(values, clusters) == bootstrap(values, clusters, seed=7)
    assert len({bootstrap(values, clusters, seed=seed, replicates=200) for seed in range(20)}) > 5


def test_the_published_bits_stay_what_they_are() -> None:
    # PCG64(7) of every numpy; if these change, every stored interval does.
    assert np.random.PCG64(7).random_raw(2).tolist() == [11530976094092348043, 16550673365885938325]
    assert bootstrap([1, 1, 0, -1, 0], ["a", "b", "c", "d", "e"]) == (-40.0, 80.0)


def test_equal_texts_are_resampled_together() -> None:
    # Two clusters of 50 that disagree: a replicate is -100, 0 or 100 with chances 1/4, 1/2, 1/4, so the interval is all of it.
    # As 100 single questions its half-width is near 1.96 * 100 / sqrt(100) = 19.6.
    values = [1] * 50 + [-1] * 50
    assert bootstrap(values, ["x"] * 50 + ["y"] * 50) == (-100.0, 100.0)
    low, high = bootstrap(values, [str(number) for number in range(100)])
    assert (low, high) == (pytest.approx(-19.6, abs=2.1), pytest.approx(19.6, abs=2.1))


def test_a_large_cluster_weighs_as_many_questions_as_it_has() -> None:
    # One cluster of 3 (all 1) and one of 1 (0): replicates are 100, 75 and 0, not the mean of two cluster means (50).
    clusters = ["x", "x", "x", "y"]
    found = {bootstrap([1, 1, 1, 0], clusters, replicates=1, seed=seed)[0] for seed in range(40)}
    assert found == {0.0, 75.0, 100.0}


@pytest.mark.parametrize("wins", [60, 200, 350])
def test_the_interval_has_the_analytic_standard_error(wins: int) -> None:
    losses, n = 30, 400
    values = [1] * wins + [-1] * losses + [0] * (n - wins - losses)
    mean = (wins - losses) / n
    error = 100 * sqrt(((wins + losses) / n - mean**2) / n)
    low, high = bootstrap(values, [str(number) for number in range(n)])
    # The grid's step is 0.25; an end's own error at 10,000 replicates is 0.027 standard errors.
    assert (low, high) == (pytest.approx(100 * mean - 1.96 * error, abs=0.5), pytest.approx(100 * mean + 1.96 * error, abs=0.5))


def test_clusters_of_a_size_widen_the_interval_by_its_root() -> None:
    # 100 clusters of 4 equal questions hold as much as 100 questions, so the half-width doubles against 400 single ones.
    values = [1] * 240 + [0] * 120 + [-1] * 40
    single = bootstrap(values, [str(number) for number in range(400)])
    fours = bootstrap(values, [str(number // 4) for number in range(400)])
    assert fours[1] - fours[0] == pytest.approx(2 * (single[1] - single[0]), rel=0.06)


@pytest.mark.parametrize(("wins", "ties", "losses", "low", "high"), [(667, 130, 3, 80.25, 85.63), (547, 223, 30, 60.75, 68.38)])
def test_the_published_intervals_come_out_of_the_published_counts(
    wins: int, ties: int, losses: int, low: float, high: float
) -> None:
    # The 800 questions have 760 texts, and which of them were won is not published, so every question is a cluster here. At
    # 100,000 replicates the ends are the published ones, to their rounding; at 10,000 within a question, 0.125 points.
    values, clusters = [1] * wins + [0] * ties + [-1] * losses, [str(number) for number in range(800)]
    assert bootstrap(values, clusters, replicates=100_000) == pytest.approx((low, high), abs=0.0051)
    assert bootstrap(values, clusters) == pytest.approx((low, high), abs=0.1301)
    # 40 pairs of equal texts that always agreed would make the variance (720 + 40 * 4) / 800 times as large, 5 % in width.
    pairs = [str(number // 2) if number < 80 else str(number) for number in range(800)]
    shuffled = random.Random(1).sample(values, 800)
    assert bootstrap(shuffled, pairs) == pytest.approx((low, high), abs=0.05 * (high - low) + 0.1301)


def test_an_interval_has_no_width_where_every_text_has_the_same_difference() -> None:
    for values, texts in (([0] * 4, "abcd"), ([1] * 3, "abc"), ([1, 0, 1, 0], "aabb"), ([-1, 1], "aa")):
        low, high = bootstrap(values, list(texts))
        assert no_width(values, list(texts))
        assert low == high == 100 * sum(values) / len(values)


@given(st.lists(st.tuples(st.integers(-1, 1), st.sampled_from("abc")), min_size=1, max_size=12))
def test_no_resample_differs_exactly_where_there_is_no_width(questions: list[tuple[int, str]]) -> None:
    # The oracle draws every pair of texts there is: two resamples differ as soon as two texts do.
    values, texts = [value for value, _ in questions], [text for _, text in questions]
    means = {text: Fraction(sum(v for v, t in questions if t == text), texts.count(text)) for text in texts}
    assert no_width(values, texts) == all(one == other for one in means.values() for other in means.values())
    if no_width(values, texts):
        low, high = bootstrap(values, texts, replicates=40)
        assert low == high


def test_the_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no question"):
        bootstrap([], [])


# Holm


def test_holm_as_worked_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.2 of four: 4 * 0.01, 3 * 0.02, 2 * 0.03, 1 * 0.2.
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
    # 3 * 0.02 = 0.06 holds the next up, 2 * 0.025 = 0.05; and 3 * 0.5 is no probability.
    assert holm([0.02, 0.025, 0.9]) == pytest.approx([0.06, 0.06, 0.9])
    assert holm([0.5, 0.6, 0.7]) == [1.0, 1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@pytest.fixture(scope="module")
def frozen_heap() -> Iterator[None]:
    """Nothing to collect: statsmodels collects garbage in every call, which takes long beside all that tests have loaded."""
    import statsmodels.stats.multitest  # noqa: F401

    gc.freeze()
    yield
    gc.unfreeze()


@settings(deadline=None)  # the first call imports statsmodels
@given(st.lists(st.floats(0, 1), max_size=12))
@pytest.mark.usefixtures("frozen_heap")
def test_holm_rejects_what_stepping_down_rejects(p_values: list[float]) -> None:
    # Holm's own wording: from the smallest p up, reject while p <= alpha / (tests that remain).
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.2):
        rejected, remaining = set(), len(p_values)
        for number in sorted(range(len(p_values)), key=lambda number: p_values[number]):
            if p_values[number] * remaining > alpha:
                break
            rejected.add(number)
            remaining -= 1
        assert {number for number, p in enumerate(adjusted) if p <= alpha} == rejected


def test_holm_without_statsmodels_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    monkeypatch.setitem(sys.modules, "statsmodels.stats.multitest", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'coldread\[report\]'"):
        holm([0.5])


# Interaction, least favourable labels


@pytest.mark.parametrize(("cmc", "latest", "stale", "raw", "points"), [(293, 294, 100, 116, 5.00), (257, 81, 47, 10, 46.33)])
def test_the_published_interactions_come_out(cmc: int, latest: int, stale: int, raw: int, points: float) -> None:
    assert interaction(cmc, latest, stale, raw, 300) == pytest.approx(points, abs=0.0051)


@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=60))
def test_the_mean_of_the_values_is_the_interaction_of_the_counts(outcomes: list[tuple[bool, bool, bool, bool]]) -> None:
    values, counts = interaction_values(outcomes), [sum(column) for column in zip(*outcomes, strict=True)]
    assert set(values) <= {-2, -1, 0, 1, 2}
    assert 100 * sum(values) / len(values) == pytest.approx(interaction(*counts, len(outcomes)), abs=1e-9)


def test_the_interval_of_an_interaction_holds_its_analytic_one() -> None:
    # 100 questions: 30 of value 2, 40 of 0, 30 of -1. Mean 0.3, variance (4 * 30 + 30) / 100 - 0.09 = 1.41.
    outcomes = [(True, False, False, True)] * 30 + [(True, True, True, True)] * 40 + [(False, True, False, False)] * 30
    values = interaction_values(outcomes)
    assert sorted(set(values)) == [-1, 0, 2]
    low, high = bootstrap(values, [str(number) for number in range(100)])
    half = 196 * sqrt(1.41 / 100)
    assert (low, high) == (pytest.approx(30 - half, abs=2.1), pytest.approx(30 + half, abs=2.1))


@settings(max_examples=40)
@given(OUTCOMES, st.integers(0, 6))
def test_no_labels_of_the_flagged_questions_give_a_smaller_gap(outcomes: list[tuple[bool, bool]], flagged: int) -> None:
    pairs, n = count_pairs(outcomes), len(outcomes) + flagged
    a, b = (Sensitivity.of(n, right, flagged, right) for right in (pairs.correct_a, pairs.correct_b))
    gaps = [count_pairs([*outcomes, *[(False, True)] * k, *[(True, True)] * (flagged - k)]).points for k in range(flagged + 1)]
    assert 100 * (a.lowest - b.highest) / (n or 1) == pytest.approx(min(gaps), abs=1e-9)


def test_of_no_questions_every_gap_is_nought() -> None:
    assert interaction(0, 0, 0, 0, 0) == 0.0
