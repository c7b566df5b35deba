"""Output of `coldread compare`."""

from collections.abc import Iterator

from rich.console import Console

from eval.analysis.compare import ComparedReader, Comparison, SideAccuracy, Templates
from eval.console.layout import line, new_table
from eval.wording import blind_text, percent


def compare(console: Console, result: Comparison) -> None:
    """Print two readers side by side: descriptions, accuracies, paired outcomes with McNemar's exact p, chat templates."""
    for text in (*_reader_lines("A", result.a), *_reader_lines("B", result.b)):
        line(console, text)
    for side, lone in (("A", result.only_a_reads), ("B", result.only_b_reads)):
        if lone:
            line(console, f"not compared, read by {side} alone: {', '.join(lone)}")
    line(console, "")
    metric = result.metric
    right = new_table(metric, ("view", "hops"), ("questions", "A", "A %", "Wilson 95 %", "B", "B %", "Wilson 95 %"))
    headings = ("both", "only A", "only B", "neither", "win/tie/loss", "points", "McNemar p")
    paired = new_table(f"{metric}, A against B", ("view", "hops"), headings)
    for view, cells in result.views.items():
        for hop_class, cell in cells.items():
            of = cell.questions
            right.add_row(view, hop_class, str(of), *_accuracy(cell.a, of), *_accuracy(cell.b, of))
            counts = map(str, (cell.both, cell.only_a, cell.only_b, cell.neither))
            outcome = "/".join(map(str, cell.win_tie_loss))
            paired.add_row(view, hop_class, *counts, outcome, f"{cell.points:+.2f}", f"{cell.mcnemar_p:.3g}")
    console.print(right)
    console.print(paired)
    for text in _template_lines(result.templates):
        line(console, text)


def _reader_lines(side: str, found: ComparedReader) -> Iterator[str]:
    yield f"{side}: {found.reader} in {found.run}, {blind_text(found.sealed_blind)}"
    yield f"   {found.model}, fingerprint {found.fingerprint[:12]}…"
    yield f"   {found.engine}, {_hardware(found.dtype, found.device)}; thinking: {found.thinking}"
    yield f"   {_sizes(found)}"
    for view, lost in found.views.items():
        yield f"   {view}: cut {lost.cut}, failed {lost.failed}"


def _sizes(found: ComparedReader) -> str:
    # A served model's sizes are in bytes, its cap in tokens.
    unit, cap_unit = ("tokens", "") if found.input_tokens else ("bytes", " tokens")
    given, made = found.input_tokens or found.input_bytes, found.output_tokens or found.output_bytes
    assert given  # as one of the two units always is
    assert made
    return (
        f"input {unit}: mean {given.mean}, at most {given.max}; "
        f"output {unit}: mean {made.mean}, at most {made.max} (cap {found.output_cap}{cap_unit})"
    )


def _hardware(dtype: str, device: str) -> str:
    return f"dtype {dtype}, device {device}" if "not known" in (dtype, device) else f"{dtype} on {device}"


def _accuracy(side: SideAccuracy, questions: int) -> tuple[str, str, str]:
    return str(side.correct), percent(side.correct, questions), f"{side.low:.2f}-{side.high:.2f}"


def _template_lines(shown: Templates) -> Iterator[str]:
    """Both chat templates around placeholder messages, each on one line."""
    for side, text in (("A", shown.a), ("B", shown.b)):
        if text is not None:
            yield f"chat template of {side}: {text}"
    for side, only in (("A", shown.only_a), ("B", shown.only_b)):
        if only:
            yield f"   only {side}: {'  '.join(only)}"
    if shown.a is not None and shown.a == shown.b:
        yield "   the same"
    for note in shown.notes:
        yield f"chat template not shown: {note}"
