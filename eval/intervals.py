"""Intervals of proportions."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson score interval at 95 %, as fractions; (0, 1) without trials. scipy does the arithmetic."""
    if trials == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)
