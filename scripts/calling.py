"""Algorithms' calls, for bench.py and gpu_check.py: one running engine, and callers with an empty cache."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec
from reading import Chosen, choose
from timing import timed

from extract.frontends.llm import llm
from extract.pipelines.schedule import Assembled, pipeline_settings, run_pipelines
from offline.config.calls import Extractor, ExtractorUse, PipelineUse, pipeline_reader, resolve_extractor, resolve_pipelines
from offline.config.models import Reader
from offline.observer import Task
from readers.calls.cache import Cache
from readers.calls.caller import Caller, Prepared
from readers.calls.engine_source import Live
from readers.engines import EngineStart
from readers.models.pins import identify, locate
from readers.models.served import Tokenizer
from readers.process.guard import Forbidden
from readers.process.parent import Process
from readers.process.pool import Engines
from readers.records import Output, Settings
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer

PIPELINES = ("sh_conflict", "car")
# Bounds for a small model that repeats itself: hops; statements and tokens of an extraction call.
HOPS = 4
STATEMENTS, OUTPUT_CAP = 4, 512
_UNCOUNTED = 8  # tokens of an uncounted answer

Made = TypeVar("Made")


@dataclass(frozen=True)
class _Lent(Engines):
    """A running engine, lent to one source after another; none of them ends it."""

    processes: Sequence[Process] = ()

    @contextmanager
    def run(self, count: int = 1) -> Iterator[list[Process]]:
        """The running processes."""
        yield list(self.processes)


@dataclass(frozen=True)
class Running:
    """A running engine, and what makes its model's calls."""

    settings: Settings
    tokenizer: Tokenizer
    engines: _Lent

    @contextmanager
    def caller(self) -> Iterator[tuple[Caller, list[int]]]:
        """A caller with an empty cache, and the number of calls in each of its waves."""
        waves: list[int] = []
        with TemporaryDirectory(prefix="coldread-calls-") as folder:
            live = Live(self.engines, Cache(Path(folder)), Task())

            def source(calls: Sequence[Prepared]) -> list[Output]:
                waves.append(len(calls))
                return live(calls)

            yield Caller(self.settings, self.tokenizer, source), waves

    def measure(self, name: str, algorithm: Callable[[Caller], Made]) -> tuple[Made, dict[str, Any]]:
        """The result of an algorithm with its own caller, and its cost."""
        with self.caller() as (caller, waves):
            seconds, made = timed(algorithm, caller)
        tokens = sum(stage.output_tokens for stage in caller.transcript.counts().values())
        row = {"setting": name, "seconds": seconds, "waves": len(waves), "calls": sum(waves), "output_tokens": tokens}
        return made, row

    def warm_up(self, algorithm: Callable[[Caller], object]) -> None:
        """Make two uncounted calls of each decoding that an algorithm starts with, to compile every grammar."""
        calls: list[Prepared] = []

        def source(wave: Sequence[Prepared]) -> list[Output]:
            calls.extend(wave)
            return [Output(ids=(), finish_reason="stop") for _ in wave]

        algorithm(Caller(self.settings, self.tokenizer, source))
        for decoding in dict.fromkeys(prepared.decoding for prepared in calls):
            two = [prepared.ids for prepared in calls if prepared.decoding == decoding][:2]
            self.engines.processes[0].send(two, decoding=msgspec.structs.replace(decoding, output_cap=_UNCOUNTED))
            self.engines.processes[0].receive()


@contextmanager
def running(reader: Reader) -> Iterator[Running]:
    """Start a reader's engine for calls that may be constrained to schemas."""
    folder = locate(reader)
    tokenizer = ChatTokenizer.of(reader, folder)
    settings = make_settings(reader, identify(reader, folder), tokenizer)
    start = EngineStart(settings=settings, model_folder=str(folder), longest=settings.input_cap, structured=True)
    forbidden = Forbidden(folders=())
    with Engines(start, forbidden).run() as processes:
        yield Running(settings, tokenizer, _Lent(start, forbidden, processes))


@dataclass(frozen=True)
class Work:
    """Questions for the pipelines, and the reader that answers."""

    chosen: Chosen
    reader: Reader

    def run(self, caller: Caller, width: int | None = None) -> Assembled:
        """Run the pipelines on `width` questions at once, None = all."""
        chosen = self.chosen
        return run_pipelines(PIPELINES, chosen.histories, chosen.questions, chosen.experiment, caller, width)


def make_work(data: Path | None, questions: int, reader: Reader, output_cap: int) -> Work:
    """Work on this many questions from `reading.choose`. output_cap: tokens of an answer."""
    chosen = choose(data, questions)
    pipelines = resolve_pipelines(PipelineUse(output_cap=output_cap, hops=HOPS), __file__)
    experiment = msgspec.structs.replace(chosen.experiment, pipelines=pipelines)
    return Work(replace(chosen, experiment=experiment), pipeline_reader(reader, pipeline_settings(experiment)))


def compare_widths(engine: Running, work: Work) -> dict[str, Any]:
    """The pipelines one question at a time and all at once. ratio: how many times faster than the first."""
    engine.warm_up(work.run)
    rows: list[dict[str, Any]] = []
    made: list[Assembled] = []
    for name, width in (("one question at a time", 1), ("all at once", None)):
        assembled, row = engine.measure(name, partial(work.run, width=width))
        made.append(assembled)
        rows.append({**row, "ratio": 1.0})
    rows[1]["ratio"] = rows[0]["seconds"] / rows[1]["seconds"]
    first, second = (assembled.traces for assembled in made)
    different = sum(one != other for one, other in zip(first, second, strict=True))
    return {"serving": rows, "questions": len(work.chosen.questions), "traces": len(first), "trace_differences": different}


def make_extractor(reader: Reader) -> Extractor:
    """An extractor that asks about each statement once."""
    use = ExtractorUse(reader=reader, statements=STATEMENTS, output_cap=OUTPUT_CAP, repair=False, align=False)
    return resolve_extractor(use, __file__)


def compare_decodings(engine: Running, extractor: Extractor, texts: Sequence[str]) -> dict[str, Any]:
    """Extraction decoded freely and constrained to the schema. ratio_per_token: seconds per output token, over the first."""
    rows: list[dict[str, Any]] = []
    for name, constrained in (("free", False), ("held to the schema", True)):
        asked = msgspec.structs.replace(extractor, constrained=constrained)
        algorithm = partial(llm, texts, asked)
        engine.warm_up(algorithm)
        extracted, row = engine.measure(name, algorithm)
        row["tokens_per_second"] = row["output_tokens"] / row["seconds"]
        rows.append({**row, "ratio_per_token": 1.0, "valid": sum(draft.by == "model" for draft in extracted.drafts)})
    rows[1]["ratio_per_token"] = rows[0]["tokens_per_second"] / rows[1]["tokens_per_second"]
    return {"extraction": rows, "statements": len(texts)}
