"""Reading: requests frozen, a reader process fed with them batch by batch, predictions journalled, sealed at the end."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from offline.canonical import digest_of, encode, file_digest, storage, write_lines, write_record
from offline.errors import AlteredError, ConfigurationError, EngineError, GuardError, ModelError, StateError
from offline.experiment import FactConsolidationData, ReaderPlan, ResolvedExperiment
from offline.memory import Measure
from offline.run_folder import MANIFEST, RunFolder, make_manifest, verify_folder
from offline.steps import fresh, read_data, read_evidence, read_packets
from readers import worker
from readers.engines import EngineStart
from readers.guard import Forbidden
from readers.journal import Journal
from readers.pins import identify, locate
from readers.records import JournalEntry, Output, Prediction, Seal, Settings, Timings
from readers.requests import Requests, make_requests, make_settings, read_requests, write_requests
from readers.seal import JOURNAL, PREDICTIONS, SEAL, TIMINGS, close, count, read_seal, reads_folder, verify_reads
from readers.served import Tokenizer
from readers.tokens import ChatTokenizer, copy_tokenizer, tokenizer_at, tokenizer_digest

_RESUME = "finished batches are kept, `coldread read` resumes after them"

# (batches done, batches in all, requests done, requests in all)
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Commitment:
    """What a seal says of the labels without knowing them: the label file's sha256, and the ledger's length."""

    labels: str
    ledger: int


def freeze_requests(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan, model_folder: Path) -> Requests:
    """Freeze a reader's requests and keep its tokenizer, unless both are up to date; the requests."""
    reader = plan.reader
    model = identify(plan.reader, model_folder)
    base = f"reads/{reader.name}"
    run.step(f"{base}/tokenizer", {"model": model.fingerprint}, lambda folder: copy_tokenizer(model_folder, folder))
    inputs = {
        "packets": fresh(run, experiment, "packets").digest,
        "reader": digest_of(reader),
        "model": model.fingerprint,
        "views": digest_of(plan.views),
    }

    def write(folder: Path) -> None:
        # The kept copy, not the model's folder: what reads here is what replays later.
        tokenizer = ChatTokenizer.of(reader, run.step_folder(f"{base}/tokenizer"))
        data = read_data(run)
        frozen = make_requests(
            make_settings(reader, model, tokenizer),
            tokenizer,
            experiment.prompt,
            {question.id: question for question in data.questions},
            read_packets(run, plan.views),
            read_evidence(run),
        )
        write_requests(folder, frozen)

    run.step(f"{base}/requests", inputs, write)
    return read_requests(run.step_folder(f"{base}/requests"))


def make_measure(run: RunFolder, experiment: ResolvedExperiment, tokenizers: Path | None = None) -> tuple[Measure, str]:
    """What random_disjoint measures a record by, and the name that the packets' manifest records.

    Characters, or tokens of the first configured reader: by the tokenizer in `tokenizers`, the one that a sealed run keeps,
    or the pinned model's.
    """
    if experiment.settings.length_unit == "characters":
        return len, "characters"
    if not experiment.readers:
        raise ConfigurationError("length_unit: tokens needs a reader, whose tokenizer counts; name one or use characters")
    reader = experiment.readers[0].reader
    kept = reads_folder(run, reader.name) / "tokenizer"
    folder = tokenizer_at(reader.name, tokenizers) or (kept if reader.name in run.sealed_readers() else locate(reader))
    count = lru_cache(maxsize=None)(ChatTokenizer.of(reader, folder).count)
    return count, f"tokens of {tokenizer_digest(folder)}"


def plan_batches(requests: Requests) -> list[list[int]]:
    """Indices of the requests to generate, in batches: longest first, ties by digest.

    The plan depends on the frozen requests alone, so a resumed read makes the same batches as an undisturbed one: greedy
    output can depend on what shares a batch.
    """
    wanted = [i for i, request in enumerate(requests.requests) if not request.too_long]
    wanted.sort(key=lambda i: (-requests.requests[i].length, requests.requests[i].digest))
    size = requests.settings.reader.batch_size
    return [wanted[start : start + size] for start in range(0, len(wanted), size)]


class Worker:
    """The parent's end of a reader process."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Any, reader: str) -> None:
        self._process = process
        self._errors = errors
        self._reader = reader

    def send(self, message: worker.ToWorker) -> None:
        """Give the process a message; a dead process is reported by the next `receive`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def receive(self) -> worker.Ready | worker.Done:
        """The process's next answer; EngineError (or the error it reports) if it fails or has died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            code = self._process.wait()
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise EngineError(f"reader {self._reader!r}: the engine process {ended}{self._last_words()}; {_RESUME}")
        answer: worker.FromWorker = msgspec.json.decode(line, type=worker.FromWorker)
        if isinstance(answer, worker.Failed):
            for kind in (ConfigurationError, ModelError, StateError, AlteredError, GuardError):
                if kind.exit_code == answer.exit_code:
                    raise kind(answer.message)
            raise EngineError(f"reader {self._reader!r}: {answer.message}; {_RESUME}")
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f" ({lines[-1][:300]})" if lines else ""


@contextmanager
def start_worker(start: EngineStart, forbidden: Forbidden) -> Iterator[Worker]:
    """Start a reader process; on leaving, its input ends and so does it."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "readers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
        try:
            handle = Worker(process, errors, start.settings.reader.name)
            handle.send(worker.Start(engine=start, forbidden=forbidden))
            yield handle
            assert process.stdin is not None
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # everything is journalled; one that will not end is killed below
                process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()


def forbidden_paths(run: RunFolder, experiment: ResolvedExperiment) -> Forbidden:
    """What this run's reader processes must not open: the run's folder and the raw rows."""
    inputs = run.need("data").inputs
    names: tuple[str, ...] = ()
    if isinstance(experiment.data, FactConsolidationData):
        owner, _, name = experiment.data.repository.rpartition("/")
        # As the hub's client and the datasets library name their cache folders (the latter in snake case).
        snake = re.sub(r"([a-z\d])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)).lower()
        names = (f"datasets--{owner}--{name}", f"{owner}___{snake}", f"{owner}___{name}")
    files = ((int(inputs["source_size"]), inputs["source_sha256"]),) if "source_sha256" in inputs else ()
    return Forbidden(folders=(str(run.path.resolve()),), files=files, names=names)


def _check_outputs(outputs: Sequence[Output], batch: Sequence[int], settings: Settings) -> None:
    name, cap = settings.reader.name, settings.reader.output_cap
    if len(outputs) != len(batch):
        raise EngineError(f"reader {name!r}: the engine gave {len(outputs)} outputs for {len(batch)} inputs")
    # The ids of a served model's answer are bytes, and only the server can count its tokens.
    if settings.transport is msgspec.UNSET and any(len(output.ids) > cap for output in outputs):
        raise EngineError(f"reader {name!r}: the engine exceeded the output cap of {cap} tokens")


def generate(
    requests: Requests, journal: Journal, model_folder: Path, forbidden: Forbidden, progress: Progress
) -> dict[str, JournalEntry]:
    """Generate every batch that the journal lacks; all entries by batch digest."""
    settings = requests.settings
    batches = plan_batches(requests)
    names = [digest_of([requests.requests[i].digest for i in batch]) for batch in batches]
    todo = [(name, batch) for name, batch in zip(names, batches, strict=True) if name not in journal.entries]
    total = sum(map(len, batches))
    done = total - sum(len(batch) for _, batch in todo)
    progress(len(batches) - len(todo), len(batches), done, total)
    if todo:
        start = EngineStart(
            settings=settings,
            model_folder=str(model_folder),
            longest=max(requests.requests[i].length for b in batches for i in b),
        )
        with start_worker(start, forbidden) as process:
            ready = process.receive()
            assert isinstance(ready, worker.Ready)
            for index, (name, batch) in enumerate(todo, len(batches) - len(todo) + 1):
                began = time.monotonic()
                process.send(worker.Batch(inputs=tuple(requests.ids[i] for i in batch)))
                answer = process.receive()
                assert isinstance(answer, worker.Done)
                _check_outputs(answer.outputs, batch, settings)
                seconds = f"{time.monotonic() - began:.3f}"
                journal.append(JournalEntry(batch=name, outputs=answer.outputs, environment=ready.environment, seconds=seconds))
                done += len(batch)
                progress(index, len(batches), done, total)
    return {name: journal.entries[name] for name in names}


def make_predictions(requests: Requests, entries: Mapping[str, JournalEntry], tokenizer: Tokenizer) -> list[Prediction]:
    """One prediction for each distinct request, in request order; what was not generated is a failure, never a gap."""
    outputs: dict[int, Output] = {}
    for batch, entry in zip(plan_batches(requests), entries.values(), strict=True):
        outputs.update(zip(batch, entry.outputs, strict=True))
    too_long = Output(ids=(), finish_reason="error", error="the input exceeds the cap even without evidence")
    predictions = []
    for index, request in enumerate(requests.requests):
        output = outputs.get(index, too_long)
        predictions.append(
            Prediction(
                request=request.digest,
                output_ids=output.ids,
                text=tokenizer.decode(output.ids),
                finish_reason=output.finish_reason,
                error=output.error,
                reported=output.reported,
            )
        )
    return predictions


def read(run: RunFolder, experiment: ResolvedExperiment, plan: ReaderPlan, commitment: Commitment, progress: Progress) -> Seal:
    """Read one reader's packets and seal the predictions; a sealed reader is verified and left alone."""
    folder = reads_folder(run, plan.reader.name)
    if (folder / SEAL).is_file() or (folder / MANIFEST).is_file():
        return _finish(run, plan.reader.name)
    model_folder = locate(plan.reader)
    requests = freeze_requests(run, experiment, plan, model_folder)
    journal = Journal(folder / JOURNAL)
    entries = generate(requests, journal, model_folder, forbidden_paths(run, experiment), progress)
    tokenizer = ChatTokenizer.of(plan.reader, folder / "tokenizer")
    predictions = make_predictions(requests, entries, tokenizer)
    write_lines(folder / PREDICTIONS, predictions)
    seconds = sum(float(entry.seconds) for entry in entries.values())
    write_record(folder / TIMINGS, Timings(seconds=f"{seconds:.3f}", batches=len(entries)))
    seal = Seal(
        reader=plan.reader.name,
        experiment=run.experiment_digest(),
        data=fresh(run, experiment, "data").digest,
        extraction=fresh(run, experiment, "extraction").digest,
        packets=fresh(run, experiment, "packets").digest,
        requests=verify_folder(folder / "requests").digest,
        tokenizer=verify_folder(folder / "tokenizer").digest,
        predictions=file_digest(folder / PREDICTIONS),
        fingerprint=requests.settings.fingerprint,
        environments=_distinct(entry.environment for entry in entries.values()),
        counts=count(requests, predictions),
        labels=commitment.labels,
        ledger=commitment.ledger,
    )
    write_record(folder / SEAL, close(seal))
    return _finish(run, plan.reader.name)


def _distinct(environments: Iterable[dict[str, str]]) -> tuple[dict[str, str], ...]:
    return tuple(msgspec.json.decode(line) for line in sorted({encode(environment) for environment in environments}))


def _finish(run: RunFolder, reader: str) -> Seal:
    """Complete what a kill after sealing left undone, then verify: manifest written, journal removed."""
    folder = reads_folder(run, reader)
    seal = read_seal(run, reader)
    if not (folder / MANIFEST).is_file():
        if file_digest(folder / PREDICTIONS) != seal.predictions:
            raise AlteredError(f"{folder / PREDICTIONS}: differs from what was sealed")
        write_record(folder / MANIFEST, make_manifest(folder, "reads", {"seal": seal.root}, [PREDICTIONS, SEAL, TIMINGS]))
    if (folder / JOURNAL).exists():
        with storage(folder / JOURNAL):
            (folder / JOURNAL).unlink()
    return verify_reads(run, reader)
