"""Accuracy with its interval, in the one form that every result has it in."""

from eval.results import Result
from eval.statistics import wilson
from eval.wording import percent


class Accuracy(Result, frozen=True):
    """Right answers. percent and its Wilson 95 % interval, low to high: two decimals, as strings; "-" of no question."""

    questions: int
    correct: int
    percent: str
    low: str
    high: str

    @property
    def interval(self) -> str:
        """The interval as tables show it."""
        return f"{self.low}-{self.high}"


def accuracy(correct: int, questions: int) -> Accuracy:
    """The accuracy of so many right answers."""
    low, high = wilson(correct, questions)
    return Accuracy(questions, correct, percent(correct, questions), f"{100 * low:.2f}", f"{100 * high:.2f}")
