"""Accuracy with its interval, in the one form that all results use."""

from eval.results import Result
from eval.statistics import wilson
from eval.wording import percent


class Accuracy(Result, frozen=True):
    """Accuracy with its Wilson 95 % interval; two decimals, as strings."""

    questions: int
    correct: int
    percent: str  # "-" without questions
    low: str  # of the interval, percent
    high: str

    @property
    def interval(self) -> str:
        """The interval as tables show it."""
        return f"{self.low}-{self.high}"


def accuracy(correct: int, questions: int) -> Accuracy:
    """The accuracy of `correct` right answers to `questions`."""
    low, high = wilson(correct, questions)
    return Accuracy(questions, correct, percent(correct, questions), f"{100 * low:.2f}", f"{100 * high:.2f}")
