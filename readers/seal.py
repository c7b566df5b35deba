"""Seals: close a reader's predictions before any label is opened, and verify them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from offline.canonical import digest_of, read_lines, read_record, self_digest
from offline.errors import AlteredError, SealLinkError, StateError
from offline.run.manifest import MANIFEST
from offline.run.opened import OpenRun
from readers.records import Counts, PipelineCounts, Prediction, Probe, Seal
from readers.requests import Requests

SEAL = "seal.json"
PREDICTIONS = "predictions.jsonl"
TIMINGS = "timings.json"
JOURNAL = "journal.jsonl"
PROBES = "probes.jsonl"
# Folders beside the sealed files, each with its own manifest.
PIPELINES = "pipelines"
PARTS = ("requests", "tokenizer", PIPELINES)


@dataclass(frozen=True)
class PipelineFacts:
    """What a seal states about pipelines; extract/pipelines derives it from the folder that the seal covers."""

    sampled: tuple[str, ...]  # pipelines that sampled
    counts: PipelineCounts
    environments: tuple[dict[str, str], ...]  # of the engines that answered their calls


def close(seal: Seal) -> Seal:
    """Fill in the root digest."""
    return msgspec.structs.replace(seal, root=self_digest(seal, "root"))


def count(requests: Requests, predictions: Sequence[Prediction], served: PipelineFacts | None = None) -> Counts:
    """The counts that a seal states."""
    failed = {prediction.request for prediction in predictions if prediction.finish_reason == "error"}
    return Counts(
        scheduled=len(requests.schedule),
        generated=len(requests.requests),
        failed=sum(scheduled.request in failed for scheduled in requests.schedule),
        cut=sum(scheduled.cut > 0 for scheduled in requests.schedule),
        input_tokens=sum(request.length for request in requests.requests),
        output_tokens=sum(len(prediction.output_ids) for prediction in predictions),
        pipelines=UNSET if served is None else served.counts,
    )


def pipelines_line(counts: PipelineCounts, sampled: Sequence[str]) -> str:
    """A seal's pipeline counts in one line."""
    also = f", sampled: {', '.join(sampled)}" if sampled else ""
    made = f"{counts.calls} calls, {counts.input_tokens} tokens in, {counts.output_tokens} out"
    return f"pipelines: {counts.questions} questions, {counts.failed} failed, {made}{also}"


def reads_folder(run: OpenRun, reader: str) -> Path:
    """The folder of one reader."""
    return run.step_folder(f"reads/{reader}")


def read_seal(run: OpenRun, reader: str) -> Seal:
    """A reader's seal; StateError if it was never sealed, AlteredError if the seal is missing or has a wrong root."""
    path = reads_folder(run, reader) / SEAL
    if not path.is_file() and (path.parent / MANIFEST).is_file():
        raise AlteredError(f"{path} is missing, but {MANIFEST} beside it was made for it; restore it")
    if not path.is_file():
        raise StateError(f"{run.path}: reader {reader!r} is not sealed; run `coldread read {run.path}` first")
    seal = read_record(path, Seal)
    if self_digest(seal, "root") != seal.root:
        raise AlteredError(f"{path}: the root digest does not fit the content; the file was altered")
    return seal


def read_predictions(run: OpenRun, reader: str) -> tuple[Prediction, ...]:
    """A reader's predictions, one per distinct request, in request order."""
    return tuple(read_lines(reads_folder(run, reader) / PREDICTIONS, Prediction))


def read_probes(run: OpenRun, reader: str) -> tuple[Probe, ...]:
    """The probes of a reader's certificate; empty if it has none."""
    path = reads_folder(run, reader) / PROBES
    return tuple(read_lines(path, Probe)) if path.is_file() else ()


def verify_reads(run: OpenRun, reader: str) -> Seal:
    """Check every file of a sealed reader against its manifests and seal; return the seal.

    AlteredError or SealLinkError names the file that differs. `verify_upstream` checks the upstream links.
    """
    folder = reads_folder(run, reader)
    seal = read_seal(run, reader)
    if not (folder / MANIFEST).is_file():
        raise AlteredError(f"{folder / MANIFEST} is missing; restore it, or let `coldread read {run.path}` finish the seal")
    top = run.verify(f"reads/{reader}", beside=PARTS)
    if seal.pipelines is UNSET and (folder / PIPELINES).exists():
        raise SealLinkError(f"{folder / PIPELINES}: the seal of {reader!r} covers no pipelines; remove it")
    covered = {"requests": seal.requests, "tokenizer": seal.tokenizer, PIPELINES: seal.pipelines}
    for name, expected in covered.items():
        if expected is not UNSET and run.verify(f"reads/{reader}/{name}").digest != expected:
            raise SealLinkError(f"{folder / name / MANIFEST}: not the {name} that the seal of {reader!r} covers")
    if {file.name: file.sha256 for file in top.files}.get(PREDICTIONS) != seal.predictions:
        raise SealLinkError(f"{folder / PREDICTIONS}: not the predictions that the seal of {reader!r} covers")
    if seal.certificate and digest_of(list(read_probes(run, reader))) != seal.certificate.probes:
        raise SealLinkError(f"{folder / PROBES}: not the probes that the seal of {reader!r} covers")
    if top.inputs != {"seal": seal.root}:
        raise SealLinkError(f"{folder / MANIFEST}: not made for the seal of {reader!r}")
    return seal


def verify_upstream(run: OpenRun, seal: Seal) -> None:
    """SealLinkError unless the seal covers the run's experiment, data, extraction and packets."""
    found = {
        "experiment": run.experiment_digest(),
        **{s: run.need(s).digest for s in ("data", "extraction", "packets")},
    }
    for name, digest in found.items():
        if getattr(seal, name) != digest:
            raise SealLinkError(f"{run.path / name}: not what the seal of reader {seal.reader!r} covers")
