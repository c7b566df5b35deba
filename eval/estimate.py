"""What a run would cost, before anything is read: requests, tokens, bytes, downloads, minutes.

Everything but reading is done in a temporary folder and thrown away. Weights are never fetched; a tokenizer is, if the hub can
be reached, so that tokens are counted and not guessed.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from eval.run import Plan, Say, run_all
from offline.experiment import ReaderPlan, ResolvedExperiment
from offline.run_folder import RunFolder
from offline.steps import read_data, read_evidence, read_packets
from readers.pins import find_tokenizer
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
    """What the run would cost, reader by reader."""
    with tempfile.TemporaryDirectory(prefix="coldread-dry-run-") as name:
        run = RunFolder(Path(name) / "run")
        run_all(run, plan, "freeze", say, lambda reader: lambda *counts: None, lambda model: lambda *counts: None)
        readers = {p.reader.name: _estimate(run, plan.experiment, p, rates) for p in plan.experiment.readers}
        size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
        free = shutil.disk_usage(name).free
    return {"views": list(plan.experiment.views), "readers": readers, "bytes": size, "disk_free": free}


def _estimate(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan, rates: Rates) -> dict[str, Any]:
    """Requests and tokens of one reader: counted with its tokenizer if that is to be had, else guessed from characters."""
    reader = plan.reader
    found = find_tokenizer(reader)
    lacking, folder, note = found.lacking, found.folder, found.note
    counted = folder is not None
    if folder is not None:
        requests = freeze_requests(run, experiment, plan, folder, whole=lacking is None)
        distinct, tokens = len(requests.requests), sum(request.length for request in requests.requests)
        if requests.settings.transport is not UNSET:
            counted, tokens, note = False, tokens // 4, "its tokenizer is the server's: four bytes are taken for a token"
    else:
        distinct, tokens = _guess(run, experiment, plan)
    into, out = rates.input or reader.input_rate, rates.output or reader.output_rate
    seconds = tokens / into + distinct * min(ANSWER_TOKENS, reader.output_cap) / out if into and out else None
    return {
        "questions": len(plan.views) * len(read_data(run).questions),
        "requests": distinct,
        "input_tokens": tokens,
        "tokens_counted": counted,
        "output_tokens_at_most": distinct * reader.output_cap,
        "rate": {"input": into, "output": out} if seconds is not None else None,
        "minutes": None if seconds is None else round(seconds / 60, 1),
        "download": None if lacking is None else {"model": lacking.model, "bytes": lacking.size},
        **({"note": note} if note else {}),
    }


def _guess(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan) -> tuple[int, int]:
    evidence = read_evidence(run)
    texts = {question.id: question.text for question in read_data(run).questions}
    inputs = {
        (packet.evidence, texts[packet.question]) for packets in read_packets(run, plan.views).values() for packet in packets
    }
    # Four characters a token: English prose under the usual vocabularies.
    characters = sum(len(message.content) for e, q in inputs for message in messages(experiment.prompt, evidence[e].text, q))
    return len(inputs), characters // 4
