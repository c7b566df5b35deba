"""Statistics of paired questions from counts and outcomes, independent of runs, files and labels.

Two arms A and B (views, readers) answer the same questions; each answer is right or wrong. Fractions are in 0..1, points are
percentage points. scipy and statsmodels do the arithmetic where they can.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from offline.errors import needs

# Replicates as in the compiler paper; the seed is our own.
REPLICATES = 10_000
SEED = 7
_BLOCK = 500  # replicates resampled at a time: with 800 clusters, 3 MB


@dataclass(frozen=True)
class Pairs:
    """Paired outcomes (complementarity) of A and B, in questions."""

    both: int
    only_a: int  # A's wins
    only_b: int  # A's losses
    neither: int

    @property
    def questions(self) -> int:
        """Number of questions."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def ties(self) -> int:
        """Questions on which A and B agree."""
        return self.both + self.neither

    @property
    def correct_a(self) -> int:
        """Questions that A answered correctly."""
        return self.both + self.only_a

    @property
    def correct_b(self) -> int:
        """Questions that B answered correctly."""
        return self.both + self.only_b

    @property
    def points(self) -> float:
        """A's percentage less B's, i.e. the mean paired difference; 0 without questions."""
        return 100 * (self.only_a - self.only_b) / self.questions if self.questions else 0.0

    @property
    def p(self) -> float:
        """McNemar's exact two-sided p."""
        return mcnemar(self.only_a, self.only_b)


def count_pairs(outcomes: Iterable[tuple[bool, bool]]) -> Pairs:
    """Count (A right, B right), one pair per question."""
    found = Counter(outcomes)
    return Pairs(found[True, True], found[True, False], found[False, True], found[False, False])


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson score interval (JASA 22, 1927) at 95 %, as fractions; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's test (Psychometrika 12, 1947), exact and two-sided; 1 if no question is discordant.

    If neither arm is better, each of the n discordant questions favours either with probability 1/2, so `only_a` is binomial(n,
    1/2). This is symmetric, so p is twice the smaller tail, at most 1.
    """
    if only_a + only_b == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def mcnemar_chi_square(only_a: int, only_b: int) -> tuple[float, float]:
    """McNemar's original statistic, without continuity correction, and its p; (0, 1) if no question is discordant.

    (only_a - only_b)² / (only_a + only_b), asymptotically chi-square with one degree of freedom.
    """
    if only_a + only_b == 0:
        return 0.0, 1.0
    from scipy.stats import chi2

    statistic = (only_a - only_b) ** 2 / (only_a + only_b)
    return statistic, float(chi2.sf(statistic, 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values of one family (Holm, Scand. J. Statist. 6, 1979), in the given order.

    The k-th smallest of m is multiplied by m - k + 1, made at least the previous one, and at most 1. Rejecting those at most
    alpha keeps the family-wise error rate at or below alpha under any dependence. ConfigurationError without statsmodels.
    """
    if not p_values:
        return []
    with needs("report", "a correction of p values by Holm's method"):
        from statsmodels.stats.multitest import multipletests
    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def bootstrap(
    values: Sequence[int], clusters: Sequence[str], *, replicates: int = REPLICATES, seed: int = SEED
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of `values`, in points (100 times the mean).

    values: an integer per question (A right less B right; for an interaction, see `interaction_values`). clusters: each
    question's cluster (its text). ValueError without questions.

    Whole clusters are resampled: a replicate draws as many as there are, with replacement, and takes the mean over the
    questions drawn (Davison and Hinkley, Bootstrap Methods, 1997, §3.8). Of the sorted replicates (Efron, 1979), 1/40 is
    dropped at each end (250 of 10,000); the interval spans the rest, so swapping A and B mirrors it.

    Reproducible to the byte: clusters are drawn in the order of their names; sums are integers; draws use PCG64's raw bits,
    which numpy keeps stable across versions, unlike its Generator's methods (NEP 19). A draw's 32 bits times n / 2³² have a
    bias of at most n / 2³².
    """
    if not values:
        raise ValueError("no question to resample")
    sums: dict[str, int] = {}
    sizes: Counter[str] = Counter(clusters)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0) + value
    names = sorted(sums)
    of = np.array([sums[name] for name in names], dtype=np.int64)
    size = np.array([sizes[name] for name in names], dtype=np.int64)
    bits = np.random.PCG64(seed)
    means = np.empty(replicates)
    for start in range(0, replicates, _BLOCK):
        count = min(_BLOCK, replicates - start)
        raw = bits.random_raw(count * len(names)).reshape(count, len(names))
        drawn = ((raw >> np.uint64(32)) * np.uint64(len(names)) >> np.uint64(32)).astype(np.intp)
        means[start : start + count] = 100 * of[drawn].sum(axis=1) / size[drawn].sum(axis=1)
    means.sort()
    dropped = replicates // 40
    return float(means[dropped]), float(means[-1 - dropped])


def no_width(values: Sequence[int], clusters: Sequence[str]) -> bool:
    """Whether every cluster has the same mean of `values`, so that the interval of `bootstrap` has no width.

    Such an interval says nothing about the uncertainty of the mean, however few the questions.
    """
    sums: Counter[str] = Counter()
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value
    sizes = Counter(clusters)
    return len({Fraction(sums[cluster], size) for cluster, size in sizes.items()}) == 1


def interaction_values(outcomes: Iterable[tuple[bool, bool, bool, bool]]) -> list[int]:
    """(a - b) - (c - d) per question, from its four outcomes: integers from -2 to 2.

    Their mean times 100 is the interaction contrast in points (compiler paper, appendix B.1: the gain of current versions with
    the closure, less the gain without); `bootstrap` gives its interval.
    """
    return [(a - b) - (c - d) for a, b, c, d in outcomes]


def interaction(a: int, b: int, c: int, d: int, questions: int) -> float:
    """The interaction contrast in points from counts of right answers: 100 ((a - b) - (c - d)) / questions; 0 without any."""
    return 100 * ((a - b) - (c - d)) / questions if questions else 0.0
