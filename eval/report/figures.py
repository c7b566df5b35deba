"""The report's plots, and a text description of each.

One panel per hop class (and reader, or view), so that the page can arrange them by width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from eval.analysis.main_table import TableRow
from eval.metrics import HEADLINE
from eval.report.drawing import bars, by_length, intervals, scatter
from eval.report.source import Source
from eval.statistics import Pairs, count_pairs
from offline.records import HopClass

# Hop classes in words.
HOPS = {"sh": "single-hop", "mh": "multi-hop", "all": "all questions"}


class Point(msgspec.Struct, frozen=True):
    """A plotted accuracy of one hop class."""

    view: str
    reader: str
    length: str | None
    hop_class: HopClass
    percent: float  # percent, low, high: percentages
    told: str  # `percent` as text
    low: float
    high: float
    input: float  # mean per question, in `unit`
    unit: str
    shown: float | UnsetType = UNSET  # percent of questions with a gold in evidence; unset for a pipeline


@dataclass(frozen=True)
class Panel:
    """One drawing."""

    caption: str
    words: str  # text description
    svg: str


@dataclass(frozen=True)
class Figure:
    """Panels of one kind."""

    title: str
    note: str
    panels: tuple[Panel, ...]
    legend: bool = False  # colours distinguish readers
    narrow: bool = False


def figures(source: Source, rows: Sequence[TableRow], gold_shown: dict[tuple[str, str], tuple[int, int]]) -> list[Figure]:
    """All figures. rows: the main table's, with lengths; gold_shown: (view, hop class) -> questions (with a gold, all)."""
    lengths = list(dict.fromkeys(row.length for row in rows if row.length is not None))
    points = [point for row in rows if row.length is None for point in _points(row, gold_shown)]
    drawn = [
        Figure(
            "Accuracy of each view",
            "Percent right, with Wilson 95 % intervals, over all history lengths.",
            tuple(_by_view(source, points)),
            legend=len(source.readers) > 1,
        )
    ]
    if len(lengths) > 1:
        apart = [point for row in rows if row.length is not None for point in _points(row, {})]
        drawn.append(
            Figure(
                "Accuracy by history length",
                "Percent right, with Wilson 95 % intervals.",
                tuple(_by_length(source, apart, sorted(lengths, key=by_number))),
                legend=len(source.readers) > 1,
                narrow=True,
            )
        )
    drawn.append(
        Figure(
            "What the input costs",
            "Mean input of a question against percent right.",
            tuple(_scatter(source, points, "input")),
        )
    )
    drawn.append(
        Figure(
            "What the evidence holds",
            "Questions with a gold in their evidence, in percent, against percent right; on the dashed line the two are equal.",
            tuple(_scatter(source, [point for point in points if point.shown is not UNSET], "shown")),
        )
    )
    drawn += _paired(source)
    return [figure for figure in drawn if figure.panels]


def _points(row: TableRow, gold_shown: Mapping[tuple[str, str], tuple[int, int]]) -> Iterator[Point]:
    for hop_class, found in row.accuracy.items():
        shown, of = gold_shown.get((row.view, hop_class), (0, 0))
        yield Point(
            view=row.view,
            reader=row.reader,
            length=row.length,
            hop_class=hop_class,
            percent=100 * found.correct / found.questions,
            told=found.percent,
            low=float(found.low),
            high=float(found.high),
            input=max(row.input_mean, 1),
            unit=row.unit,
            shown=100 * shown / of if of else UNSET,
        )


def by_number(length: str) -> tuple[float, str]:
    """Sort key: lengths by their leading number (`6k`, `1m`, `16 versions`), others last."""
    number = length.partition(" ")[0]
    factor = {"k": 1e3, "m": 1e6}.get(number[-1:].lower(), 1)
    try:
        return float(number[:-1] if factor > 1 else number) * factor, length
    except ValueError:
        return float("inf"), length


def _by_view(source: Source, points: Sequence[Point]) -> Iterator[Panel]:
    for hop_class in source.hop_classes:
        drawn = [point for point in points if point.hop_class == hop_class]
        yield Panel(HOPS[hop_class], _words(drawn), intervals(_data(drawn), source.views, source.readers))


def _by_length(source: Source, points: Sequence[Point], lengths: Sequence[str]) -> Iterator[Panel]:
    for hop_class in source.hop_classes:
        for view in source.views:
            drawn = [point for point in points if (point.hop_class, point.view) == (hop_class, view)]
            if drawn:
                svg = by_length(_data(drawn), lengths, source.readers)
                yield Panel(f"{view}, {HOPS[hop_class]}", _words(drawn, with_length=True), svg)


def _scatter(source: Source, points: Sequence[Point], field: Literal["input", "shown"]) -> Iterator[Panel]:
    """A panel per hop class and reader; input sizes have a logarithmic axis."""
    for hop_class in source.hop_classes:
        for index, reader in enumerate(source.readers):
            drawn = [point for point in points if (point.hop_class, point.reader) == (hop_class, reader)]
            if not drawn:
                continue
            log = field == "input"
            unit, title = (drawn[0].unit, f"mean input, {drawn[0].unit}") if log else ("%", "gold in the evidence, %")
            words = "; ".join(f"{p.view}: {p.input if log else p.shown:.1f} {unit}, {p.told} % right" for p in drawn)
            caption = f"{reader}, {HOPS[hop_class]}" if len(source.readers) > 1 else HOPS[hop_class]
            yield Panel(caption, words, scatter(_data(drawn), field, title, index, log=log))


def _data(points: Sequence[Point]) -> list[dict[str, str | float]]:
    """Points as altair data."""
    data: list[dict[str, str | float]] = msgspec.to_builtins(points)
    return data


def _paired(source: Source) -> Iterator[Figure]:
    first, *views = source.views
    readers = source.readers
    if views:
        pairs = {
            (hop_class, reader): {view: _pairs(source, (reader, first), (reader, view), hop_class) for view in views}
            for hop_class in source.hop_classes
            for reader in readers
        }
        yield Figure(
            f"{first} against each other view",
            "The same questions, paired: those that only one of the two answered. The rest are ties.",
            tuple(_bars(pairs, first, [HOPS[h] if len(readers) == 1 else f"{reader}, {HOPS[h]}" for h, reader in pairs])),
        )
    for other in readers[1:]:
        by_hops = {
            (hop_class, other): {view: _pairs(source, (readers[0], view), (other, view), hop_class) for view in source.views}
            for hop_class in source.hop_classes
        }
        yield Figure(
            f"{readers[0]} against {other}",
            "The same packets, paired: questions that only one of the two readers answered.",
            tuple(_bars(by_hops, readers[0], [HOPS[hop_class] for hop_class, _ in by_hops])),
        )


def _pairs(source: Source, a: tuple[str, str], b: tuple[str, str], hop_class: str) -> Pairs:
    ours, theirs = source.scored.scores.get(a, {}), source.scored.scores.get(b, {})
    both = (
        (score.metrics[HEADLINE], theirs[question].metrics[HEADLINE])
        for question, score in ours.items()
        if score.hop_class == hop_class and question in theirs
    )
    return count_pairs(both)


def _bars(groups: dict[tuple[str, str], dict[str, Pairs]], first: str, captions: Sequence[str]) -> Iterator[Panel]:
    for caption, found in zip(captions, groups.values(), strict=True):
        pairs = {name: pair for name, pair in found.items() if pair.questions}
        if pairs:
            told = "; ".join(f"{name}: won {p.only_a}, lost {p.only_b}, ties {p.ties}" for name, p in pairs.items())
            drawn = bars({name: (pair.only_a, pair.only_b) for name, pair in pairs.items()})
            yield Panel(caption, f"{first} against {told}", drawn)


def _words(points: Iterable[Point], *, with_length: bool = False) -> str:
    return "; ".join(
        f"{point.view}{f', {point.length}' if with_length else ''}, {point.reader}: {point.told} % ({point.low:.2f} to "
        f"{point.high:.2f})"
        for point in points
    )
