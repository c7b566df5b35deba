"""Wilson intervals against published ones and against statsmodels' formula."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.intervals import wilson

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


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_solves_wilsons_equation(counts: tuple[int, int]) -> None:
    # Wilson's bounds are the p with (k/n - p)^2 = z^2 p(1-p)/n, z the 97.5 % quantile of the normal distribution.
    k, n = counts
    z = 1.959963984540054
    middle, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    assert wilson(k, n) == pytest.approx((max(0.0, middle - half), min(1.0, middle + half)), abs=1e-9)


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
