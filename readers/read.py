"""Reading: freeze requests, generate batch by batch in a reader process, journal the outputs, seal the predictions."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from offline.canonical import digest_of, encode, file_digest, storage, write_lines, write_record
from offline.config.experiment import ReaderPlan
from offline.errors import AlteredError, ConfigurationError, EngineError, StateError
from offline.memory import Measure
from offline.observer import SILENT, Observer, Task
from offline.run.manifest import MANIFEST, make_manifest
from offline.run.opened import OpenRun
from readers.certificate import SAMPLE, certify, kept_probes, probe, probe_run
from readers.engines import EngineStart
from readers.journal import Journal
from readers.models.pins import fingerprint, identify, locate, tokenizer_of
from readers.models.served import Tokenizer
from readers.process.parent import forbidden_paths
from readers.process.pool import Engines, Job, share
from readers.records import Certificate, JournalEntry, Model, Output, Prediction, Seal, Timings, predicted
from readers.requests import Requests, batches_of, make_requests, make_settings, read_requests, write_requests
from readers.seal import (
    JOURNAL,
    PIPELINES,
    PREDICTIONS,
    PROBES,
    SEAL,
    TIMINGS,
    PipelineFacts,
    close,
    count,
    read_probes,
    read_seal,
    reads_folder,
)
from readers.sealed import sealed_reader
from readers.tokens.chat import ChatTokenizer, copy_tokenizer, tokenizer_digest


@dataclass(frozen=True)
class Commitment:
    """What a seal states about the labels without opening them."""

    labels: str  # sha256 of the label file
    ledger: int  # its length: label openings so far


def keep_tokenizer(run: OpenRun, reader: str, model: Model, model_folder: Path) -> None:
    """Copy a reader's tokenizer into the run, unless it is up to date."""
    run.step(f"reads/{reader}/tokenizer", {"model": model.fingerprint}, lambda folder: copy_tokenizer(model_folder, folder))


def freeze_requests(run: OpenRun, plan: ReaderPlan, model_folder: Path, *, whole: bool = True) -> Requests:
    """Freeze a reader's requests and keep its tokenizer, unless both are up to date; return the requests.

    whole: False for a folder without weights, which is enough to count tokens; its fingerprint is not checked.
    """
    reader = plan.reader
    model = identify(reader, model_folder) if whole else fingerprint(model_folder)
    base = f"reads/{reader.name}"
    keep_tokenizer(run, reader.name, model, model_folder)
    inputs = {
        "packets": run.fresh("packets").digest,
        "reader": digest_of(reader),
        "model": model.fingerprint,
        "views": digest_of(plan.views),
    }

    def write(folder: Path) -> None:
        # The run's copy, not the model's folder: replay will use the same.
        tokenizer = ChatTokenizer.of(reader, run.step_folder(f"{base}/tokenizer"))
        frozen = make_requests(
            make_settings(reader, model, tokenizer),
            tokenizer,
            run.experiment.prompt,
            run.data.by_id,
            run.packets(plan.views),
            run.evidence,
        )
        write_requests(folder, frozen)

    run.step(f"{base}/requests", inputs, write)
    return read_requests(run.step_folder(f"{base}/requests"))


def make_measure(run: OpenRun) -> tuple[Measure, str]:
    """The record measure of `random_disjoint`, and its name for the packets' manifest.

    Characters, or tokens of the first configured reader, counted by the tokenizer that a sealed run keeps (or is given), else
    by the pinned model's.
    """
    if run.experiment.settings.length_unit == "characters":
        return len, "characters"
    if not run.experiment.readers:
        raise ConfigurationError("length_unit: tokens needs a reader, whose tokenizer counts; name one or use characters")
    reader = run.experiment.readers[0].reader
    kept = run.files_of(f"reads/{reader.name}/tokenizer")
    folder = kept if reader.name in run.sealed_readers() else tokenizer_of(reader)
    count = lru_cache(maxsize=None)(ChatTokenizer.of(reader, folder).count)
    return count, f"tokens of {tokenizer_digest(folder)}"


def engines_for(run: OpenRun, requests: Requests, model_folder: Path) -> Engines:
    """What starts the engine of these frozen requests."""
    longest = max((request.length for request in requests.requests if not request.too_long), default=1)
    start = EngineStart(settings=requests.settings, model_folder=str(model_folder), longest=longest)
    return Engines(start, forbidden_paths(run))


def generate(requests: Requests, journal: Journal, engines: Engines, probes: Path, task: Task) -> dict[str, JournalEntry]:
    """Generate every batch that the journal lacks, with probes before and after; return all entries by batch digest."""
    reader = requests.settings.reader
    batches = batches_of(requests)
    names = [digest_of([requests.requests[i].digest for i in batch]) for batch in batches]
    todo = [(name, batch) for name, batch in zip(names, batches, strict=True) if name not in journal.entries]
    total = sum(map(len, batches))
    done = total - sum(len(batch) for _, batch in todo)
    size = SAMPLE if reader.probe is UNSET else reader.probe
    kept = kept_probes(probes, requests)
    # With batches left to do, old `run` probes are void: an earlier plan may have made other batches.
    before = [probe for probe in kept if probe.condition != "run"]
    unfinished = bool(size and batches) and (bool(todo) or before == kept)
    task.at(done, total, "starting its engine" if todo or unfinished else "")
    if todo or unfinished:
        with engines.run(max(1, min(reader.data_parallel or 1, len(todo)))) as processes:
            if unfinished and not before:
                task.at(done, total, "probing its engine")
                before = probe(processes[0], requests, size)
                write_lines(probes, before)
            task.at(done, total)
            for entry in share(processes, [Job(name, [requests.ids[i] for i in batch]) for name, batch in todo]):
                journal.append(entry)
                done += len(entry.outputs)
                task.at(done, total)
            if unfinished:
                made = _outputs(batches, [journal.entries[name] for name in names])
                write_lines(probes, [*before, *probe_run(processes[0], requests, before, made)])
    return {name: journal.entries[name] for name in names}


def _outputs(batches: Sequence[Sequence[int]], entries: Iterable[JournalEntry]) -> dict[int, Output]:
    """Outputs by request index."""
    outputs: dict[int, Output] = {}
    for batch, entry in zip(batches, entries, strict=True):
        outputs.update(zip(batch, entry.outputs, strict=True))
    return outputs


def make_predictions(requests: Requests, entries: Mapping[str, JournalEntry], tokenizer: Tokenizer) -> list[Prediction]:
    """One prediction per distinct request, in request order; a request without output counts as a failure."""
    outputs = _outputs(batches_of(requests), entries.values())
    too_long = Output(ids=(), finish_reason="error", error="the input exceeds the cap even without evidence")
    predictions = []
    for index, request in enumerate(requests.requests):
        output = outputs.get(index, too_long)
        predictions.append(predicted(request.digest, output, tokenizer.decode(output.ids)))
    return predictions


@contextmanager
def _resumable() -> Iterator[None]:
    """Add to an engine's error that the journal is kept and the read resumes."""
    try:
        yield
    except EngineError as error:
        raise EngineError(f"{error}; finished batches are kept, `coldread read` resumes after them") from error


def is_sealed(run: OpenRun, reader: str) -> bool:
    """True once a seal exists, even if a kill interrupted the clean-up after it. A sealed reader is never extended."""
    folder = reads_folder(run, reader)
    return (folder / SEAL).is_file() or (folder / MANIFEST).is_file()


def read(
    run: OpenRun,
    plan: ReaderPlan,
    commitment: Commitment,
    served: PipelineFacts | None = None,
    observer: Observer = SILENT,
) -> Seal:
    """Read one reader's packets and seal the predictions; a sealed reader is only verified.

    served: what its pipelines did; the seal covers them too. StateError if the plan names pipelines that have not run.
    """
    folder = reads_folder(run, plan.reader.name)
    if is_sealed(run, plan.reader.name):
        return _finish(run, plan.reader.name)
    pipelines = _pipelines(run, plan, served)
    model_folder = locate(plan.reader)
    requests = freeze_requests(run, plan, model_folder)
    journal = Journal(folder / JOURNAL)
    engines = engines_for(run, requests, model_folder)
    with _resumable():
        task = observer.task("read", plan.reader.name, "requests")
        entries = generate(requests, journal, engines, folder / PROBES, task)
    tokenizer = ChatTokenizer.of(plan.reader, folder / "tokenizer")
    predictions = make_predictions(requests, entries, tokenizer)
    write_lines(folder / PREDICTIONS, predictions)
    seconds = sum(float(entry.seconds) for entry in entries.values())
    write_record(folder / TIMINGS, Timings(seconds=f"{seconds:.3f}", batches=len(entries)))
    answered = served.environments if served else ()
    environments = _distinct((*(entry.environment for entry in entries.values()), *answered))
    probes = read_probes(run, plan.reader.name)
    seal = Seal(
        reader=plan.reader.name,
        experiment=run.experiment_digest(),
        data=run.fresh("data").digest,
        extraction=run.fresh("extraction").digest,
        packets=run.fresh("packets").digest,
        requests=run.need(f"reads/{plan.reader.name}/requests").digest,
        tokenizer=run.need(f"reads/{plan.reader.name}/tokenizer").digest,
        predictions=file_digest(folder / PREDICTIONS),
        fingerprint=requests.settings.fingerprint,
        environments=environments,
        counts=count(requests, predictions, served),
        labels=commitment.labels,
        ledger=commitment.ledger,
        certificate=certify(probes, environments) if probes else UNSET,
        pipelines=pipelines,
        sampled=served.sampled or UNSET if served else UNSET,
    )
    write_record(folder / SEAL, close(seal))
    return _finish(run, plan.reader.name)


def _pipelines(run: OpenRun, plan: ReaderPlan, served: PipelineFacts | None) -> str | UnsetType:
    """The digest of a reader's pipelines, UNSET if it has none; StateError if they have not run."""
    step = f"reads/{plan.reader.name}/{PIPELINES}"
    if plan.pipelines is UNSET:
        # Left by an earlier experiment of this unsealed run.
        with storage(run.step_folder(step)):
            shutil.rmtree(run.step_folder(step), ignore_errors=True)
        return UNSET
    if served is None or not run.has(step):
        raise StateError(
            f"{run.path}: the pipelines of reader {plan.reader.name!r} have not run; run `coldread read {run.path}` first"
        )
    return run.need(step).digest


def probe_reader(run: OpenRun, plan: ReaderPlan, size: int) -> tuple[Certificate, dict[str, str]]:
    """Certificate of a fresh sample, compared with sealed predictions if there are any, and the engine's environment.

    Freezes the requests if necessary; stores nothing else.
    """
    model_folder = locate(plan.reader)
    requests = freeze_requests(run, plan, model_folder)
    if not requests.requests:
        raise StateError(f"{run.path}: reader {plan.reader.name!r} reads no view, and probes are made of requests of views")
    with engines_for(run, requests, model_folder).run() as (process,):
        probes = probe(process, requests, size)
        if plan.reader.name in run.sealed_readers():
            sealed = sealed_reader(run, plan.reader.name).by_request
            outputs = {
                i: Output(ids=sealed[request.digest].output_ids, finish_reason=sealed[request.digest].finish_reason)
                for i, request in enumerate(requests.requests)
            }
            probes += probe_run(process, requests, probes, outputs)
        return certify(probes, [process.environment]), process.environment


def _distinct(environments: Iterable[dict[str, str]]) -> tuple[dict[str, str], ...]:
    return tuple(msgspec.json.decode(line) for line in sorted({encode(environment) for environment in environments}))


def _finish(run: OpenRun, reader: str) -> Seal:
    """Finish what a kill after sealing interrupted (manifest, journal removal), then verify."""
    folder = reads_folder(run, reader)
    seal = read_seal(run, reader)
    if not (folder / MANIFEST).is_file():
        if file_digest(folder / PREDICTIONS) != seal.predictions:
            raise AlteredError(f"{folder / PREDICTIONS}: differs from what was sealed")
        files = [PREDICTIONS, *([PROBES] if (folder / PROBES).is_file() else []), SEAL, TIMINGS]
        write_record(folder / MANIFEST, make_manifest(folder, "reads", {"seal": seal.root}, files))
    if (folder / JOURNAL).exists():
        with storage(folder / JOURNAL):
            (folder / JOURNAL).unlink()
    run.forget(f"reads/{reader}")
    return sealed_reader(run, reader).seal
