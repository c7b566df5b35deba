"""The extraction step of a run."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from extract.frontends import check_frontend, extract, extract_by_model
from extract.frontends.records import CatalogueName, Draft, Extracted, InducedForm
from offline.asking import Extractor
from offline.canonical import Record, read_lines, read_record, write_lines, write_record
from offline.errors import AlteredError, StorageError
from offline.experiment import ResolvedExperiment
from offline.run_folder import SIDE, RunFolder
from offline.steps import EXTRACTION_FILES, read_data, read_extraction, upstream, write_extraction
from readers.calls import TRANSCRIPT_FILES, read_transcript, write_transcript
from readers.live import Live, Progress, live_caller
from readers.pins import model_for_step
from readers.process import forbidden_paths
from readers.records import Settings, StageCounts
from readers.requests import tokenizer_names
from readers.tokens import copy_tokenizer

DRAFTS, NAMES, FORMS, ENVIRONMENTS = "drafts.jsonl", "names.jsonl", "forms.jsonl", "environments.json"
# Folders of an extraction by a model: its calls, and the tokenizer that made their ids.
CALLS, TOKENIZER = "calls", "tokenizer"


class Spent(Record, frozen=True):
    """What a step that asks a model took, beside its manifest.

    seconds: generating, by stage, decimals; a cached call counts as it took when it was made. cached, generated: calls.
    """

    seconds: dict[str, Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]{3}\Z")]]
    cached: int
    generated: int


@dataclass(frozen=True)
class Done:
    """What the step gives: statements of all histories by status, and what a model's calls cost, by stage."""

    written: bool
    statuses: dict[str, int]
    stages: dict[str, StageCounts]
    spent: Spent | None


def extract_step(run: RunFolder, experiment: ResolvedExperiment, progress: Progress = lambda done, total: None) -> Done:
    """Write extraction/ unless it is up to date."""
    check_frontend(experiment)
    if isinstance(experiment.extractor, Extractor):
        written = _by_model(run, experiment, experiment.extractor, progress)
    else:
        written = run.step(
            "extraction",
            upstream(run, experiment, "extraction"),
            lambda folder: write_extraction(folder, extract(read_data(run).histories, experiment)),
        )
    status = {statement.text: statement.status for statement in read_extraction(run).statements}
    folder = run.step_folder("extraction")
    return Done(
        written,
        Counter(status[s.text] for history in read_data(run).histories for s in history.statements),
        read_transcript(folder / CALLS).counts() if (folder / CALLS).is_dir() else {},
        spent_on(folder),
    )


def _by_model(run: RunFolder, experiment: ResolvedExperiment, extractor: Extractor, progress: Progress) -> bool:
    inputs = upstream(run, experiment, "extraction")
    found = model_for_step(run, "extraction", inputs, extractor.reader)
    if found is None:
        return False
    model_folder, model = found

    def write(folder: Path) -> None:
        reader, structured = extractor.reader, extractor.constrained
        forbidden = forbidden_paths(run, experiment)
        with live_caller(reader, model_folder, forbidden, progress, structured=structured) as (caller, live):
            extracted = extract_by_model(read_data(run).histories, experiment, caller)
        write_extracted(folder, extracted)
        (folder / CALLS).mkdir()
        write_transcript(folder / CALLS, caller.transcript)
        (folder / TOKENIZER).mkdir()
        copy_tokenizer(model_folder, folder / TOKENIZER)
        write_record(folder / ENVIRONMENTS, live.resolved())
        write_record(folder / SIDE, spent(live))

    return run.step("extraction", {**inputs, "model": model.fingerprint}, write)


def spent(live: Live) -> Spent:
    """What the calls of a live source took."""
    return Spent({stage: f"{seconds:.3f}" for stage, seconds in live.seconds.items()}, live.cached, live.generated)


def spent_on(folder: Path) -> Spent | None:
    """What a step's calls took; None if the file beside its manifest, which nothing covers, is not there or cannot be read."""
    try:
        return read_record(folder / SIDE, Spent)
    except (AlteredError, StorageError):
        return None


def extracted_files(extracted: Extracted) -> dict[str, tuple[Record, ...]]:
    """The files of an extraction by a model beside the extraction itself, and their records."""
    return {DRAFTS: extracted.drafts, NAMES: extracted.names, FORMS: extracted.forms}


def files_by_model(settings: Settings) -> list[str]:
    """All that an extraction by the model of these settings writes."""
    calls = [f"{CALLS}/{name}" for name in TRANSCRIPT_FILES]
    tokenizer = [f"{TOKENIZER}/{name}" for name in tokenizer_names(settings)]
    return [*EXTRACTION_FILES, DRAFTS, NAMES, FORMS, ENVIRONMENTS, *calls, *tokenizer]


def write_extracted(folder: Path, extracted: Extracted) -> None:
    """Store an extraction by a model and how it came about."""
    write_extraction(folder, extracted.extraction)
    for name, records in extracted_files(extracted).items():
        write_lines(folder / name, records)


def read_drafts(folder: Path) -> tuple[Draft, ...]:
    """The drafts of an extraction by a model."""
    return tuple(read_lines(folder / DRAFTS, Draft))


def read_names(folder: Path) -> tuple[CatalogueName, ...]:
    """Its relation names."""
    return tuple(read_lines(folder / NAMES, CatalogueName))


def read_forms(folder: Path) -> tuple[InducedForm, ...]:
    """Its induced forms."""
    return tuple(read_lines(folder / FORMS, InducedForm))


def read_environments(folder: Path) -> tuple[dict[str, str], ...]:
    """What the engines resolved that answered its calls."""
    return read_record(folder / ENVIRONMENTS, tuple[dict[str, str], ...])
