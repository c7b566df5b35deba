"""What `coldread pipelines` prints for people, inside 100 columns."""

from typing import Any

from rich.console import Console

from eval.tables import blind_text, new_table, percent

_COUNTS = (
    "\nasked",
    "\nfaults",
    "ab-\nstained",
    "fall-\nbacks",
    "\nlists",
    "\nempty",
    "mean of\na list",
    "for-\neign",
    "con-\ntested",
)
_HOPS = ("planned", "executed", "first without an answer")


def pipelines(console: Console, result: dict[str, Any]) -> None:
    """What each reader's pipelines did and cost; on a scored run, what their parts are worth."""
    for name, found in result["readers"].items():
        sampled = f"; sampled: {', '.join(found['sampled'])}" if found["sampled"] else ""
        console.print(f"{name}: {blind_text(found['sealed_blind'])}{sampled}", markup=False, highlight=False, soft_wrap=True)
        _did(console, found)
        _cost(console, found)
        for row in found["agreement"]:
            share = percent(row["same"], row["lists"])
            words = f"lists asked for again by {row['pipeline']}: {row['same']} of {row['lists']} ({share} %) as in {row['against']}"
            console.print(words, markup=False, highlight=False, soft_wrap=True)
        if found.get("isolation"):
            _isolation(console, found, result["metric"])
        if found.get("complementarity"):
            _complementarity(console, found, result["metric"])


def _did(console: Console, found: dict[str, Any]) -> None:
    table = new_table("what they found", ("\npipeline",), _COUNTS)
    hops = new_table("hops", ("pipeline",), _HOPS)
    for name, row in found["pipelines"].items():
        mean = f"{row['candidates'] / row['lists']:.2f}" if row["lists"] else "-"
        counts = (row[key] for key in ("questions", "faults", "abstained", "fallbacks", "lists", "empty"))
        table.add_row(name, *map(str, counts), mean, str(row["foreign"]), str(row["contested"]))
        if row["planned"]:
            first = ", ".join(f"hop {number}: {count}" for number, count in row["first_failed"].items())
            hops.add_row(name, str(row["planned"]), str(row["executed"]), first or "-")
    console.print(table)
    if hops.rows:
        console.print(hops)


def _cost(console: Console, found: dict[str, Any]) -> None:
    """Of pipelines, distinct calls that their answers rest on; of stages, each call once."""
    keys = ("calls", "failed", "input_tokens", "output_tokens")
    table = new_table("distinct calls that their answers rest on", ("pipeline",), ("calls", "failed", "input", "output"))
    for name, row in found["pipelines"].items():
        table.add_row(name, *(str(sum(cost[key] for cost in row["costs"].values())) for key in keys))
    console.print(table)
    stages = new_table("calls by stage, each once", ("stage",), ("calls", "failed", "input", "output", "seconds"))
    for stage, row in found["stages"].items():
        stages.add_row(stage, *(str(row[key]) for key in keys), row["seconds"] or "-")
    console.print(stages)


def _right(found: dict[str, Any]) -> tuple[str, str]:
    return f"{found['correct']} ({found['percent']} %)", f"{found['low']}-{found['high']}"


def _isolation(console: Console, found: dict[str, Any], metric: str) -> None:
    title = f"the same candidates, chosen by code and by the model ({metric}, Wilson 95 %)"
    headings = ("asked", "code", "", "model", "", "same position")
    table = new_table(title, ("model", "questions", "hops"), headings)
    for row in found["isolation"]:
        same = str(row["same_position"])
        code, model = _right(row["right_code"]), _right(row["right_model"])
        table.add_row(row["model"], row["population"], row["hop_class"], str(row["questions"]), *code, *model, same)
    console.print(table)


def _complementarity(console: Console, found: dict[str, Any], metric: str) -> None:
    headings = ("both", "it alone", "direct alone", "neither", "direct where it is right", "")
    table = new_table(f"against the direct answer ({metric})", ("pipeline", "hops"), headings)
    for row in found["complementarity"]:
        counts = (str(row[key]) for key in ("both", "only_pipeline", "only_direct", "neither"))
        table.add_row(row["pipeline"], row["hop_class"], *counts, *_right(row["direct_where_right"]))
    console.print(table)
