"""The extraction step of a run."""

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from extract.frontends import check_frontend, extract, extract_by_model
from extract.frontends.edited_catalogue import check_edit
from extract.frontends.records import CatalogueName, Draft, Extracted
from offline.canonical import Record, file_digest, read_lines, read_record, write_lines, write_record
from offline.config.calls import EditedCatalogue, Extractor
from offline.errors import InputLinkError, OutputLinkError
from offline.observer import SILENT, Observer
from offline.records import Status
from offline.run.manifest import MANIFEST, SIDE, read_manifest
from offline.run.opened import OpenRun
from offline.run.steps import EXTRACTION_FILES
from offline.run.writing import write_extraction
from readers.calls.caller import Caller, Recorded, check_transcript
from readers.calls.engine_source import live_caller, spent_on
from readers.models.pins import model_for_step
from readers.process.parent import forbidden_paths
from readers.records import Settings, Spent, StageCounts
from readers.requests import SETTINGS, check_settings, tokenizer_names
from readers.tokens.chat import ChatTokenizer, copy_tokenizer
from readers.transcript import TRANSCRIPT_FILES, read_transcript, write_transcript

DRAFTS, NAMES, FORMS, ENVIRONMENTS = "drafts.jsonl", "names.jsonl", "forms.jsonl", "environments.json"
# Folders of an extraction by a model: its calls, and the tokenizer of their ids.
CALLS, TOKENIZER = "calls", "tokenizer"


@dataclass(frozen=True)
class Done:
    """The result of the step."""

    written: bool
    recorded: bool  # written from the calls that the run had kept
    statuses: dict[Status, int]  # statements of all histories by status
    stages: dict[str, StageCounts]  # costs of a model's calls by stage
    spent: Spent | None


def extract_step(run: OpenRun, observer: Observer = SILENT) -> Done:
    """Write extraction/ unless it is up to date."""
    check_frontend(run.experiment)
    recorded = False
    if isinstance(run.experiment.extractor, Extractor):
        recorded = _from_recorded(run, run.experiment.extractor)
        written = recorded or _by_model(run, run.experiment.extractor, observer)
    else:
        written = run.step(
            "extraction",
            run.upstream("extraction"),
            lambda folder: write_extraction(folder, extract(run.data.histories, run.experiment)),
        )
    folder = run.step_folder("extraction")
    return Done(
        written,
        recorded,
        statuses(run),
        read_transcript(folder / CALLS).counts() if (folder / CALLS).is_dir() else {},
        spent_on(folder),
    )


def statuses(run: OpenRun) -> dict[Status, int]:
    """The number of statements of all histories by status."""
    of = {statement.text: statement.status for statement in run.extraction.statements}
    return Counter(of[statement.text] for history in run.data.histories for statement in history.statements)


def _by_model(run: OpenRun, extractor: Extractor, observer: Observer) -> bool:
    inputs = run.upstream("extraction")
    found = model_for_step(run, "extraction", inputs, extractor.reader)
    if found is None:
        return False
    model_folder, model = found

    def write(folder: Path) -> None:
        reader, structured = extractor.reader, extractor.constrained
        forbidden, task = forbidden_paths(run), observer.task("extract", reader.name, "calls")
        with live_caller(reader, model_folder, forbidden, task, structured=structured) as (caller, live):
            extracted = extract_by_model(run.data.histories, run.experiment, caller)
        write_extracted(folder, extracted, extractor.catalogue)
        (folder / CALLS).mkdir()
        write_transcript(folder / CALLS, caller.transcript)
        (folder / TOKENIZER).mkdir()
        copy_tokenizer(model_folder, folder / TOKENIZER)
        write_record(folder / ENVIRONMENTS, live.resolved())
        write_record(folder / SIDE, live.spent())

    return run.step("extraction", {**inputs, "model": model.fingerprint}, write)


def _from_recorded(run: OpenRun, extractor: Extractor) -> bool:
    """Write extraction/ from the calls that the run keeps of an earlier one; False if it is up to date or more is needed.

    They suffice if the algorithm makes exactly those calls: then only its use of the answers has changed, as by an edited
    catalogue. The calls and their timings stay as they were. The model need not be on this machine.
    """
    inputs, old = run.upstream("extraction"), run.step_folder("extraction")
    if not (old / CALLS).is_dir() or inputs.items() <= (made := run.need("extraction").inputs).items():
        return False
    data = {name: digest for name, digest in inputs.items() if name != "configuration"}
    if not data.items() <= made.items():
        return False
    found = model_for_step(run, "extraction", data, extractor.reader)
    if found is not None and found[1].fingerprint != made.get("model"):
        return False

    def write(folder: Path) -> None:
        extracted, _ = extract_again(run, extractor)
        shutil.copytree(old, folder, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
        write_extracted(folder, extracted, extractor.catalogue)

    with suppress(InputLinkError, OutputLinkError):
        return run.step("extraction", {**inputs, "model": made["model"]}, write)
    return False


def extract_again(run: OpenRun, extractor: Extractor) -> tuple[Extracted, int]:
    """Run a frontend again on the model answers that a run keeps; its result, and the number of calls it makes.

    InputLinkError if another reader made the calls, and for the first call that differs; OutputLinkError for the first answer.
    """
    folder = run.step_folder("extraction")
    recorded, path = Recorded(folder / CALLS), folder / CALLS / SETTINGS
    settings = recorded.transcript.settings
    if settings.reader != extractor.reader:
        raise InputLinkError(f"{path}: not the reader {extractor.reader.name!r} as the experiment has it")
    tokenizer = ChatTokenizer.of(extractor.reader, run.files_of(f"extraction/{TOKENIZER}"))
    check_settings(path, extractor.reader, settings, tokenizer)
    if read_manifest(folder).inputs.get("model") != settings.model.fingerprint:
        raise InputLinkError(f"{path}: not the model that {MANIFEST} names")
    caller = Caller(settings, tokenizer, recorded, recorded.seeds)
    extracted = extract_by_model(run.data.histories, run.experiment, caller)
    return extracted, check_transcript(recorded, caller.transcript)


def extracted_files(extracted: Extracted) -> dict[str, tuple[Record, ...]]:
    """The files of an extraction by a model beside the extraction itself, with their records."""
    return {DRAFTS: extracted.drafts, NAMES: extracted.names, FORMS: extracted.forms}


def files_by_model(settings: Settings) -> list[str]:
    """All files of an extraction by the model of these settings."""
    calls = [f"{CALLS}/{name}" for name in TRANSCRIPT_FILES]
    tokenizer = [f"{TOKENIZER}/{name}" for name in tokenizer_names(settings)]
    return [*EXTRACTION_FILES, DRAFTS, NAMES, FORMS, ENVIRONMENTS, *calls, *tokenizer]


def write_extracted(folder: Path, extracted: Extracted, edited: EditedCatalogue | None) -> None:
    """Store an extraction by a model and how it came about; ConfigurationError for an edited catalogue that does not fit it."""
    write_extraction(folder, extracted.extraction)
    for name, records in extracted_files(extracted).items():
        write_lines(folder / name, records)
    if edited is not None:
        check_edit(edited, extracted.names, file_digest(folder / NAMES), "extractor: the catalogue")


def read_drafts(folder: Path) -> tuple[Draft, ...]:
    """The drafts of an extraction by a model."""
    return tuple(read_lines(folder / DRAFTS, Draft))


def read_names(folder: Path) -> tuple[CatalogueName, ...]:
    """The relation names of an extraction by a model."""
    return tuple(read_lines(folder / NAMES, CatalogueName))


def read_environments(folder: Path) -> tuple[dict[str, str], ...]:
    """The environments of the engines that answered an extraction's calls."""
    return read_record(folder / ENVIRONMENTS, tuple[dict[str, str], ...])
