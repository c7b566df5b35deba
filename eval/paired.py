"""Paired outcomes of two readers over the same questions: counts, and McNemar's exact test."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pairs:
    """Questions by who answered them: both A and B, one of them, or neither.

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


def mcnemar(only_a: int, only_b: int) -> float:
    """McNemar's test (Psychometrika 12, 1947) in its exact form, two-sided; 1 where no question is discordant.

    If neither reader is better, each of the n discordant questions falls to either side with probability 1/2, so `only_a`
    is binomial(n, 1/2). That is symmetric, so p is twice the smaller tail, at most 1. scipy does the arithmetic.
    """
    if only_a + only_b == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)
