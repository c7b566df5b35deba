"""Output of `coldread run --dry-run`."""

from msgspec import UNSET
from rich.console import Console
from rich.markup import escape

from eval.console.layout import new_table
from eval.dry_run import Download, DryRun, EncoderCost, ExtractionCost, ReaderCost, RerankerCost


def _size(download: Download) -> str:
    return "size unknown" if download.bytes is None else f"{download.bytes / 1e9:.2f} GB"


def estimate(console: Console, result: DryRun) -> None:
    """Print the estimated costs by reader."""
    headings = ("questions x views", "requests", "input tokens", "output tokens <=", "minutes", "download")
    table = new_table("dry run: nothing was read, nothing is kept", ("reader",), headings)
    for name, cost in result.readers.items():
        table.add_row(
            name,
            str(cost.scheduled),
            str(cost.requests),
            ("" if cost.tokens_counted else "~") + str(cost.input_tokens),
            str(cost.output_tokens_at_most),
            "unknown rate" if cost.minutes is None else f"~{cost.minutes}",
            "nothing" if cost.download is None else _size(cost.download),
        )
    console.print(table)
    if result.extract is not UNSET:
        _line(console, _extraction(result.extract))
    for name, work in (result.encode or {}).items():
        _line(console, f"{name}: about {_encoding(work)}")
    if result.stand_ins:
        pairs = ", ".join(f"{view} as {other}" for view, other in result.stand_ins.items())
        _line(console, f"estimated with views of similar length that need no model: {pairs}")
    _line(console, f"{result.bytes / 1e6:.1f} MB in the run folder before predictions")
    for name, cost in result.readers.items():
        _reader(console, name, cost)


def _line(console: Console, text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _extraction(work: ExtractionCost) -> str:
    counted = work.input_tokens is not UNSET
    tokens = f", {work.input_tokens} tokens in, about {work.output_tokens_about} out" if counted else ""
    minutes = "" if work.minutes in (None, UNSET) else f", ~{work.minutes} minutes"
    calls = f"{'at most ' if work.at_most else ''}{work.calls} calls"
    plan = f"{work.statements} texts in {calls}{tokens}{minutes}; repairs and mappings come on top"
    return f"extraction by {work.model}: {plan}"


def _encoding(work: EncoderCost | RerankerCost) -> str:
    counts = (
        f"{work.pairs} pairs" if isinstance(work, RerankerCost) else f"{work.passages} passages, {work.questions} questions"
    )
    return counts if work.download is None else f"{counts}, would download {work.download.model} ({_size(work.download)})"


def _reader(console: Console, name: str, cost: ReaderCost) -> None:
    if cost.download is not None:
        console.print(escape(f"{name}: would download {cost.download.model}"), highlight=False)
    if probed := cost.certificate:
        _line(
            console,
            f"{name}: tokens and minutes with those of the certificate, which reads {probed.sample} requests "
            f"{probed.readings} times ({probed.input_tokens} input tokens); `probe: 0` saves it",
        )
    if served := cost.pipelines:
        _line(
            console,
            f"{name}: {served.pipelines} pipelines for {served.questions} questions make at least "
            f"{served.calls_at_least} calls, not counted above; further calls and their tokens depend on answers",
        )
    if cost.note:
        console.print(escape(f"{name}: tokens guessed from characters: {cost.note}"), highlight=False)
