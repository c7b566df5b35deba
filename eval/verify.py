"""Verification of a whole run: files are unaltered, and every step was made from the one before it."""

from collections.abc import Mapping

from eval.labels import LEDGER, commitment, read_ledger
from extract.pipelines.step import read_traces
from offline.config.experiment import ReaderPlan
from offline.errors import AlteredError, SealLinkError, StateError
from offline.run.manifest import MANIFEST
from offline.run.opened import OpenRun
from offline.run.steps import MODEL_STEPS, check_due, steps_before
from readers.records import Seal
from readers.requests import SCHEDULE
from readers.seal import SEAL, verify_upstream
from readers.sealed import sealed_reader


def _verify_links(run: OpenRun) -> None:
    """AlteredError if a step's recorded inputs differ from the run's steps and configuration."""
    for step in ("labels", *steps_before(run.experiment, "packets"), "packets"):
        if name := run.foreign_input(step):
            raise AlteredError(f"{run.step_folder(step) / MANIFEST}: not made from this run's {name}")


def verify_run(run: OpenRun) -> Mapping[str, Seal]:
    """Check every byte of a run, once per opened run, and return the seals by reader.

    AlteredError names the first file that differs, or a question missing from a reader's view or pipeline; SealLinkError the
    first file that a seal does not cover, StateError a missing step or seal.
    """
    return run.once("scores", "verified", lambda: _verify(run))


def _verify(run: OpenRun) -> Mapping[str, Seal]:
    if not run.path.is_dir():
        raise StateError(f"{run.path} is no run folder")
    experiment = run.experiment
    run.verify_top()
    _verify_links(run)
    for step in {*MODEL_STEPS} - {*steps_before(experiment, "packets")}:
        if run.has(step):
            raise AlteredError(f"{run.step_folder(step)}: no view of this run's experiment needs it; remove it")
    ledger, labels = read_ledger(run), commitment(run).labels
    reads = run.step_folder("reads")
    for path in sorted(reads.iterdir()) if reads.is_dir() else []:
        if path.name not in {plan.reader.name for plan in experiment.readers}:
            raise AlteredError(f"{path}: no reader of this run's experiment; remove it")
    seals = {plan.reader.name: _verify_reader(run, plan, labels, len(ledger)) for plan in experiment.readers}
    if run.has("scores"):
        run.need("scores")
        if not any(opening.command == "score" for opening in ledger):
            raise AlteredError(f"{run.step_folder('labels') / LEDGER}: scores are stored, but no opening by `score`")
    return seals


def _verify_reader(run: OpenRun, plan: ReaderPlan, labels: str, openings: int) -> Seal:
    """One reader's seal. labels: sha256 of the label file. openings: the ledger's length."""
    name = plan.reader.name
    reader = sealed_reader(run, name)
    seal = reader.seal
    verify_upstream(run, seal)
    if bool(seal.pipelines) != bool(plan.pipelines):
        raise SealLinkError(f"{reader.folder / SEAL}: it does not cover the pipelines that the experiment names, or others")
    if seal.labels != labels:
        raise SealLinkError(f"{run.step_folder('labels')}: not the labels that the seal of reader {name!r} committed to")
    if seal.ledger > openings:
        raise SealLinkError(
            f"{run.step_folder('labels') / LEDGER}: {openings} openings, but the seal of {name!r} saw {seal.ledger}"
        )
    scheduled = [(line.view, line.question) for line in reader.requests.schedule]
    check_due(reader.folder / "requests" / SCHEDULE, plan.views, run.data.questions, scheduled)
    if plan.pipelines:
        read_traces(run, name)
    return seal
