"""Fallbacks: packets that do not show their view's own choice, because it chose nothing or a record is unresolved."""

from collections import Counter
from collections.abc import Mapping, Sequence

from offline.records import Fallback
from offline.run.opened import OpenRun


def fallbacks(run: OpenRun, views: Sequence[str]) -> dict[str, dict[str, Fallback]]:
    """The questions with a fallback packet and its kind, by view; an empty dict for a view without any."""
    return {
        view: {packet.question: packet.fallback for packet in packets if packet.fallback is not None}
        for view, packets in run.packets(views).items()
    }


def fallback_counts(run: OpenRun, views: Sequence[str]) -> dict[str, dict[Fallback, int]]:
    """Questions by view and kind of fallback."""
    return {view: dict(Counter(shown.values())) for view, shown in fallbacks(run, views).items()}


def fallback_lines(found: Mapping[str, Mapping[Fallback, int]], questions: int) -> list[str]:
    """One line per view with fallbacks: the number of questions, and what they are shown instead."""
    return [f"{view}: {_words(counts, questions)}" for view, counts in found.items() if counts]


def _words(counts: Mapping[Fallback, int], questions: int) -> str:
    instead = ", ".join(f"{name} for {count}" for name, count in sorted(counts.items()))
    return f"a fallback on {sum(counts.values())} of {questions} questions, not the view's own choice: {instead}"
