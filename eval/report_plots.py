"""The report's plots: drawn by Vega-Lite when the report is built, and put into the page as plain SVG.

Colours are CSS variables of the page, so that they follow its dark mode. One panel a hop class (and reader, or view), so that
the page arranges them as its width allows. Every panel also says its numbers in words.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eval.report_source import METRIC, Source
from eval.statistics import Pairs, count_pairs
from offline.errors import ConfigurationError

# Of a panel in CSS pixels; narrower ones for the many of accuracy by length.
WIDTH, NARROW = 420, 230
SERIES = tuple(f"var(--series-{number})" for number in range(1, 7))
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
# Hop classes in words.
HOPS = {"sh": "single-hop", "mh": "multi-hop", "all": "all questions"}
# Labels of a scatter plot are moved apart to this many percent of its height.
_APART = 5.5
_HEIGHT = 240

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
                tuple(_by_length(source, apart, sorted(lengths, key=_size))),
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
    for point in points:
        shown, of = gold_shown[point["view"], point["hop_class"]]
        point["shown"] = 100 * shown / of
    drawn.append(
        Figure(
            "What the evidence holds",
            "Questions with a gold in their evidence, in percent, against percent right; on the dashed line the two are equal.",
            tuple(_scatter(source, points, "shown", lambda point: "gold in the evidence, %", log=False)),
        )
    )
    drawn += _paired(source)
    return drawn


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


def _size(length: str) -> tuple[float, str]:
    """Lengths as numbers where they are (`6k`, `1m`), others behind them."""
    factor = {"k": 1e3, "m": 1e6}.get(length[-1:].lower(), 1)
    try:
        return float(length[:-1] if factor > 1 else length) * factor, length
    except ValueError:
        return float("inf"), length


def _by_view(source: Source, points: Sequence[Row]) -> Iterator[Panel]:
    alt = _altair()
    for hop_class in source.hop_classes:
        rows = [point for point in points if point["hop_class"] == hop_class]
        base = alt.Chart(alt.Data(values=rows)).encode(
            y=alt.Y("view:N", sort=list(source.views), title=None, axis=alt.Axis(ticks=False, labelLimit=150)),
            yOffset=alt.YOffset("reader:N", sort=list(source.readers)),
            color=_colour(source),
        )
        layers = (
            base.mark_rule(strokeWidth=2, strokeCap="round").encode(x=_percents("low", "percent right"), x2="high:Q"),
            base.mark_point(filled=True, opacity=1, size=60).encode(x="percent:Q", shape=_shape(source)),
        )
        height = len(source.views) * max(24, 12 * len(source.readers)) + 40
        yield Panel(HOPS[hop_class], _words(rows), _draw(alt.layer(*layers), WIDTH, height))


def _by_length(source: Source, points: Sequence[Row], lengths: Sequence[str]) -> Iterator[Panel]:
    alt = _altair()
    for hop_class in source.hop_classes:
        for view in source.views:
            rows = [point for point in points if (point["hop_class"], point["view"]) == (hop_class, view)]
            if not rows:
                continue
            base = alt.Chart(alt.Data(values=rows)).encode(
                x=alt.X(
                    "length:N",
                    sort=list(lengths),
                    title=None,
                    axis=alt.Axis(labelAngle=0),
                    scale=alt.Scale(domain=list(lengths)),
                ),
                xOffset=alt.XOffset("reader:N", sort=list(source.readers)),
                color=_colour(source),
            )
            layers = (
                base.mark_rule(strokeWidth=2, strokeCap="round").encode(y=_percents("low", None, alt.Y), y2="high:Q"),
                base.mark_line(strokeWidth=1, opacity=0.6).encode(y="percent:Q"),
                base.mark_point(filled=True, opacity=1, size=40).encode(y="percent:Q", shape=_shape(source)),
            )
            yield Panel(f"{view}, {HOPS[hop_class]}", _words(rows, by_length=True), _draw(alt.layer(*layers), NARROW, 170))


def _scatter(source: Source, points: Sequence[Row], field: str, title: Callable[[Row], str], *, log: bool) -> Iterator[Panel]:
    """A panel of each hop class and reader, every point labelled with its view."""
    alt = _altair()
    for hop_class in source.hop_classes:
        for index, reader in enumerate(source.readers):
            rows = [dict(p) for p in points if (p["hop_class"], p["reader"]) == (hop_class, reader)]
            if not rows:
                continue
            _move_labels_apart(rows)
            middle = _middle(rows, field, log=log)
            base = alt.Chart(alt.Data(values=rows))
            scale = alt.Scale(type="log", nice=False, padding=30) if log else alt.Scale(domain=[0, 100])
            axis = (
                alt.Axis(values=_ticks([row[field] for row in rows]), format="~s")
                if log
                else alt.Axis(values=[0, 25, 50, 75, 100])
            )
            x = alt.X(f"{field}:Q", scale=scale, title=title(rows[0]), axis=axis)
            layers = [
                base.mark_rule(opacity=0.35).encode(x=x, y=_percents("low", "percent right", alt.Y), y2="high:Q"),
                base.mark_point(filled=True, opacity=1, size=60, shape=SHAPES[index % len(SHAPES)]).encode(x=x, y="percent:Q"),
            ]
            layers = [layer.encode(color=alt.value(SERIES[index % len(SERIES)])) for layer in layers]
            for align, dx, side in (("left", 8, f"datum.{field} < {middle}"), ("right", -8, f"datum.{field} >= {middle}")):
                text = base.transform_filter(side).mark_text(align=align, dx=dx, fontSize=11, color="var(--ink)")
                layers.append(text.encode(x=x, y=alt.Y("label:Q"), text="view:N"))
            if not log:
                ends = alt.Data(values=[{"x": 0, "y": 0}, {"x": 100, "y": 100}])
                layers.insert(0, alt.Chart(ends).mark_line(color="var(--rule)", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q"))
            caption = f"{reader}, {HOPS[hop_class]}" if len(source.readers) > 1 else HOPS[hop_class]
            unit = "%" if not log else rows[0]["unit"]
            words = "; ".join(f"{r['view']}: {r[field]:.1f} {unit}, {r['told']} % right" for r in rows)
            yield Panel(caption, words, _draw(alt.layer(*layers), WIDTH, _HEIGHT + 60))


def _middle(rows: Sequence[Row], field: str, *, log: bool) -> float:
    """Labels stand to the right of the points left of this, and to the left of the others."""
    low, high = min(row[field] for row in rows), max(row[field] for row in rows)
    return float((low * high) ** 0.5 * 1.001) if log else 50.0


def _ticks(values: Sequence[float]) -> list[int]:
    """Of 1, 2, 5, 10, 20... those from a little below the values to a little above; powers of ten alone if that is many."""
    near = [step * 10**power for power in range(8) for step in (1, 2, 5)]
    near = [tick for tick in near if min(values) / 2.5 <= tick <= max(values) * 2.5]
    return near if len(near) < 7 else [tick for tick in near if str(tick).strip("0") == "1"]


def _move_labels_apart(rows: Sequence[Row]) -> None:
    """Set `label`, the height of each label: that of its point, or a little above the one below it, and inside the panel."""
    lowest = 2.0
    for row in sorted(rows, key=lambda row: (row["percent"], row["view"])):
        row["label"] = max(row["percent"], lowest)
        lowest = row["label"] + _APART
    highest = 98.0
    for row in sorted(rows, key=lambda row: -row["label"]):
        row["label"] = min(row["label"], highest)
        highest = row["label"] - _APART


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
        (score.metrics[METRIC], theirs[question].metrics[METRIC])
        for question, score in ours.items()
        if score.hop_class == hop_class and question in theirs
    )
    return count_pairs(both)


def _bars(groups: dict[tuple[str, str], dict[str, Pairs]], first: str, captions: Sequence[str]) -> Iterator[Panel]:
    alt = _altair()
    for caption, found in zip(captions, groups.values(), strict=True):
        pairs = {name: pair for name, pair in found.items() if pair.questions}
        if not pairs:
            continue
        rows: list[Row] = [
            {"other": name, "count": sign * count, "shown": str(count), "who": who}
            for name, pair in pairs.items()
            for sign, count, who in ((1, pair.only_a, "won"), (-1, pair.only_b, "lost"))
        ]
        widest = max(5, *(abs(row["count"]) for row in rows)) * 1.25
        base = alt.Chart(alt.Data(values=rows)).encode(
            y=alt.Y("other:N", sort=list(pairs), title=None, axis=alt.Axis(ticks=False, labelLimit=150)),
            x=alt.X(
                "count:Q",
                scale=alt.Scale(domain=[-widest, widest]),
                title="lost (left) and won (right)",
                axis=alt.Axis(labels=False),
            ),
        )
        colours = alt.Scale(domain=["won", "lost"], range=["var(--right)", "var(--wrong)"])
        layers = [base.mark_bar(height={"band": 0.62}).encode(color=alt.Color("who:N", scale=colours, legend=None))]
        for align, dx, who in (("left", 4, "won"), ("right", -4, "lost")):
            text = base.transform_filter(f"datum.who === '{who}'").mark_text(
                align=align, dx=dx, fontSize=11, color="var(--ink)"
            )
            layers.append(text.encode(text="shown:N"))
        versus = "; ".join(f"{name}: won {p.only_a}, lost {p.only_b}, ties {p.ties}" for name, p in pairs.items())
        yield Panel(caption, f"{first} against {versus}", _draw(alt.layer(*layers), WIDTH, len(pairs) * 24 + 50))


def _words(rows: Iterable[Row], *, by_length: bool = False) -> str:
    return "; ".join(
        f"{row['view']}{', ' + row['length'] if by_length else ''}, {row['reader']}: {row['told']} % ({row['low']:.2f} to "
        f"{row['high']:.2f})"
        for row in rows
    )


def _percents(field: str, title: str | None, channel: Any = None) -> Any:
    alt = _altair()
    ticks = alt.Axis(values=[0, 25, 50, 75, 100])
    return (channel or alt.X)(f"{field}:Q", scale=alt.Scale(domain=[0, 100]), title=title, axis=ticks)


def _colour(source: Source) -> Any:
    alt = _altair()
    colours = [SERIES[index % len(SERIES)] for index in range(len(source.readers))]
    return alt.Color("reader:N", scale=alt.Scale(domain=list(source.readers), range=colours), legend=None)


def _shape(source: Source) -> Any:
    alt = _altair()
    shapes = [SHAPES[index % len(SHAPES)] for index in range(len(source.readers))]
    return alt.Shape("reader:N", scale=alt.Scale(domain=list(source.readers), range=shapes), legend=None)


def _altair() -> Any:
    try:
        import altair
    except ImportError as error:
        raise ConfigurationError(f"a report needs {error.name}; run: pip install 'coldread[report]'") from error
    return altair


def _draw(chart: Any, width: int, height: int) -> str:
    """One chart as SVG of this size; it holds no id, no style and no script, and its texts are escaped."""
    try:
        import vl_convert
    except ImportError as error:
        raise ConfigurationError(f"a report needs {error.name}; run: pip install 'coldread[report]'") from error
    axis = {
        "labelColor": "var(--ink)",
        "titleColor": "var(--quiet)",
        "titleFontWeight": "normal",
        "gridColor": "var(--rule)",
        "domain": False,
        "tickColor": "var(--rule)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelPadding": 6,
    }
    fitted = chart.properties(width=width, height=height, autosize=_altair().AutoSizeParams(type="fit", contains="padding"))
    specification = fitted.configure(aria=False, background="transparent", axis=axis, view={"stroke": None}).to_dict()
    return str(vl_convert.vegalite_to_svg(specification)).replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
