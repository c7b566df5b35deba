"""Verification of a whole run: every file is what was written, and every step was made from the one before it."""

from eval.labels import LEDGER, commitment, read_ledger
from extract.pipelines.step import read_traces
from offline.canonical import read_lines
from offline.config.experiment import ResolvedExperiment
from offline.errors import AlteredError, SealLinkError, StateError
from offline.run.folder import MANIFEST, RunFolder, verify_folder
from offline.run.steps import MODEL_STEPS, check_due, foreign_input, read_data, steps_before
from readers.records import Scheduled, Seal
from readers.seal import SEAL, verify_reads, verify_upstream


def _verify_links(run: RunFolder, experiment: ResolvedExperiment) -> None:
    """AlteredError if a step's recorded inputs are not the steps and the configuration that the run holds."""
    for step in ("labels", *steps_before(experiment, "packets"), "packets"):
        if name := foreign_input(run, experiment, step, run.need(step)):
            raise AlteredError(f"{run.step_folder(step) / MANIFEST}: not made from this run's {name}")


def verify_run(run: RunFolder) -> dict[str, Seal]:
    """Check every byte of a run; the seals by reader.

    AlteredError names the first file that differs, or a question that a view or a pipeline of a reader lacks; SealLinkError
    the first file that a seal does not cover, StateError a step or seal that is missing.
    """
    if not run.path.is_dir():
        raise StateError(f"{run.path} is no run folder")
    experiment = run.experiment()
    run.verify_top()
    _verify_links(run, experiment)
    for step in {*MODEL_STEPS} - {*steps_before(experiment, "packets")}:
        if run.has(step):
            raise AlteredError(f"{run.step_folder(step)}: no view of this run's experiment needs it; remove it")
    ledger = read_ledger(run)
    labels = commitment(run).labels
    seals: dict[str, Seal] = {}
    planned = {plan.reader.name: plan for plan in experiment.readers}
    reads = run.step_folder("reads")
    for path in sorted(reads.iterdir()) if reads.is_dir() else []:
        if path.name not in planned:
            raise AlteredError(f"{path}: no reader of this run's experiment; remove it")
    for name, plan in planned.items():
        seal = verify_reads(run, name)
        verify_upstream(run, seal)
        if bool(seal.pipelines) != bool(plan.pipelines):
            raise SealLinkError(f"{reads / name / SEAL}: it does not cover the pipelines that the experiment names, or others")
        if seal.labels != labels:
            raise SealLinkError(f"{run.step_folder('labels')}: not the labels that the seal of reader {name!r} committed to")
        if seal.ledger > len(ledger):
            raise SealLinkError(
                f"{run.step_folder('labels') / LEDGER}: {len(ledger)} openings, but the seal of {name!r} saw {seal.ledger}"
            )
        schedule = reads / name / "requests" / "schedule.jsonl"
        scheduled = [(line.view, line.question) for line in read_lines(schedule, Scheduled)]
        check_due(schedule, plan.views, read_data(run).questions, scheduled)
        if plan.pipelines:
            read_traces(run, name)
        seals[name] = seal
    if run.has("scores"):
        verify_folder(run.step_folder("scores"))
        if not any(opening.command == "score" for opening in ledger):
            raise AlteredError(f"{run.step_folder('labels') / LEDGER}: scores are stored, but no opening by `score`")
    return seals
