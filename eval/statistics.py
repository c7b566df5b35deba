"""The statistics of paired questions, from counts and outcomes: nothing here knows a run, a file or a label.

Two arms A and B (views, readers) answer the same questions; each answer is right or wrong. Fractions lie in 0..1, points are
percentage points. scipy and statsmodels do the arithmetic where they have it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from offline.errors import needs

# The compiler paper's replicates; the seed is this project's own.
REPLICATES = 10_000
SEED = 7
# Replicates resampled at a time: 500 times 800 clusters take 3 MB.
_BLOCK = 500


@dataclass(frozen=True)
class Pairs:
    """Questions by who answered them: both A and B, one of them, or neither. This is also their complementarity.

    Of A against B, `only_a` are the wins, `only_b` the losses; both and neither are ties.
    """

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def questions(self) -> int:
        """How many there are."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def ties(self) -> int:
        """Questions on which A and B do not differ."""
        return self.both + self.neither

    @property
    def correct_a(self) -> int:
        """Questions that A answered."""
        return self.both + self.only_a

    @property
    def correct_b(self) -> int:
        """Questions that B answered."""
        return self.both + self.only_b

    @property
    def points(self) -> float:
        """A's percentage less B's, which is the mean paired difference, from counts; 0 without questions."""
        return 100 * (self.only_a - self.only_b) / self.questions if self.questions else 0.0

    @property
    def p(self) -> float:
        """McNemar's exact two-sided p."""
        return mcnemar(self.only_a, self.only_b)


def count_pairs(outcomes: Iterable[tuple[bool, bool]]) -> Pairs:
    """Count (A right, B right), one pair a question."""
    found = Counter(outcomes)
    return Pairs(found[True, True], found[True, False], found[False, True], found[False, False])


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson score interval (JASA 22, 1927) at 95 %, as fractions; (0, 1) without trials. scipy does the arithmetic."""
    if trials == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's test (Psychometrika 12, 1947) in its exact form, two-sided; 1 where no question is discordant.

    If neither arm is better, each of the n discordant questions falls to either side with probability 1/2, so `only_a`
    is binomial(n, 1/2). That is symmetric, so p is twice the smaller tail, at most 1. scipy does the arithmetic.
    """
    if only_a + only_b == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def mcnemar_chi_square(only_a: int, only_b: int) -> tuple[float, float]:
    """McNemar's statistic as he gave it, without continuity correction, and its p; (0, 1) where no question is discordant.

    (only_a - only_b)² / (only_a + only_b), chi-square with one degree of freedom when the discordant questions are many.
    """
    if only_a + only_b == 0:
        return 0.0, 1.0
    from scipy.stats import chi2

    statistic = (only_a - only_b) ** 2 / (only_a + only_b)
    return statistic, float(chi2.sf(statistic, 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values of one family (Holm, Scand. J. Statist. 6, 1979), in the order given; statsmodels does the arithmetic.

    The k-th smallest of m is multiplied by m - k + 1, made no smaller than the one before, and at most 1. Rejecting what
    is at most alpha keeps the chance of any false rejection in the family at or below alpha, however its tests depend on each
    other. ConfigurationError without statsmodels.
    """
    if not p_values:
        return []
    with needs("report", "a correction of p values by Holm's method"):
        from statsmodels.stats.multitest import multipletests
    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def bootstrap(
    values: Sequence[int], clusters: Sequence[str], *, replicates: int = REPLICATES, seed: int = SEED
) -> tuple[float, float]:
    """Percentile bootstrap interval at 95 % of the mean of `values`, in points: 100 times the mean.

    values: one whole number a question (A right less B right; of an interaction, see `interaction_values`). clusters: what
    each question belongs to (its text). ValueError without questions.

    Clusters are resampled whole: a replicate draws as many as there are, with replacement, and takes the mean over the
    questions drawn (Davison and Hinkley, Bootstrap Methods, 1997, §3.8). Of the sorted replicates (Efron, 1979),
    a fortieth is dropped at each end (250 of 10,000); the interval runs from the smallest to the largest that remain, so
    that swapping A and B mirrors it.

    The same bytes everywhere: clusters are drawn in the order of their names, not of the questions; sums are whole numbers;
    and draws are made of PCG64's own bits, which numpy keeps for every version, while what its Generator makes of them
    may change (NEP 19). A draw's 32 bits times n / 2³² favour no cluster by more than n / 2³².
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
    """Whether every cluster has the same mean of `values`: no resample of `bootstrap` can then differ from another.

    Its interval has no width, however few the questions are, and says nothing of how sure the mean is.
    """
    sums: Counter[str] = Counter()
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value
    sizes = Counter(clusters)
    return len({Fraction(sums[cluster], size) for cluster, size in sizes.items()}) == 1


def interaction_values(outcomes: Iterable[tuple[bool, bool, bool, bool]]) -> list[int]:
    """(a - b) - (c - d) of each question, from its four outcomes: whole numbers from -2 to 2.

    Their mean times 100 is the interaction contrast in points (compiler paper, appendix B.1: what current versions gain with
    the closure, less what they gain without), and `bootstrap` gives its interval.
    """
    return [(a - b) - (c - d) for a, b, c, d in outcomes]


def interaction(a: int, b: int, c: int, d: int, questions: int) -> float:
    """The interaction contrast in points from counts of right answers: 100 ((a - b) - (c - d)) / questions; 0 without any."""
    return 100 * ((a - b) - (c - d)) / questions if questions else 0.0
