"""What `coldread compare` prints."""

from typing import Any

from rich.console import Console

from eval.console.layout import line, new_table
from eval.wording import blind_text, percent


def compare(console: Console, result: dict[str, Any]) -> None:
    """Two readers side by side: what they are, accuracies, paired outcomes with McNemar's exact p, chat templates."""
    for side in ("a", "b"):
        for text in _reader_lines(side.upper(), result[side]):
            line(console, text)
    for side in ("a", "b"):
        if lone := result[f"only_{side}_reads"]:
            line(console, f"not compared, read by {side.upper()} alone: {', '.join(lone)}")
    line(console, "")
    metric = result["metric"]
    right = new_table(metric, ("view", "hops"), ("questions", "A", "A %", "Wilson 95 %", "B", "B %", "Wilson 95 %"))
    headings = ("both", "only A", "only B", "neither", "win/tie/loss", "points", "McNemar p")
    paired = new_table(f"{metric}, A against B", ("view", "hops"), headings)
    for view, cells in result["views"].items():
        for hop_class, cell in cells.items():
            right.add_row(view, hop_class, str(cell["questions"]), *_accuracy(cell, "a"), *_accuracy(cell, "b"))
            counts = [str(cell[name]) for name in ("both", "only_a", "only_b", "neither")]
            outcome = "/".join(map(str, cell["win_tie_loss"]))
            paired.add_row(view, hop_class, *counts, outcome, f"{cell['points']:+.2f}", f"{cell['mcnemar_p']:.3g}")
    console.print(right)
    console.print(paired)
    for text in _template_lines(result["templates"]):
        line(console, text)


def _reader_lines(side: str, facts: dict[str, Any]) -> list[str]:
    # A served model's sizes are bytes, but its cap counts tokens.
    unit, cap_unit = ("bytes", " tokens") if "input_bytes" in facts else ("tokens", "")
    given, made = facts[f"input_{unit}"], facts[f"output_{unit}"]
    return [
        f"{side}: {facts['reader']} in {facts['run']}, {blind_text(facts['sealed_blind'])}",
        f"   {facts['model']}, fingerprint {facts['fingerprint'][:12]}…",
        f"   {facts['engine']}, {_hardware(facts['dtype'], facts['device'])}; thinking: {facts['thinking']}",
        f"   input {unit}: mean {given['mean']}, at most {given['max']}; "
        f"output {unit}: mean {made['mean']}, at most {made['max']} (cap {facts['output_cap']}{cap_unit})",
        *(f"   {view}: cut {lost['cut']}, failed {lost['failed']}" for view, lost in facts["views"].items()),
    ]


def _hardware(dtype: str, device: str) -> str:
    return f"dtype {dtype}, device {device}" if "not known" in (dtype, device) else f"{dtype} on {device}"


def _accuracy(cell: dict[str, Any], side: str) -> tuple[str, str, str]:
    shown = cell[side]
    return str(shown["correct"]), percent(shown["correct"], cell["questions"]), f"{shown['low']:.2f}-{shown['high']:.2f}"


def _template_lines(shown: dict[str, Any]) -> list[str]:
    """Both chat templates around placeholder messages, each on one line."""
    lines = [f"chat template of {side.upper()}: {shown[side]}" for side in ("a", "b") if shown[side] is not None]
    lines += [f"   only {side.upper()}: {'  '.join(shown[f'only_{side}'])}" for side in ("a", "b") if shown[f"only_{side}"]]
    if shown["a"] is not None and shown["a"] == shown["b"]:
        lines.append("   the same")
    return lines + [f"chat template not shown: {note}" for note in shown["notes"]]
