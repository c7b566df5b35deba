"""Verification of a whole run: every file is what was written, and every step was made from the one before it."""

from pathlib import Path

from eval.labels import LEDGER, read_ledger
from offline.canonical import digest_of
from offline.errors import AlteredError, SealLinkError, StateError
from offline.experiment import ResolvedExperiment
from offline.run_folder import RunFolder, verify_folder
from readers.records import Seal
from readers.seal import verify_reads, verify_upstream


def _verify_links(run: RunFolder, experiment: ResolvedExperiment) -> None:
    """AlteredError if a step's recorded inputs are not the steps and the configuration that the run holds."""
    data, extraction, packets = (run.need(step) for step in ("data", "extraction", "packets"))
    labels = run.need("labels")
    expected = (
        ("data", data, {"configuration": digest_of((experiment.data, experiment.limit))}),
        ("labels", labels, {"data": data.digest, "configuration": digest_of((experiment.data, experiment.limit))}),
        (
            "extraction",
            extraction,
            {"data": data.digest, "configuration": digest_of((experiment.frontend, experiment.grammar))},
        ),
        (
            "packets",
            packets,
            {
                "data": data.digest,
                "extraction": extraction.digest,
                "configuration": digest_of((experiment.settings, experiment.prompt, experiment.views)),
            },
        ),
    )
    for step, manifest, inputs in expected:
        for name, digest in inputs.items():
            if manifest.inputs.get(name) != digest:
                raise AlteredError(f"{run.step_folder(step) / 'manifest.json'}: not made from this run's {name}")


def tokenizer_at(reader: str, tokenizers: Path | None) -> Path | None:
    """The folder of a reader's tokenizer files inside `tokenizers`: its subfolder of that name, or the folder itself."""
    if tokenizers is None:
        return None
    return tokenizers / reader if (tokenizers / reader).is_dir() else tokenizers


def verify_run(run: RunFolder, tokenizers: Path | None = None) -> dict[str, Seal]:
    """Check every byte of a run; the seals by reader.

    tokenizers: a folder to take tokenizer files from, for a run published without them.

    AlteredError names the first file that differs, SealLinkError the first one that a seal does not cover, StateError a
    step or seal that is missing.
    """
    if not run.path.is_dir():
        raise StateError(f"{run.path} is no run folder")
    experiment = run.experiment()
    run.verify_top()
    _verify_links(run, experiment)
    ledger = read_ledger(run)
    (labels,) = [entry.sha256 for entry in run.need("labels").files]
    seals: dict[str, Seal] = {}
    planned = [plan.reader.name for plan in experiment.readers]
    reads = run.step_folder("reads")
    for path in sorted(reads.iterdir()) if reads.is_dir() else []:
        if path.name not in planned:
            raise AlteredError(f"{path}: no reader of this run's experiment; remove it")
    for name in planned:
        seal = verify_reads(run, name, tokenizer_at(name, tokenizers))
        verify_upstream(run, seal)
        if seal.labels != labels:
            raise SealLinkError(f"{run.step_folder('labels')}: not the labels that the seal of reader {name!r} committed to")
        if seal.ledger > len(ledger):
            raise SealLinkError(
                f"{run.step_folder('labels') / LEDGER}: {len(ledger)} openings, but the seal of {name!r} saw {seal.ledger}"
            )
        seals[name] = seal
    if run.has("scores"):
        verify_folder(run.step_folder("scores"))
        if not any(opening.command == "score" for opening in ledger):
            raise AlteredError(f"{run.step_folder('labels') / LEDGER}: scores are stored, but no opening by `score`")
    return seals
