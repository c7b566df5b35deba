"""Reading for bench.py and gpu_check.py: the same packets by one reader after another, each in its own process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from eval.run import make_plan
from extract.frontends import extract
from offline.config.experiment import Prompt, ResolvedExperiment
from offline.config.models import Pin, Reader
from offline.freeze import Frozen, freeze
from offline.loaders import load
from offline.loaders.synthetic import SyntheticData
from offline.records import History, Question
from offline.run.steps import raw_source
from readers.engines import EngineStart
from readers.models.pins import identify, locate
from readers.process.guard import Forbidden
from readers.process.parent import start_process
from readers.requests import Requests, batches_of, make_requests, make_settings
from readers.tokens.chat import ChatTokenizer

# vLLM's options on a CPU, measured on two cores (docs/costs.md); on a GPU vLLM chooses.
CPU_OPTIONS: dict[str, str | int | bool] = {"enforce_eager": True, "max_num_batched_tokens": 512, "cpu_kv_cache_gib": 4}


@dataclass(frozen=True)
class Chosen:
    """Some of an experiment's questions, each text once, and the histories."""

    experiment: ResolvedExperiment
    histories: tuple[History, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Packets:
    """Frozen packets of some questions, and the questions."""

    frozen: Frozen
    prompt: Prompt
    questions: dict[str, Question]


@dataclass(frozen=True)
class Reading:
    """Cost and outputs of reading, without model loading."""

    seconds: float
    tokens: int  # input and output
    outputs: list[tuple[int, ...]]  # ids, in request order
    environment: dict[str, str]

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def choose(data: Path | None, count: int) -> Chosen:
    """`count` questions, evenly spread, about FactConsolidation's smallest history or a synthetic one of its size."""
    experiment = make_plan("factconsolidation-6k" if data else "demo", data, None).experiment
    if data is None:
        experiment = msgspec.structs.replace(experiment, data=SyntheticData(statements=(455,), questions=count))
    loaded = load(experiment.data, raw_source(experiment, data), None)
    asked = list({question.text: question for question in loaded.questions}.values())
    chosen = [asked[i * len(asked) // count] for i in range(min(count, len(asked)))]
    return Chosen(experiment, loaded.histories, tuple(chosen))


def make_packets(data: Path | None, views: Sequence[str], count: int) -> Packets:
    """Packets of the questions from `choose`."""
    chosen = choose(data, count)
    experiment, extraction = chosen.experiment, extract(chosen.histories, chosen.experiment)
    frozen = freeze(chosen.histories, chosen.questions, extraction, experiment.settings, experiment.prompt, views)
    return Packets(frozen, experiment.prompt, {question.id: question for question in chosen.questions})


def freeze_for(reader: Reader, packets: Packets) -> tuple[Requests, Path]:
    """A reader's requests for these packets, and its model's folder."""
    folder = locate(reader)
    tokenizer = ChatTokenizer.of(reader, folder)
    evidence = {shown.digest: shown for shown in packets.frozen.evidence}
    settings = make_settings(reader, identify(reader, folder), tokenizer)
    return make_requests(settings, tokenizer, packets.prompt, packets.questions, packets.frozen.packets, evidence), folder


def read(reader: Reader, packets: Packets) -> Reading:
    """Read the packets once, after an uncounted batch of two."""
    requests, folder = freeze_for(reader, packets)
    batches = batches_of(requests)
    longest = max(request.length for request in requests.requests)
    made: dict[int, tuple[int, ...]] = {}
    with start_process(reader) as process:
        process.start(EngineStart(settings=requests.settings, model_folder=str(folder), longest=longest), Forbidden(folders=()))
        process.ready()
        process.generate([requests.ids[i] for i in batches[-1][-2:]])
        began = time.perf_counter()
        for batch in batches:
            outputs = process.generate([requests.ids[i] for i in batch])
            made.update(zip(batch, (output.ids for output in outputs), strict=True))
        seconds = time.perf_counter() - began
        environment = process.environment
    tokens = sum(requests.requests[i].length for i in made) + sum(map(len, made.values()))
    return Reading(seconds, tokens, [made.get(i, ()) for i in range(len(requests.requests))], environment)


def reader_of(folder: Path | None, engine: str, **changes: Any) -> Reader:
    """A reader of a local model, or of the embedded one if no folder is given."""
    pin = Pin(folder=str(folder)) if folder else Pin(embedded="smollm2-135m-instruct")
    return Reader(name=f"{folder.name if folder else 'smollm2-135m'}-{engine}", engine=engine, model=pin, **changes)


def compare(readings: dict[str, Reading]) -> list[dict[str, Any]]:
    """One row per reading; ratios and differing outputs are relative to the first."""
    first = next(iter(readings.values()))
    return [
        {
            "setting": name,
            "seconds": reading.seconds,
            "tokens_per_second": reading.rate,
            "ratio": reading.rate / first.rate,
            "output_differences": sum(a != b for a, b in zip(first.outputs, reading.outputs, strict=True)),
        }
        for name, reading in readings.items()
    ]
