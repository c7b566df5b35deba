"""The cost of selecting, freezing, ranking and reading on this machine.

    python scripts/bench.py [select|freeze|bm25|dense|growth|read|prefix|waves|constrained] [--data PATH] [--json]

    select  one cmc selection (anchors, traversal, positions) against testing every subject of the graph
    freeze  every view over all questions, as a multiple of cmc
    bm25    our BM25 against rank_bm25: time of a query, time of an index, order of the best 100
    dense   the embedded encoder in batches against one by one; exact ranking against float32; random vectors, growing
    growth  draw, load, extract, compile and freeze on synthetic streams of growing size
    read    the same packets through transformers, one by one and in batches, and through vLLM where it is installed
    prefix  vLLM on one long history and many questions, without and with its prefix cache
    waves   two pipelines on the same questions, one question at a time and all at once
    constrained
            extraction by a model, decoded freely and held to the schema

Without a command: select, freeze and bm25. `--data` takes FactConsolidation rows (.json, .jsonl, .parquet); without it a
synthetic stream of 18,332 statements stands in. Nothing here touches the network.

Absolute times depend on the machine and its load; compare ratios, which are taken inside one process.
- `select` asks each distinct question once of a fresh Memory, with entity_key's cache cleared, so that no cache is measured.
  Its rival gets its best form (subjects padded beforehand), shares our traversal, and must find the same anchors.
- `freeze` counts processor time, with the indexes that a view needs and without compiling, which all views share.
- `growth` runs each size in its own process, since peak memory never falls, after a small uncounted one that pays for imports.
- `waves` and `constrained` ask vLLM if it is installed, else transformers. Both sides share one engine process, and each starts
  with an empty cache of answers. Two uncounted calls of each decoding, eight tokens each, compile the grammars. The engine
  empties its prefix cache before every batch, so a shared beginning of prompts is computed once a batch, and at most once a
  wave. Retrieval, tokenizing and keeping answers count too.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import ranking
import typer
from calling import compare_decodings, compare_widths, make_extractor, make_work, running
from reading import CPU_OPTIONS, choose, compare, make_packets, reader_of
from reading import read as read_packets
from timing import time_each, timed

from eval.run import make_plan
from extract.frontends import distinct_texts, extract
from offline import freeze as freezing
from offline.canonical import encode
from offline.config.experiment import ResolvedExperiment
from offline.config.models import Reader
from offline.entity_keys import entity_key
from offline.errors import ColdreadError
from offline.loaders import load
from offline.loaders.plain import PlainData
from offline.loaders.raw import RawSource
from offline.loaders.synthetic import SyntheticData
from offline.memory import Memory
from offline.records import Question
from offline.run.steps import raw_source
from offline.views import find_view
from offline.views.graph import cmc

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
DataPath = Annotated[Path | None, typer.Option("--data", help="FactConsolidation rows; else the synthetic stream.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Queries = Annotated[int, typer.Option(help="Questions put to rank_bm25, which is slow.", min=1)]
Sample = Annotated[int, typer.Option(help="Texts encoded one by one.", min=32)]
DenseSizes = Annotated[str, typer.Option("--sizes", help="Random vectors to rank, smallest first, separated by commas.")]
Packets = Annotated[int, typer.Option(help="Questions whose packets are read.", min=2)]
Asked = Annotated[int, typer.Option("--questions", help="Questions that the pipelines answer.", min=2)]
Statements = Annotated[int, typer.Option("--statements", help="Distinct statements to extract from.", min=1)]
ModelFolder = Annotated[Path | None, typer.Option("--model", help="A local model; else the embedded one.")]
UseVllm = Annotated[bool, typer.Option("--vllm/--no-vllm", help="Also read with vLLM, if it is installed.")]
Sizes = Annotated[str, typer.Option(help="Statements, smallest first, separated by commas.")]

BEST: dict[str, Any] = {"batch_size": 16, "batch_tokens": 2048}  # suits short inputs (many at once) and long ones on two cores
BEST_BATCH = "16, 2048 tokens at most"
ANSWER_CAP = 128  # tokens: enough for a list of three records, and an end for a small model that repeats itself
ROUNDS = 5
SIZES, STREAM = "455,4580,18332,100000,1000000", 18_332  # FactConsolidation's statements (6k, 64k, 262k), then more
GROWTH_VIEWS = ("cmc", "stale_closure", "prior_refresh", "fact_bm25", "chunk4096_bm25", "window_bm25", "random_disjoint")


def peak_mib() -> int:
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print one JSON object; or each list of rows as a table and each other value as a line."""

    def text(value: Any) -> str:
        return f"{value:,.4g}" if isinstance(value, float) else str(value)

    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if isinstance(value, list):
            table = [list(value[0]), *([text(cell) for cell in row.values()] for row in value)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
            print(name, *lines, sep="\n  ")
        else:
            print(f"{name:<26}{text(value)}")


def synthetic(statements: int, questions: int) -> ResolvedExperiment:
    """The demo's experiment on another stream, with settings and views of the paper's data."""
    demo, paper = (make_plan(name, None, None).experiment for name in ("demo", "factconsolidation"))
    data = SyntheticData(statements=(statements,), questions=questions)
    return msgspec.structs.replace(demo, data=data, settings=paper.settings, views=paper.views)


class Bench:
    """Loaded and extracted data. history: the largest one; questions: its questions, each text once."""

    def __init__(self, path: Path | None, questions: int = 200) -> None:
        experiment = make_plan("factconsolidation", path, None).experiment if path else synthetic(STREAM, questions)
        loaded = load(experiment.data, raw_source(experiment, path), None)
        self.histories, self.all_questions = loaded.histories, loaded.questions
        self.experiment, self.extraction = experiment, extract(loaded.histories, experiment)
        self.history = max(loaded.histories, key=lambda history: len(history.statements))
        self.questions = list({q.text: q for q in loaded.questions if q.history == self.history.id}.values())
        settings, heading = experiment.settings, experiment.prompt.heading
        self.memory = partial(Memory, extraction=self.extraction, settings=settings, heading=heading)


def naive_anchors(padded: Sequence[str], text: str) -> tuple[str, ...]:
    """The anchors of a question, found by trying every subject. padded: each subject between two spaces."""
    question = f" {entity_key(text)} "
    spans: list[tuple[int, int]] = []
    for subject in padded:
        at = question.find(subject)
        while at >= 0:
            spans.append((at, at + len(subject)))
            at = question.find(subject, at + 1)
    outer = [s for s in spans if not any(t != s and t[0] <= s[0] and s[1] <= t[1] for t in spans)]
    return tuple(dict.fromkeys(question[begin + 1 : end - 1] for begin, end in sorted(outer)))


@app.command()
def select(data: DataPath = None, as_json: AsJson = False) -> None:
    """One cmc selection against testing every subject, at the largest history."""
    bench = Bench(data)
    padded = [f" {subject} " for subject in bench.memory(bench.history).graph.out]

    def naive(memory: Memory, question: Question) -> tuple[int, ...]:
        return memory.positions(memory.graph.closure(naive_anchors(padded, question.text), memory.settings.hops))

    rounds: dict[str, list[list[float]]] = {"cmc": [], "every_subject": []}
    for _ in range(ROUNDS):
        for name, method in (("cmc", cmc), ("every_subject", naive)):
            memory = bench.memory(bench.history)
            entity_key.cache_clear()
            rounds[name].append(time_each(partial(method, memory), bench.questions))
    # The median of the rounds, so that p95 reflects questions and not a disturbed round.
    each = {name: np.median(seconds, axis=0) * 1e3 for name, seconds in rounds.items()}
    result: dict[str, Any] = {"statements": len(bench.history.statements), "subjects": len(padded)}
    texts = {question.text for question in bench.all_questions}
    different = sum(memory.graph.subjects.anchors(text) != naive_anchors(padded, text) for text in texts)
    result |= {"questions": len(bench.questions), "anchors_compared": len(texts), "anchor_differences": different}
    for name, values in each.items():
        result |= {f"{name}_median_ms": float(np.median(values)), f"{name}_p95_ms": float(np.percentile(values, 95))}
    show({**result, "ratio_median": float(np.median(each["every_subject"] / each["cmc"]))}, as_json)


@app.command()
def freeze(data: DataPath = None, as_json: AsJson = False) -> None:
    """Every view over all questions, as a multiple of cmc."""
    bench = Bench(data)
    views, prompt, settings = bench.experiment.views, bench.experiment.prompt, bench.experiment.settings
    total, _ = timed(freezing.freeze, bench.histories, bench.all_questions, bench.extraction, settings, prompt, views)
    peak = peak_mib()
    asked = [(history, [q for q in bench.all_questions if q.history == history.id]) for history in bench.histories]

    def processor_seconds(*names: str) -> float:
        chosen = [(name, find_view(name)) for name in names]
        packets = (freezing.freeze_memory(bench.memory(history), questions, chosen, prompt) for history, questions in asked)
        return sum(timed(list, each, clock=time.process_time)[0] for each in packets)

    # Without a view: what all views share, the digests of histories and questions. The least of three.
    shared = min(processor_seconds() for _ in range(3))
    cost = {view: min(processor_seconds(view) for _ in range(3)) - shared for view in views}
    rows = [{"view": view, "seconds": seconds, "ratio_to_cmc": seconds / cost["cmc"]} for view, seconds in cost.items()]
    show({"views": rows, "questions": len(bench.all_questions), "seconds_all_views": total, "peak_rss_mib": peak}, as_json)


@app.command()
def bm25(data: DataPath = None, queries: Queries = 25, as_json: AsJson = False) -> None:
    """Our BM25 against rank_bm25 on the current facts of the largest history."""
    bench = Bench(data)
    words = [passage.words for passage in bench.memory(bench.history).corpus("fact").passages]
    settings, texts = bench.experiment.settings, [question.text for question in bench.questions]
    show(ranking.lexical(words, texts, settings.tokenizer, settings.k, queries), as_json)


@app.command()
def dense(data: DataPath = None, sample: Sample = 512, sizes: DenseSizes = "100000,1000000", as_json: AsJson = False) -> None:
    """The embedded encoder one by one and in batches; exact ranking against plain float32 arithmetic."""
    bench = Bench(data)
    documents = [passage.text for passage in bench.memory(bench.history).corpus("fact").passages]
    texts = [question.text for question in bench.questions]
    counts = [int(size) for size in sizes.split(",") if size]
    show(ranking.dense(documents, texts, bench.experiment.settings.k, sample, counts), as_json)


def grow(size: int) -> dict[str, float]:
    """Seconds of each step on a stream of this size, and peak memory."""
    experiment, seconds = synthetic(size, 20), {}
    seconds["draw"], drawn = timed(load, experiment.data, None, None)
    with tempfile.TemporaryDirectory(prefix="coldread-bench-") as folder:
        path = Path(folder) / "stream.jsonl"
        asked = [{"id": str(number), "text": question.text} for number, question in enumerate(drawn.questions)]
        told = [statement.text for statement in drawn.histories[0].statements]
        path.write_bytes(encode({"history": "stream", "statements": told, "questions": asked}) + b"\n")
        del drawn, told
        seconds["load"], loaded = timed(load, PlainData(), RawSource(path=path), None)
    seconds["extract"], extraction = timed(extract, loaded.histories, experiment)
    prompt, settings = experiment.prompt, experiment.settings
    seconds["compile"], memory = timed(Memory, loaded.histories[0], extraction, settings, prompt.heading)
    for view in GROWTH_VIEWS:
        packets = freezing.freeze_memory(memory, loaded.questions, [(view, find_view(view))], prompt)
        seconds[view], _ = timed(list, packets)
    return {"statements": size, **seconds, "peak_rss_mib": peak_mib()}


@app.command()
def growth(sizes: Sizes = SIZES, as_json: AsJson = False) -> None:
    """How each step grows with the stream: 20 questions at each size."""
    counts = [int(size) for size in sizes.split(",")]
    if len(counts) > 1:
        command = [sys.executable, __file__, "growth", "--json", "--sizes"]
        rows = [json.loads(subprocess.check_output([*command, str(count)]))["seconds"][0] for count in counts]
    else:
        rows = [grow(count) for count in (455, counts[0])][1:]
    steps = list(rows[0])[1:-1]
    each = [{"statements": row["statements"], **{s: row[s] / row["statements"] * 1e6 for s in steps}} for row in rows]
    ratios = [{"statements": row["statements"], **{s: row[s] / each[0][s] for s in steps}} for row in each]
    show({"seconds": rows, "us_per_statement": each, "ratio_to_smallest": ratios}, as_json)


@app.command()
def read(
    data: DataPath = None, packets: Packets = 20, model: ModelFolder = None, vllm: UseVllm = True, as_json: AsJson = False
) -> None:
    """The same packets through each engine: transformers one by one and at its best batch, vLLM if it is installed."""
    shared: dict[str, Any] = {"output_cap": 32, "dtype": "float32"}
    settings = {
        "transformers, batch 1": reader_of(model, "transformers", batch_size=1, **shared),
        f"transformers, batch {BEST_BATCH}": reader_of(model, "transformers", **BEST, **shared),
    }
    if vllm and (find_spec("vllm") is not None):
        settings["vllm"] = reader_of(model, "vllm", batch_size=256, options=CPU_OPTIONS, **shared)
    chosen = make_packets(data, ["cmc", "stale_closure", "fact_bm25"], packets)
    show({"reading": compare({name: read_packets(reader, chosen) for name, reader in settings.items()})}, as_json)


@app.command()
def prefix(data: DataPath = None, packets: Packets = 20, model: ModelFolder = None, as_json: AsJson = False) -> None:
    """vLLM on one raw history and many questions, a long shared beginning: without and with its prefix cache."""
    chosen = make_packets(data, ["raw_history"], packets)
    readings = {}
    for name, caching in (("prefix caching off", False), ("prefix caching on", True)):
        options = {**CPU_OPTIONS, "enable_prefix_caching": caching}
        readings[name] = read_packets(reader_of(model, "vllm", batch_size=256, output_cap=32, options=options), chosen)
    show({"reading": compare(readings)}, as_json)


def reader_for_calls(model: Path | None) -> Reader:
    """The fastest installed local engine, with its best settings for this model's calls."""
    if find_spec("vllm") is not None:
        return reader_of(model, "vllm", batch_size=256, options={**CPU_OPTIONS, "cpu_kv_cache_gib": 2})
    return reader_of(model, "transformers", **BEST)


@app.command()
def waves(data: DataPath = None, questions: Asked = 16, model: ModelFolder = None, as_json: AsJson = False) -> None:
    """sh_conflict and car on the same questions through one engine: one question at a time, then all at once."""
    work = make_work(data, questions, reader_for_calls(model), ANSWER_CAP)
    with running(work.reader) as engine:
        show({"reader": work.reader.name, **compare_widths(engine, work)}, as_json)


@app.command()
def constrained(data: DataPath = None, statements: Statements = 32, model: ModelFolder = None, as_json: AsJson = False) -> None:
    """Extraction by the llm frontend through one engine: decoded freely, then held to the schema."""
    texts = distinct_texts(choose(data, 1).histories)[:statements]
    extractor = make_extractor(reader_for_calls(model))
    with running(extractor.reader) as engine:
        show({"reader": extractor.reader.name, **compare_decodings(engine, extractor, texts)}, as_json)


@app.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """Measure the cost of selecting, freezing, ranking and reading. Without a command: select, freeze, bm25; no --data."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if context.invoked_subcommand is None:
        for command in (select, freeze, bm25):
            command()


if __name__ == "__main__":
    try:
        app()
    except ColdreadError as error:
        sys.exit(f"error: {error}")
