"""Paired counts and McNemar's exact test against an explicit binomial sum in whole numbers."""

from fractions import Fraction
from math import comb, erfc, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.paired import Pairs, count_pairs, mcnemar

COUNTS = st.integers(0, 200)
OUTCOMES = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)


def swapped(pairs: Pairs) -> Pairs:
    return Pairs(pairs.both, pairs.only_b, pairs.only_a, pairs.neither)


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


def test_points_are_a_difference_of_percentages() -> None:
    # The published 227 / 85 / 42 / 46 of 400: 312 and 269 right, 78.00 and 67.25 %.
    pairs = Pairs(both=227, only_a=85, only_b=42, neither=46)
    assert (pairs.questions, pairs.correct_a, pairs.correct_b, pairs.ties) == (400, 312, 269, 273)
    assert pairs.points == pytest.approx(78.00 - 67.25, abs=1e-9)
    # Its chi-square is published as 14.6, whose tail with one degree of freedom is erfc(sqrt(14.6 / 2)) = 0.00013.
    chi_square = (pairs.only_a - pairs.only_b) ** 2 / (pairs.only_a + pairs.only_b)
    assert round(chi_square, 1) == 14.6
    assert pairs.p == pytest.approx(erfc(sqrt(chi_square / 2)), abs=1e-4)


def test_without_questions_nothing_differs() -> None:
    empty = count_pairs([])
    assert (empty.questions, empty.points, empty.p) == (0, 0.0, 1.0)
