"""A whole run, step by step: load, extract, freeze, read, score. Each step is skipped when it is up to date."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.labels import commitment, labels_step
from eval.score import score_run
from extract.steps import extract_step
from offline.canonical import digest_of
from offline.configuration import find_config, load_yaml
from offline.errors import ConfigurationError, ModelError, StateError
from offline.experiment import Experiment, ReaderPlan, ResolvedExperiment, resolve
from offline.run_folder import RunFolder
from offline.steps import freeze_step, load_step, raw_source, read_data, read_evidence, read_packets
from readers.pins import check_pin, locate
from readers.read import Progress, freeze_requests, make_measure, read
from readers.seal import SEAL, reads_folder
from readers.tokens import messages

STEPS = ("load", "extract", "freeze", "read", "score")

# Tokens of a usual answer, for the estimate of minutes: the embedded reader gives 22 on the demo.
_ANSWER_TOKENS = 24

# (step, what happened)
Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Plan:
    """An experiment as asked for on the command line."""

    experiment: ResolvedExperiment
    data: Path | None


def make_plan(name: str, data: Path | None, limit: int | None) -> Plan:
    """Resolve an experiment given by path or shipped name; ConfigurationError or ModelError for what cannot be run."""
    path = find_config("experiments", name)
    written = load_yaml(path, Experiment)
    given = getattr(written.data, "path", None)
    if data is None and given is not None:
        # A relative path in a file means relative to that file.
        data = path.parent / Path(given).expanduser()
    experiment = resolve(written, limit, str(path))
    for plan in experiment.readers:
        check_pin(plan.reader)
    return Plan(experiment, data)


def default_out(experiment: ResolvedExperiment) -> Path:
    """runs/NAME, and runs/NAME-limitN for a limited run: another limit is another run."""
    return Path("runs") / (experiment.name + (f"-limit{experiment.limit}" if experiment.limit else ""))


def _done(written: bool) -> str:
    return "written" if written else "up to date"


def load(run: RunFolder, experiment: ResolvedExperiment, data: Path | None, say: Say) -> None:
    """Histories, questions and, apart from them, labels."""
    have = all(run.has(step) for step in ("data", "labels"))
    if have and data is None and run.need("data").inputs["configuration"] == digest_of((experiment.data, experiment.limit)):
        run.need("labels")
        say("load", "up to date")
        return
    source = raw_source(experiment, data)
    written = load_step(run, experiment, source)
    written = labels_step(run, experiment, source) or written
    loaded = read_data(run)
    statements = sum(len(history.statements) for history in loaded.histories)
    say(
        "load",
        f"{_done(written)}: {len(loaded.histories)} histories, {statements} statements, {len(loaded.questions)} questions",
    )


def extract(run: RunFolder, experiment: ResolvedExperiment, say: Say) -> None:
    """Statements to triples."""
    written, counts = extract_step(run, experiment)
    say("extract", f"{_done(written)}: " + ", ".join(f"{count} {status}" for status, count in sorted(counts.items())))


def freeze(run: RunFolder, experiment: ResolvedExperiment, say: Say) -> None:
    """Packets of every view."""
    measure, name = make_measure(run, experiment)
    written = freeze_step(run, experiment, measure, name)
    say("freeze", f"{_done(written)}: {len(experiment.views)} views, {len(read_data(run).questions)} questions")


def read_all(
    run: RunFolder, experiment: ResolvedExperiment, only: str | None, say: Say, progress: Callable[[str], Progress]
) -> None:
    """Read and seal every reader (or the one named)."""
    plans = [plan for plan in experiment.readers if only in (None, plan.reader.name)]
    if not plans:
        names = ", ".join(plan.reader.name for plan in experiment.readers) or "none"
        raise StateError(f"{run.path} has no reader {only!r}; its experiment names: {names}")
    for plan in plans:
        before = (reads_folder(run, plan.reader.name) / SEAL).is_file()
        seal = read(run, experiment, plan, commitment(run), progress(plan.reader.name))
        say(
            "read",
            f"{plan.reader.name}: {'up to date' if before else 'sealed'}, {seal.scheduled} questions through "
            f"{seal.generated} requests, {seal.failed} failed, seal {seal.root}",
        )


def run_all(run: RunFolder, plan: Plan, until: str, say: Say, progress: Callable[[str], Progress]) -> None:
    """Everything up to and including a step."""
    if until not in STEPS:
        raise ConfigurationError(f"--until {until!r}: the steps are {', '.join(STEPS)}")
    last = STEPS.index(until)
    experiment = plan.experiment
    run.create(experiment)
    with run.lock():
        load(run, experiment, plan.data, say)
        if last >= 1:
            extract(run, experiment, say)
        if last >= 2:
            freeze(run, experiment, say)
        if last >= 3 and experiment.readers:
            read_all(run, experiment, None, say, progress)
        if last >= 4 and experiment.readers:
            say("score", _done(score_run(run, experiment)))


def _estimate(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan) -> dict[str, Any]:
    """Requests and tokens of one reader: counted with its tokenizer if the model is here, else guessed from characters."""
    reader = plan.reader
    scheduled = len(plan.views) * len(read_data(run).questions)
    try:
        requests = freeze_requests(run, experiment, plan, locate(reader))
        counted, distinct = True, len(requests.requests)
        tokens = sum(request.length for request in requests.requests)
    except ModelError as error:
        evidence = read_evidence(run)
        texts = {question.id: question.text for question in read_data(run).questions}
        inputs = {
            (packet.evidence, texts[packet.question])
            for packets in read_packets(run, plan.views).values()
            for packet in packets
        }
        counted, distinct = False, len(inputs)
        # Four characters a token: English prose under the usual vocabularies.
        characters = sum(
            len(message.content) for e, q in inputs for message in messages(experiment.prompt, evidence[e].text, q)
        )
        tokens, note = characters // 4, str(error)
    minutes = None
    if reader.input_rate and reader.output_rate:
        output = distinct * min(_ANSWER_TOKENS, reader.output_cap)
        minutes = round((tokens / reader.input_rate + output / reader.output_rate) / 60, 1)
    return {
        "questions": scheduled,
        "requests": distinct,
        "input_tokens": tokens,
        "tokens_counted": counted,
        "output_tokens_at_most": distinct * reader.output_cap,
        "minutes": minutes,
        **({} if counted else {"note": note}),
    }


def dry_run(plan: Plan, say: Say) -> dict[str, Any]:
    """What a run would cost: everything but reading is done in a temporary folder and thrown away."""
    with tempfile.TemporaryDirectory(prefix="coldread-dry-run-") as name:
        run = RunFolder(Path(name) / "run")
        run_all(run, plan, "freeze", say, lambda reader: lambda *counts: None)
        readers = {p.reader.name: _estimate(run, plan.experiment, p) for p in plan.experiment.readers}
        size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
        free = shutil.disk_usage(name).free
    return {"views": list(plan.experiment.views), "readers": readers, "bytes": size, "disk_free": free}
