"""Fallbacks: packets that show something else than their view chose, because it chose nothing or a record is unresolved."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from offline.records import Fallback
from offline.run.opened import OpenRun


def fallbacks(run: OpenRun, views: Sequence[str]) -> dict[str, dict[str, Fallback]]:
    """By view, the questions whose packet shows a fallback, and which; a view without any has an empty dict."""
    return {
        view: {packet.question: packet.fallback for packet in packets if packet.fallback is not None}
        for view, packets in run.packets(views).items()
    }


def fallback_lines(found: Mapping[str, Mapping[str, Fallback]], questions: int) -> list[str]:
    """A line for each view with a fallback: on how many of its questions, and what they are shown instead."""
    return [f"{view}: {_words(shown.values(), questions)}" for view, shown in found.items() if shown]


def _words(shown: Iterable[Fallback], questions: int) -> str:
    counts = Counter(shown)
    instead = ", ".join(f"{name} for {count}" for name, count in sorted(counts.items()))
    return f"a fallback on {counts.total()} of {questions} questions, not the view's own choice: {instead}"
