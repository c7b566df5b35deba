"""Drawings of the report as static SVG: Vega-Lite, written with altair, rendered by vl-convert.

Colours are CSS variables of the page, for dark mode. Margins are computed from character counts, so the bytes do not depend on
installed fonts.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.report.label_placement import place
from offline.errors import needs

WIDTH, NARROW, HEIGHT = 420, 240, 240  # CSS pixels
SERIES = tuple(f"var(--series-{number})" for number in range(1, 7))
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
# Margins: a numeric axis with its title; a bottom axis with and without title; overhang of end labels.
_NUMBERS, _TITLED, _UNTITLED, _RIGHT, _TOP = 46, 44, 26, 18, 8
_CHARACTER, _LIMIT = 7.0, 170

Row = Mapping[str, Any]


def intervals(rows: Sequence[Row], views: Sequence[str], readers: Sequence[str]) -> str:
    """Views top to bottom, `percent` with `low` and `high` left to right, a colour and shape per reader."""
    alt = _altair()
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=_names("view", views),
        yOffset=alt.YOffset("reader:N", scale=alt.Scale(domain=list(readers), paddingOuter=0.5)),
        color=_colour(readers),
    )
    layers = (
        base.mark_rule(strokeWidth=2, strokeCap="round").encode(x=_percents(alt.X, "low", "percent right"), x2="high:Q"),
        base.mark_point(filled=True, opacity=1, size=60).encode(x="percent:Q", shape=_shape(readers)),
    )
    left = _room(views)
    return _draw(alt.layer(*layers), WIDTH - left - _RIGHT, len(views) * max(24, 13 * len(readers)), left, _TITLED)


def by_length(rows: Sequence[Row], lengths: Sequence[str], readers: Sequence[str]) -> str:
    """`length` left to right, `percent` with `low` and `high` upwards, a line per reader."""
    alt = _altair()
    x = alt.X("length:N", scale=alt.Scale(domain=list(lengths)), title=None, axis=alt.Axis(labelAngle=0))
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        x=x, xOffset=alt.XOffset("reader:N", scale=alt.Scale(domain=list(readers), padding=0.8)), color=_colour(readers)
    )
    layers = (
        base.mark_rule(strokeWidth=2, strokeCap="round").encode(y=_percents(alt.Y, "low", None), y2="high:Q"),
        base.mark_line(strokeWidth=1, opacity=0.6).encode(y="percent:Q"),
        base.mark_point(filled=True, opacity=1, size=40).encode(y="percent:Q", shape=_shape(readers)),
    )
    return _draw(alt.layer(*layers), NARROW - 50, 130, 32, _UNTITLED)


def scatter(rows: Sequence[Row], field: str, title: str, series: int, *, log: bool) -> str:
    """`field` left to right, `percent` with `low` and `high` upwards, each point labelled with its `view`."""
    alt = _altair()
    width = WIDTH - _NUMBERS - _RIGHT
    values = [row[field] for row in rows]
    ends = (min(values) / 1.8, max(values) * 1.8) if log else (0.0, 100.0)
    axis = alt.Axis(values=ticks(*ends), format="~s") if log else alt.Axis(values=[0, 25, 50, 75, 100])
    x = alt.X(f"{field}:Q", scale=alt.Scale(type="log" if log else "linear", domain=ends, nice=False), title=title, axis=axis)
    colour = alt.value(SERIES[series % len(SERIES)])
    base = alt.Chart(alt.Data(values=_labelled(rows, field, ends, width, log=log)))
    layers = [
        base.mark_rule(opacity=0.3).encode(x=x, y=_percents(alt.Y, "low", "percent right"), y2="high:Q", color=colour),
        base.mark_rule(opacity=0.6).encode(x=x, y="percent:Q", y2="label:Q", color=alt.value("var(--quiet)")),
        base.mark_point(filled=True, opacity=1, size=60, shape=SHAPES[series % len(SHAPES)]).encode(
            x=x, y="percent:Q", color=colour
        ),
    ]
    for align, dx, left in (("left", 8, "false"), ("right", -8, "true")):
        text = base.transform_filter(f"datum.left === {left}").mark_text(align=align, dx=dx, fontSize=11)
        layers.append(text.encode(x=x, y="label:Q", text="view:N", color=alt.value("var(--ink)")))
    if not log:
        line = alt.Chart(alt.Data(values=[{"x": 0, "y": 0}, {"x": 100, "y": 100}]))
        layers.insert(0, line.mark_line(color="var(--rule)", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q"))
    return _draw(alt.layer(*layers), width, HEIGHT, _NUMBERS, _TITLED)


def _labelled(rows: Sequence[Row], field: str, ends: tuple[float, float], width: float, *, log: bool) -> list[dict[str, Any]]:
    """The rows with their labels' positions: `label`, a height in percent, and `left`."""

    def across(value: float) -> float:
        low, high, at = (map(math.log, (*ends, value))) if log else (*ends, value)
        return float(width * (at - low) / (high - low))

    points = [(across(row[field]), HEIGHT * (1 - row["percent"] / 100), row["view"]) for row in rows]
    places = place(points, width, HEIGHT)
    return [
        {**row, "label": round(100 * (1 - found.y / HEIGHT), 2), "left": found.left}
        for row, found in zip(rows, places, strict=True)
    ]


def ticks(low: float, high: float) -> list[int]:
    """The values among 1, 2, 5, 10, 20... in the range; only powers of ten if there are many."""
    inside = [step * 10**power for power in range(8) for step in (1, 2, 5) if low <= step * 10**power <= high]
    return inside if len(inside) < 7 else [tick for tick in inside if str(tick).strip("0") == "1"]


def bars(pairs: Mapping[str, tuple[int, int]]) -> str:
    """Names top to bottom, (won, lost) to the right and left of a centre line."""
    alt = _altair()
    rows = [
        {"other": name, "count": sign * count, "shown": str(count), "who": who}
        for name, pair in pairs.items()
        for sign, count, who in ((1, pair[0], "won"), (-1, pair[1], "lost"))
    ]
    won, lost = (max(pair[side] for pair in pairs.values()) for side in (0, 1))
    room = max(5, won + lost) * 0.16  # for the numbers at the ends
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=_names("other", list(pairs)),
        x=alt.X(
            "count:Q",
            scale=alt.Scale(domain=[-lost - room, won + room]),
            title="lost (left) and won (right)",
            axis=alt.Axis(labels=False, values=[0]),
        ),
    )
    colours = alt.Scale(domain=["won", "lost"], range=["var(--right)", "var(--wrong)"])
    layers = [base.mark_bar(height={"band": 0.62}).encode(color=alt.Color("who:N", scale=colours, legend=None))]
    for align, dx, who in (("left", 4, "won"), ("right", -4, "lost")):
        text = base.transform_filter(f"datum.who === '{who}'").mark_text(align=align, dx=dx, fontSize=11, color="var(--ink)")
        layers.append(text.encode(text="shown:N"))
    left = _room(list(pairs))
    return _draw(alt.layer(*layers), WIDTH - left - _RIGHT, len(pairs) * 24, left, _TITLED)


def _room(names: Sequence[str]) -> int:
    return round(min(max(map(len, names)) * _CHARACTER, _LIMIT)) + 14


def _names(field: str, names: Sequence[str]) -> Any:
    alt = _altair()
    return alt.Y(
        f"{field}:N",
        scale=alt.Scale(domain=list(names)),
        title=None,
        axis=alt.Axis(ticks=False, grid=False, labelLimit=_LIMIT),
    )


def _percents(channel: Any, field: str, title: str | None) -> Any:
    alt = _altair()
    return channel(f"{field}:Q", scale=alt.Scale(domain=[0, 100]), title=title, axis=alt.Axis(values=[0, 25, 50, 75, 100]))


def _colour(readers: Sequence[str]) -> Any:
    alt = _altair()
    colours = [SERIES[index % len(SERIES)] for index in range(len(readers))]
    return alt.Color("reader:N", scale=alt.Scale(domain=list(readers), range=colours), legend=None)


def _shape(readers: Sequence[str]) -> Any:
    alt = _altair()
    shapes = [SHAPES[index % len(SHAPES)] for index in range(len(readers))]
    return alt.Shape("reader:N", scale=alt.Scale(domain=list(readers), range=shapes), legend=None)


def _altair() -> Any:
    with needs("report", "a report"):
        import altair
    return altair


def _draw(chart: Any, width: int, height: int, left: int, bottom: int) -> str:
    """A chart as SVG without ids, styles or scripts, its texts escaped."""
    with needs("report", "a report"):
        import vl_convert
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
        "labelOverlap": False,
        "labelBound": False,
        "labelFlush": False,
    }
    fixed = chart.properties(
        width=width, height=height, padding={"left": left, "right": _RIGHT, "top": _TOP, "bottom": bottom}, autosize="none"
    ).configure(
        aria=False,
        background="transparent",
        axis=axis,
        axisX={"minExtent": 21, "maxExtent": 21},
        axisY={"minExtent": 28, "maxExtent": 28},
        view={"stroke": None},
    )
    drawn = str(vl_convert.vegalite_to_svg(fixed.to_dict()))
    return drawn.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
