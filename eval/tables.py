"""What the command line prints for people: tables that fit 100 columns, and one question's story."""

import unicodedata
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eval.score import read_cells
from offline.run_folder import RunFolder

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Evidence lines that a story prints; --json prints all.
_LINES = 40


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.2f}" if of else "-"


def scores(console: Console, run: RunFolder) -> None:
    """One table a reader: accuracy by view, hop class and history length, with Wilson intervals.

    `cut` counts questions whose evidence the reader's input cap cut.
    """
    for plan in run.experiment().readers:
        cells = read_cells(run, plan.reader.name)
        blind = "sealed blind" if all(cell.blind for cell in cells) else "sealed after labels were opened"
        others = [name for name in cells[0].correct if name != "subem"]
        headings = ("questions", "cut", "subem", "subem %", "Wilson 95 %", *others)
        table = _table(f"{plan.reader.name}: {blind}", ("view", "hops", "length"), headings)
        for cell in cells:
            counts = [str(cell.correct[name]) for name in others]
            table.add_row(
                cell.view,
                cell.hop_class,
                escape(cell.length or "all"),
                str(cell.questions),
                str(cell.cut),
                str(cell.correct["subem"]),
                _percent(cell.correct["subem"], cell.questions),
                f"{cell.low}-{cell.high}",
                *counts,
            )
        console.print(table)


def coverage(console: Console, result: dict[str, Any]) -> None:
    """Gold answers in evidence by view and hop class; records and characters are means, truncated is of all questions."""
    headings = ("questions", "in evidence", "as value", "records", "characters", "truncated")
    table = _table("gold in evidence", ("view", "hops"), headings)
    for view, cells in result["views"].items():
        for hop_class, cell in cells.items():
            if isinstance(cell, dict):
                table.add_row(
                    view,
                    hop_class,
                    str(cell["questions"]),
                    str(cell["gold_in_evidence"]),
                    str(cell["gold_as_value"]),
                    f"{cell['records'] / cell['questions']:.1f}",
                    f"{cell['characters'] / cell['questions']:.0f}",
                    str(cells["truncated"]),
                )
    console.print(table)


def estimate(console: Console, result: dict[str, Any]) -> None:
    """What a run would cost, reader by reader."""
    headings = ("questions", "requests", "input tokens", "output tokens <=", "minutes")
    table = _table("dry run: nothing was read, nothing is kept", ("reader",), headings)
    for name, cost in result["readers"].items():
        table.add_row(
            name,
            str(cost["questions"]),
            str(cost["requests"]),
            ("" if cost["tokens_counted"] else "~") + str(cost["input_tokens"]),
            str(cost["output_tokens_at_most"]),
            "unknown rate" if cost["minutes"] is None else f"~{cost['minutes']}",
        )
    console.print(table)
    console.print(f"{result['bytes'] / 1e6:.1f} MB in the run folder before predictions", highlight=False)
    for name, cost in result["readers"].items():
        if "note" in cost:
            console.print(escape(f"{name}: tokens guessed from characters: {cost['note']}"), highlight=False)


def printable(text: str) -> str:
    """A text without control and text-direction characters, which could steer a terminal; each becomes its escape."""
    return "".join(
        c.encode("unicode_escape").decode() if c in _DIRECTIONS or (unicodedata.category(c) == "Cc" and c != "\t") else c
        for c in text
    )


def story(console: Console, result: dict[str, Any]) -> None:
    """One question: each view's evidence, and what each reader said of it."""

    def line(text: str) -> None:
        console.out(printable(text), highlight=False)

    line(f"{result['question']}  ({result['history']}, {result['hop_class']})")
    line(f"  {result['text']}")
    line("  gold: " + (" | ".join(result["golds"]) if result["golds"] else "not opened (run `coldread score` first)"))
    for view, shown in result["views"].items():
        notes = [f"{shown['records']} records"] + ["truncated"] * shown["truncated"]
        notes += [f"fallback to {shown['fallback']}"] if shown["fallback"] else []
        line("")
        line(f"{view}: {', '.join(notes)}")
        lines = shown["evidence"].split("\n")
        for record in lines[:_LINES]:
            line(f"    {record[:200]}")
        if len(lines) > _LINES:
            line(f"    … {len(lines) - _LINES} more lines (--json prints all)")
        for reader, answer in shown["answers"].items():
            verdict = ", ".join(f"{name} {'right' if right else 'wrong'}" for name, right in (answer["metrics"] or {}).items())
            cut = f", {answer['records_cut']} oldest records cut" if answer["records_cut"] else ""
            line(f"  {reader}: {answer['text']!r} [{answer['finish_reason']}{cut}] {verdict}")


_THINKING = {
    "off": "the template obeys its thinking switch",
    "on": "the template obeys its thinking switch",
    "no switch": "the template knows no thinking",
    "ignored": "the template ignores the thinking switch",
    None: "not tried",
}


def pin(console: Console, result: dict[str, Any]) -> None:
    """One model: what it is, what its template does, what to know, and last the line for a reader file."""
    model = result["model"]
    facts = {
        "model": model["repository"] or model["folder"],
        "revision": model["revision"] or "a local folder",
        "fingerprint": model["fingerprint"],
        "licence": result["licence"] or "not stated",
        "gated": result["gated"] or "-",
        "weights": f"{result['weights']:,} bytes",
        "architecture": result["architecture"],
        "dtype": result["dtype"],
        "window": f"{result['window']:,} tokens" if result["window"] > 0 else "not stated",
        "stop ids": ", ".join(map(str, result["stop_ids"] or ())) or "not known",
        "thinking": _THINKING[result["thinking"]],
        "clock": {True: "the template asks it", False: "the template does not ask it", None: "not tried"}[result["clock"]],
        "BOS": "not tried" if result["bos"] is None else f"{result['bos']} at the start of an input",
    }
    for name, value in facts.items():
        console.print(f"{name:>13}  {value}", markup=False, highlight=False, soft_wrap=True)
    for finding in result["findings"]:
        console.print(f"{'note':>13}  {finding}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\n{result['line']}", markup=False, highlight=False, soft_wrap=True)
