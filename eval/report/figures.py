"""The report's plots: which panels there are, and what each says in words for those who do not see it.

One panel a hop class (and reader, or view), so that the page arranges them as its width allows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eval.metrics import HEADLINE
from eval.report.drawing import bars, by_length, intervals, scatter
from eval.report.source import Source
from eval.statistics import Pairs, count_pairs

# Hop classes in words.
HOPS = {"sh": "single-hop", "mh": "multi-hop", "all": "all questions"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One drawing; `words` says what it shows."""

    caption: str
    words: str
    svg: str


@dataclass(frozen=True)
class Figure:
    """Panels of one kind. legend: whether colours tell readers apart."""

    title: str
    note: str
    panels: tuple[Panel, ...]
    legend: bool = False
    narrow: bool = False


def figures(source: Source, rows: Sequence[Row], gold_shown: dict[tuple[str, str], tuple[int, int]]) -> list[Figure]:
    """All figures. rows: of the main table, by length too; gold_shown: (view, hop class) -> questions with a gold, of all."""
    pooled = [row for row in rows if row["length"] is None]
    lengths = list(dict.fromkeys(row["length"] for row in rows if row["length"] is not None))
    points = [_point(row, hop_class) for row in pooled for hop_class in row["accuracy"]]
    drawn = [
        Figure(
            "Accuracy of each view",
            "Percent right, with Wilson 95 % intervals, over all history lengths.",
            tuple(_by_view(source, points)),
            legend=len(source.readers) > 1,
        )
    ]
    if len(lengths) > 1:
        apart = [_point(row, hop_class) for row in rows if row["length"] is not None for hop_class in row["accuracy"]]
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
            tuple(_scatter(source, points, "input", lambda point: f"mean input, {point['unit']}", log=True)),
        )
    )
    # A pipeline has no evidence but what it comes to retrieve.
    held = [point for point in points if (point["view"], point["hop_class"]) in gold_shown]
    for point in held:
        shown, of = gold_shown[point["view"], point["hop_class"]]
        point["shown"] = 100 * shown / of
    drawn.append(
        Figure(
            "What the evidence holds",
            "Questions with a gold in their evidence, in percent, against percent right; on the dashed line the two are equal.",
            tuple(_scatter(source, held, "shown", lambda point: "gold in the evidence, %", log=False)),
        )
    )
    drawn += _paired(source)
    return [figure for figure in drawn if figure.panels]


def _point(row: Row, hop_class: str) -> Row:
    found = row["accuracy"][hop_class]
    return {
        "view": row["view"],
        "reader": row["reader"],
        "length": row["length"],
        "hop_class": hop_class,
        "percent": 100 * found["correct"] / found["questions"],
        "told": found["percent"],
        "low": float(found["low"]),
        "high": float(found["high"]),
        "input": max(row["input_mean"], 1),
        "unit": row["unit"],
    }


def by_number(length: str) -> tuple[float, str]:
    """Lengths by the number that they begin with (`6k`, `1m`, `16 versions`), others behind them."""
    number = length.partition(" ")[0]
    factor = {"k": 1e3, "m": 1e6}.get(number[-1:].lower(), 1)
    try:
        return float(number[:-1] if factor > 1 else number) * factor, length
    except ValueError:
        return float("inf"), length


def _by_view(source: Source, points: Sequence[Row]) -> Iterator[Panel]:
    for hop_class in source.hop_classes:
        rows = [point for point in points if point["hop_class"] == hop_class]
        yield Panel(HOPS[hop_class], _words(rows), intervals(rows, source.views, source.readers))


def _by_length(source: Source, points: Sequence[Row], lengths: Sequence[str]) -> Iterator[Panel]:
    for hop_class in source.hop_classes:
        for view in source.views:
            rows = [point for point in points if (point["hop_class"], point["view"]) == (hop_class, view)]
            if rows:
                drawn = by_length(rows, lengths, source.readers)
                yield Panel(f"{view}, {HOPS[hop_class]}", _words(rows, with_length=True), drawn)


def _scatter(source: Source, points: Sequence[Row], field: str, title: Callable[[Row], str], *, log: bool) -> Iterator[Panel]:
    """A panel of each hop class and reader."""
    for hop_class in source.hop_classes:
        for index, reader in enumerate(source.readers):
            rows = [point for point in points if (point["hop_class"], point["reader"]) == (hop_class, reader)]
            if rows:
                caption = f"{reader}, {HOPS[hop_class]}" if len(source.readers) > 1 else HOPS[hop_class]
                unit = rows[0]["unit"] if log else "%"
                words = "; ".join(f"{row['view']}: {row[field]:.1f} {unit}, {row['told']} % right" for row in rows)
                yield Panel(caption, words, scatter(rows, field, title(rows[0]), index, log=log))


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


def _words(rows: Iterable[Row], *, with_length: bool = False) -> str:
    return "; ".join(
        f"{row['view']}{', ' + row['length'] if with_length else ''}, {row['reader']}: {row['told']} % ({row['low']:.2f} to "
        f"{row['high']:.2f})"
        for row in rows
    )
