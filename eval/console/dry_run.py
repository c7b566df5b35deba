"""What `coldread run --dry-run` prints."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from eval.console.layout import new_table


def _size(count: int | None) -> str:
    return "size unknown" if count is None else f"{count / 1e9:.2f} GB"


def estimate(console: Console, result: dict[str, Any]) -> None:
    """What a run would cost, reader by reader."""
    headings = ("questions x views", "requests", "input tokens", "output tokens <=", "minutes", "download")
    table = new_table("dry run: nothing was read, nothing is kept", ("reader",), headings)
    for name, cost in result["readers"].items():
        lacking = cost["download"]
        size = "" if lacking is None else _size(lacking["bytes"])
        table.add_row(
            name,
            str(cost["scheduled"]),
            str(cost["requests"]),
            ("" if cost["tokens_counted"] else "~") + str(cost["input_tokens"]),
            str(cost["output_tokens_at_most"]),
            "unknown rate" if cost["minutes"] is None else f"~{cost['minutes']}",
            size or "nothing",
        )
    console.print(table)
    if (work := result.get("extract")) is not None:
        counted = "input_tokens" in work
        tokens = f", {work['input_tokens']} tokens in, about {work['output_tokens_about']} out" if counted else ""
        minutes = f", ~{work['minutes']} minutes" if work.get("minutes") is not None else ""
        calls = f"{'at most ' if work['at_most'] else ''}{work['calls']} calls"
        plan = f"{work['statements']} texts in {calls}{tokens}{minutes}; repairs and mappings come on top"
        console.print(escape(f"extraction by {work['model']}: {plan}"), highlight=False, soft_wrap=True)
    for name, work in result.get("encode", {}).items():
        counts = ", ".join(f"{count} {what}" for what, count in work.items() if what != "download")
        lacking = work["download"]
        size = "" if lacking is None else f", would download {lacking['model']} ({_size(lacking['bytes'])})"
        console.print(escape(f"{name}: about {counts}{size}"), highlight=False, soft_wrap=True)
    if result.get("stand_ins"):
        pairs = ", ".join(f"{view} as {other}" for view, other in result["stand_ins"].items())
        console.print(escape(f"reckoned by views of their length that need no model: {pairs}"), highlight=False, soft_wrap=True)
    console.print(f"{result['bytes'] / 1e6:.1f} MB in the run folder before predictions", highlight=False)
    for name, cost in result["readers"].items():
        if cost["download"]:
            console.print(escape(f"{name}: would download {cost['download']['model']}"), highlight=False)
        if probed := cost["certificate"]:
            console.print(
                escape(
                    f"{name}: tokens and minutes with those of the certificate, which reads {probed['sample']} requests "
                    f"{probed['readings']} times ({probed['input_tokens']} input tokens); `probe: 0` saves it"
                ),
                highlight=False,
                soft_wrap=True,
            )
        if served := cost.get("pipelines"):
            console.print(
                escape(
                    f"{name}: {served['pipelines']} pipelines for {served['questions']} questions make at least "
                    f"{served['calls_at_least']} calls, not counted above; what more they ask, and its tokens, hangs on answers"
                ),
                highlight=False,
                soft_wrap=True,
            )
        if "note" in cost:
            console.print(escape(f"{name}: tokens guessed from characters: {cost['note']}"), highlight=False)
