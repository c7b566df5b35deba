"""What a run would cost, before anything is read: requests, tokens, bytes, downloads, minutes.

Everything but reading is done in a temporary folder and thrown away. Weights are never fetched; a tokenizer is, if the hub can
be reached, so that tokens are counted and not guessed.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from eval.run import Plan, Say, Watch, run_all
from offline.errors import ModelError
from offline.experiment import ReaderPlan, ResolvedExperiment, RetrievalSettings
from offline.models import Encoder, Reranker
from offline.run_folder import RunFolder
from offline.steps import ModelWork, compiled, model_work, read_data, read_evidence, read_packets
from offline.views.retrieval import lexical
from readers.pins import find_tokenizer, locate, missing
from readers.read import freeze_requests
from readers.tokens import messages

# Tokens of a usual answer, for the estimate of minutes: the embedded reader gives 22 on the demo.
ANSWER_TOKENS = 24


@dataclass(frozen=True)
class Rates:
    """Tokens a second to reckon with, in and out; 0 = what the reader's file says."""

    input: int = 0
    output: int = 0


def dry_run(plan: Plan, say: Say, rates: Rates) -> dict[str, Any]:
    """What the run would cost, reader by reader.

    A view that ranks by a model is reckoned as the one that BM25 gives in its place, of about the same length.
    """
    wanted = plan.experiment
    numbers, work = wanted.retrieval or RetrievalSettings(), model_work(wanted)
    # Four characters a token, as everywhere here.
    stand_ins = {view: lexical(view, 4 * numbers.chunk_tokens) for view in wanted.views}
    experiment = replace(
        wanted,
        views=tuple(dict.fromkeys(stand_ins.values())),
        readers=tuple(replace(p, views=tuple(dict.fromkeys(stand_ins[view] for view in p.views))) for p in wanted.readers),
    )
    with tempfile.TemporaryDirectory(prefix="coldread-dry-run-") as name:
        run = RunFolder(Path(name) / "run")
        run_all(run, Plan(experiment, plan.data), "freeze", say, Watch(_silent, _silent, _silent))
        readers = {}
        for given, plain in zip(wanted.readers, experiment.readers, strict=True):
            readers[given.reader.name] = _estimate(run, experiment, plain, [stand_ins[view] for view in given.views], rates)
            readers[given.reader.name]["tokens_counted"] &= all(stand_ins[view] == view for view in given.views)
        encoding = _encoding(run, wanted, numbers, work)
        size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
        free = shutil.disk_usage(name).free
    return {
        "views": list(wanted.views),
        "readers": readers,
        "bytes": size,
        "disk_free": free,
        **({"encode": encoding} if encoding else {}),
        **({"stand_ins": {v: s for v, s in stand_ins.items() if v != s}} if encoding else {}),
    }


def _silent(model: str) -> Callable[..., None]:
    return lambda *counts: None


def _encoding(run: RunFolder, experiment: ResolvedExperiment, numbers: RetrievalSettings, work: ModelWork) -> dict[str, Any]:
    """What retrieval models would do: texts to encode and pairs to score (about, where a tokenizer cuts chunks), downloads."""
    texts, pairs = set(), 0
    lengths = 4 * numbers.chunk_tokens
    for memory, about in compiled(run, experiment):
        sizes = {}
        for unit in {*work.units, *(unit for unit, _ in work.stages)}:
            found = memory.corpus(f"chunk{lengths}" if unit == "chunk" else unit).passages
            sizes[unit] = len(found)
            texts |= {passage.text for passage in found} if unit in work.units else set()
        asked = len({question.text for question in about})
        pairs += sum(asked * min(numbers.candidates, sizes[unit]) for unit, _ in work.stages)
    questions = len({question.text for question in read_data(run).questions})
    models: tuple[tuple[Encoder | Reranker | None, dict[str, int]], ...] = (
        (numbers.encoder if work.units else None, {"passages": len(texts), "questions": questions}),
        (numbers.reranker if work.stages else None, {"pairs": pairs}),
    )
    return {model.name: {**counts, "download": _download(model)} for model, counts in models if model is not None}


def _download(model: Encoder | Reranker) -> dict[str, Any] | None:
    try:
        locate(model, fetch=False)
        return None
    except ModelError:
        lacking = missing(model)
        return None if lacking is None else {"model": lacking.model, "bytes": lacking.size}


def _estimate(
    run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan, views: Sequence[str], rates: Rates
) -> dict[str, Any]:
    """Requests and tokens of one reader: counted with its tokenizer if that is to be had, else guessed from characters.

    views: what stands for each of its views, one as often as it stands for another.
    """
    reader = plan.reader
    found = find_tokenizer(reader)
    lacking, folder, note = found.lacking, found.folder, found.note
    counted = folder is not None
    inputs: Mapping[str, Mapping[Any, int]]
    if folder is not None:
        requests = freeze_requests(run, experiment, plan, folder, whole=lacking is None)
        of = {request.digest: request.length for request in requests.requests}
        inputs = {view: {s.request: of[s.request] for s in requests.schedule if s.view == view} for view in plan.views}
        if requests.settings.transport is not UNSET:
            counted, note = False, "its tokenizer is the server's: four bytes are taken for a token"
            inputs = {view: {name: size // 4 for name, size in each.items()} for view, each in inputs.items()}
    else:
        inputs = _guess(run, experiment, plan)
    # A request that views share is read once; views that a stand-in stands for share none with it.
    again = [inputs[view] for number, view in enumerate(views) if view in views[:number]]
    shared = {name: size for each in inputs.values() for name, size in each.items()}
    sizes = [size for each in (shared, *again) for size in each.values()]
    distinct, tokens = len(sizes), sum(sizes)
    into, out = rates.input or reader.input_rate, rates.output or reader.output_rate
    seconds = tokens / into + distinct * min(ANSWER_TOKENS, reader.output_cap) / out if into and out else None
    return {
        "questions": len(views) * len(read_data(run).questions),
        "requests": distinct,
        "input_tokens": tokens,
        "tokens_counted": counted,
        "output_tokens_at_most": distinct * reader.output_cap,
        "rate": {"input": into, "output": out} if seconds is not None else None,
        "minutes": None if seconds is None else round(seconds / 60, 1),
        "download": None if lacking is None else {"model": lacking.model, "bytes": lacking.size},
        **({"note": note} if note else {}),
    }


def _guess(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan) -> dict[str, dict[tuple[str, str], int]]:
    """For each view its distinct inputs, and their tokens: four characters each, English prose under the usual vocabularies."""
    evidence = read_evidence(run)
    texts = {question.id: question.text for question in read_data(run).questions}

    def tokens(shown: str, question: str) -> int:
        return sum(len(message.content) for message in messages(experiment.prompt, evidence[shown].text, question)) // 4

    inputs = {
        view: {(packet.evidence, texts[packet.question]) for packet in packets}
        for view, packets in read_packets(run, plan.views).items()
    }
    return {view: {each: tokens(*each) for each in found} for view, found in inputs.items()}
