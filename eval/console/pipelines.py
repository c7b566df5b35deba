"""What `coldread pipelines` prints for people, inside 100 columns."""

from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape

from eval.console.layout import new_table
from eval.wording import blind_text, percent

_ANSWERS = ("\nasked", "\nfaults", "\nnotes", "ab-\nstained", "fall-\nbacks")
_LISTS = ("\nlists", "\nempty", "mean of\na list", "for-\neign", "con-\ntested")
_COSTS = {"calls": "calls", "failed": "failed", "input_tokens": "input", "output_tokens": "output"}


def pipelines(console: Console, result: dict[str, Any]) -> None:
    """What each reader's pipelines did and cost; on a scored run, what each part is worth."""
    for name, found in result["readers"].items():
        sampled = f"; sampled: {', '.join(found['sampled'])}" if found["sampled"] else ""
        _line(console, f"{name}: {blind_text(found['sealed_blind'])}{sampled}")
        _did(console, found)
        _cost(console, found)
        for row in found["agreement"]:
            same = f"{row['same']} of {row['lists']} ({percent(row['same'], row['lists'])} %)"
            _line(console, f"{row['pipeline']}: {same} of the lists that it asked for again are as in {row['against']}")
        if result["metric"] is not None:
            _isolation(console, found, result["metric"])
            _complementarity(console, found, result["metric"])


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _did(console: Console, found: dict[str, Any]) -> None:
    table = new_table("what they found", ("\npipeline",), (*_ANSWERS, *_LISTS))
    hops = new_table("hops", ("pipeline",), ("planned", "without a plan", "executed", "first without an answer"))
    for name, row in found["pipelines"].items():
        mean = f"{row['candidates'] / row['lists']:.2f}" if row["lists"] else "-"
        counts = (row[key] for key in ("questions", "faults", "noted", "abstained", "fallbacks", "lists", "empty"))
        table.add_row(name, *map(str, counts), mean, str(row["foreign"]), str(row["contested"]))
        if row["planned"] or row["unplanned"]:
            first = ", ".join(f"hop {number}: {count}" for number, count in row["first_failed"].items())
            hops.add_row(name, *(str(row[key]) for key in ("planned", "unplanned", "executed")), first or "-")
    console.print(table)
    if hops.rows:
        console.print(hops)


def _cost(console: Console, found: dict[str, Any]) -> None:
    unit = found["unit"]
    title = f"distinct calls that answers rest on, and {unit}; shared ones count for each"
    table = new_table(title, ("pipeline",), tuple(_COSTS.values()))
    for name, row in found["pipelines"].items():
        table.add_row(name, *(str(sum(cost[key] for cost in row["costs"].values())) for key in _COSTS))
    console.print(table)
    stages = new_table(
        f"calls and {unit} by stage, each once; the seconds are not covered by the seal",
        ("stage",),
        (*_COSTS.values(), "seconds"),
    )
    for stage, row in found["stages"].items():
        stages.add_row(stage, *(str(row[key]) for key in _COSTS), row["seconds"] or "-")
    console.print(stages)


def _right(found: dict[str, Any]) -> str:
    """Counts, percent and interval; of nothing, nothing."""
    shown = f"{found['correct']} ({found['percent']} %, {found['low']}-{found['high']})"
    return shown if found["questions"] else "-"


def _isolation(console: Console, found: dict[str, Any], metric: str) -> None:
    headings = ("\nasked", "\ncode", "\nmodel", "same\nposition")
    for (code, model), rows in groupby(found["isolation"], lambda row: (row["code"], row["model"])):
        title = f"the same candidates, chosen by code ({code}) and by the model ({model}): {metric}, Wilson 95 %"
        table = new_table(title, ("\nquestions", "\nhops"), headings)
        none = listed = 0
        for row in rows:
            if row["population"] == "all":
                none, listed = row["took_none"], row["listed"]
            right = (_right(row["right_code"]), _right(row["right_model"]))
            table.add_row(escape(row["population"]), row["hop_class"], str(row["questions"]), *right, str(row["same_position"]))
        console.print(table)
        if none:
            _line(console, f"{model}: on {none} of {listed} questions with candidates it chose none of them")


def _complementarity(console: Console, found: dict[str, Any], metric: str) -> None:
    headings = ("\nboth", "it\nalone", "direct\nalone", "\nneither", "direct where\nit is right")
    table = new_table(f"against the direct answer: {metric}, Wilson 95 %", ("\npipeline", "\nhops"), headings)
    for row in found["complementarity"]:
        counts = (str(row[key]) for key in ("both", "only_pipeline", "only_direct", "neither"))
        table.add_row(row["pipeline"], row["hop_class"], *counts, _right(row["direct_where_right"]))
    if table.rows:
        console.print(table)
