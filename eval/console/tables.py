"""What the command line prints for people: tables that fit 100 columns, and one question's story."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from eval.analysis.fallbacks import fallback_lines, fallbacks
from eval.analysis.provenance import extracted_by, extraction_words
from eval.score import read_cells
from offline.run.opened import OpenRun
from readers.sealed import sealed_reader

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Columns of a line that is cut.
_WIDTH = 100
# Evidence lines that a story prints; --json prints all.
_LINES = 40


def new_table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of words to the left, then columns of numbers to the right.

    The first word, which names a row and may be long, is folded where the table would be too wide; no number is cut.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        table.add_column(heading, no_wrap=bool(table.columns), overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def percent(count: int, of: int) -> str:
    """Two decimals; "-" of nothing."""
    return f"{100 * count / of:.2f}" if of else "-"


def scores(console: Console, run: OpenRun) -> None:
    """One table a reader: accuracy by view, hop class and, where there are several, history length, with Wilson intervals; and
    what made the triples.

    `cut` counts questions of a view whose evidence was cut to the reader's input cap, and of a pipeline those with a call that
    left out retrieved records, to the evidence budget or to its input cap. Below, a line for each view of which the output cap
    ended answers, or that shows fallbacks.
    """
    questions = len(run.data.questions)
    for plan in run.experiment.readers:
        cells = read_cells(run, plan.reader.name)
        blind = blind_text(all(cell.blind for cell in cells))
        others = [name for name in cells[0].correct if name != "subem"]
        headings = ("questions", "cut", "subem", "subem %", "Wilson 95 %", *others)
        several = len({cell.length for cell in cells if cell.length}) > 1
        words = ("view", "hops", "length") if several else ("view", "hops")
        table = new_table(f"{plan.reader.name}: {blind}", words, headings)
        for cell in cells:
            if cell.length and not several:
                continue
            counts = [str(cell.correct[name]) for name in others]
            table.add_row(
                cell.view,
                cell.hop_class,
                *([escape(cell.length or "all")] if several else []),
                str(cell.questions),
                str(cell.cut),
                str(cell.correct["subem"]),
                percent(cell.correct["subem"], cell.questions),
                f"{cell.low}-{cell.high}",
                *counts,
            )
        console.print(table)
        for view, count in sealed_reader(run, plan.reader.name).ended_by_cap.items():
            cap = f"the output cap of {plan.reader.output_cap} tokens"
            line = f"{plan.reader.name}, {view}: {count} of {questions} answers ended by {cap}, scored as they stand"
            console.print(escape(line), highlight=False, soft_wrap=True)
    views = list(dict.fromkeys(view for plan in run.experiment.readers for view in plan.views))
    for line in fallback_lines(fallbacks(run, views), questions):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print(printable(f"extraction: {extraction_words(extracted_by(run))}"), markup=False, highlight=False)


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


def blind_text(blind: bool) -> str:
    """How a table says whether a reader was sealed before any label was opened."""
    return "sealed blind" if blind else "sealed after labels were opened"


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


def printable(text: str) -> str:
    """A text without control and text-direction characters, which could steer a terminal; each becomes its escape."""
    return "".join(
        c.encode("unicode_escape").decode() if c in _DIRECTIONS or (unicodedata.category(c) == "Cc" and c != "\t") else c
        for c in text
    )


def line(console: Console, text: str) -> None:
    """One line of text that others may have written."""
    console.out(printable(text), highlight=False)


def short_line(console: Console, text: str) -> None:
    """The same, cut to 100 columns."""
    shown = Text(printable(text))
    shown.truncate(_WIDTH, overflow="ellipsis")
    console.out(shown.plain, highlight=False)


def more(console: Console, count: int, what: str, indent: str = "  ") -> None:
    """How much of a list is not printed; nothing if all is."""
    if count > 0:
        console.out(f"{indent}… {count} more {what} (--json prints all)", highlight=False)


def story(console: Console, result: dict[str, Any]) -> None:
    """One question: each view's evidence, and what each reader said of it."""
    line(console, f"{result['question']}  ({result['history']}, {result['hop_class']})")
    line(console, f"  {result['text']}")
    line(console, "  gold: " + (" | ".join(result["golds"]) if result["golds"] else "not opened (run `coldread score` first)"))
    for view, shown in result["views"].items():
        notes = [f"{shown['records']} records"] + ["truncated"] * shown["truncated"]
        notes += [f"fallback to {shown['fallback']}"] if shown["fallback"] else []
        line(console, "")
        line(console, f"{view}: {', '.join(notes)}")
        lines = shown["evidence"].split("\n")
        for record in lines[:_LINES]:
            line(console, f"    {record[:200]}")
        more(console, len(lines) - _LINES, "lines", "    ")
        for reader, answer in shown["answers"].items():
            cut = f", {answer['records_cut']} oldest records cut" if answer["records_cut"] else ""
            line(console, f"  {reader}: {answer['text']!r} [{answer['finish_reason']}{cut}] {_verdicts(answer)}")
    for pipeline, answers in result.get("pipelines", {}).items():
        line(console, "")
        line(console, f"{pipeline} (pipeline)")
        for reader, found in answers.items():
            for text in _trace_lines(reader, found):
                line(console, text)


def _trace_lines(reader: str, found: dict[str, Any]) -> Iterator[str]:
    """How a pipeline came to its answer: candidates, hops, and each answer of the model."""
    said = ", ".join(filter(None, (found["answered_by"], found["fault"], found["note"])))
    yield f"  {reader}: {found['answer']!r} [{said}] {_verdicts(found)}"
    dropped = f", {found['dropped']} left out" if found["dropped"] else ""
    yield f"    retrieved: {' '.join(map(str, found['evidence'])) or 'nothing'}{dropped}"
    # Those of hops stand with them.
    yield from _candidate_lines(None if found["hops"] else found["candidates"], "    ")
    for hop in found["hops"]:
        reason = f" ({hop['reason']})" if hop["reason"] else ""
        yield f"    hop {hop['number']}: {hop['resolved'] or hop['query']!r} {hop['outcome']} {hop['answer'] or ''}{reason}"
        yield from _candidate_lines(hop["candidates"], "      ")
    for call in found["calls"]:
        yield f"    {call['stage']} [{call['finish_reason']}]: {(call['error'] or call['text'])[:400]!r}"


def _candidate_lines(candidates: list[dict[str, Any]] | None, indent: str) -> Iterator[str]:
    for each in candidates or ():
        foreign = f" (not given to the policy: {each['foreign']})" if each["foreign"] else ""
        yield f"{indent}candidate [{each['position']}] {each['entity']!r}: {each['text'][:200]}{foreign}"


def _verdicts(answer: dict[str, Any]) -> str:
    return ", ".join(f"{name} {'right' if right else 'wrong'}" for name, right in (answer["metrics"] or {}).items())


def certificate(console: Console, result: dict[str, Any]) -> None:
    """A determinism certificate: what the engine resolved, and how many outputs were the same under which condition."""
    found = result["certificate"]
    for name, value in result["environment"].items():
        console.print(f"{name}: {value}", style="dim", markup=False, highlight=False)
    table = Table(title=f"{result['reader']}: outputs that are the same as when read alone")
    for column in ("condition", "same", "what it means"):
        table.add_column(column)
    for condition, same in found["matched"].items():
        table.add_row(condition, f"{same} of {found['probed'][condition]}", _CONDITIONS[condition])
    console.print(table)
    first = found["first"]
    if first:
        console.print(
            f"first divergence: {first['condition']}, request {first['request'][:12]}…, output token {first['token']}, margin "
            f"{first['margin'] or 'not known'}",
            markup=False,
        )
    console.print(f"batch invariance: {found['batch_invariance']}", markup=False)


def recheck(console: Console, result: dict[str, Any]) -> None:
    """What came out otherwise when a run's texts were encoded again."""
    for kind in ("encoder", "reranker"):
        if found := result.get(kind):
            what, count = ("vectors", found["texts"]) if kind == "encoder" else ("scores", found["pairs"])
            console.print(
                f"{found['name']}, batch size {found['batch_size']} on {found['device']}: {found['identical']} of {count} "
                f"{what} are the same to the last bit, the largest difference is {found['largest_difference']:.2g}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    table = new_table("rankings that changed", ("view",), ("rankings", "in order", "in what they show"))
    for view, count in result["rankings"].items():
        table.add_row(view, str(count["rankings"]), str(count["order"]), str(count["chosen"]))
    console.print(table)


_CONDITIONS = {
    "batch": "the sample in batches, cache cold",
    "shuffled": "in batches of another order, cache cold",
    "warm": "the same batches again, cache warm",
    "run": "the sealed predictions",
}


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
