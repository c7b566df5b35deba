"""The step that runs a reader's pipelines, and its replay from the recorded answers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from extract.pipelines.records import CandidateList, Trace
from extract.pipelines.schedule import Assembled, pipeline_settings, run_pipelines
from offline.canonical import compare_lines, digest_of, read_lines, write_lines, write_record
from offline.config.calls import pipeline_reader
from offline.config.experiment import ReaderPlan, ResolvedExperiment
from offline.errors import InputLinkError, OutputLinkError
from offline.observer import SILENT, Observer
from offline.run.manifest import MANIFEST, SIDE, check_files, read_manifest
from offline.run.opened import OpenRun
from offline.run.steps import check_due
from readers.calls.caller import Caller, Recorded, check_transcript
from readers.calls.engine_source import live_caller, spent_on
from readers.models.pins import locate
from readers.models.served import Tokenizer
from readers.process.parent import forbidden_paths
from readers.read import keep_tokenizer
from readers.records import Model, Spent
from readers.requests import SETTINGS, check_settings
from readers.seal import PIPELINES, reads_folder
from readers.transcript import TRANSCRIPT_FILES, Transcript, write_transcript

TRACES, CANDIDATES, TRANSCRIPT, ENVIRONMENTS = "traces.jsonl", "candidates.jsonl", "calls", "environments.jsonl"


def pipelines_folder(run: OpenRun, reader: str) -> Path:
    """The folder of one reader's pipelines."""
    return reads_folder(run, reader) / PIPELINES


def pipelines_configuration(experiment: ResolvedExperiment, plan: ReaderPlan) -> str:
    """The digest of everything in an experiment, except the reader, that decides what its pipelines ask."""
    return digest_of((pipeline_settings(experiment), plan.pipelines or (), experiment.settings, experiment.prompt))


def serve_pipelines(run: OpenRun, plan: ReaderPlan, observer: Observer = SILENT) -> bool:
    """Run a reader's pipelines with its own engine, keeping its tokenizer and timings; True unless they were up to date."""
    settings = pipeline_settings(run.experiment)
    reader, model_folder = pipeline_reader(plan.reader, settings), locate(plan.reader)
    forbidden, task = forbidden_paths(run), observer.task("read", f"{reader.name}, pipelines", "requests")
    with live_caller(reader, model_folder, forbidden, task, structured=settings.constrained) as (caller, source):
        keep_tokenizer(run, reader.name, caller.settings.model, model_folder)
        written = pipelines_step(run, plan, caller, source.resolved)
        if written:
            write_record(pipelines_folder(run, reader.name) / SIDE, source.spent())
        return written


def pipelines_step(
    run: OpenRun,
    plan: ReaderPlan,
    caller: Caller,
    environments: Callable[[], Sequence[dict[str, str]]],
) -> bool:
    """Write reads/READER/pipelines; True unless it was up to date. `environments` is asked for once all calls are answered."""

    def write(folder: Path) -> None:
        made = _run(run, plan, caller)
        write_lines(folder / TRACES, made.traces)
        write_lines(folder / CANDIDATES, made.candidates)
        (folder / TRANSCRIPT).mkdir()
        write_transcript(folder / TRANSCRIPT, caller.transcript)
        write_lines(folder / ENVIRONMENTS, environments())

    inputs = pipelines_inputs(run, plan, caller.settings.model)
    return run.step(f"reads/{plan.reader.name}/{PIPELINES}", inputs, write)


def pipelines_inputs(run: OpenRun, plan: ReaderPlan, model: Model) -> dict[str, str]:
    """The inputs of a reader's pipelines, as the step's manifest records them."""
    return {
        "data": run.fresh("data").digest,
        "configuration": pipelines_configuration(run.experiment, plan),
        "reader": digest_of(pipeline_reader(plan.reader, pipeline_settings(run.experiment))),
        "model": model.fingerprint,
    }


def check_inputs(run: OpenRun, plan: ReaderPlan, model: Model) -> None:
    """InputLinkError unless the manifest of a reader's pipelines records their inputs."""
    folder = pipelines_folder(run, plan.reader.name)
    stored, due = read_manifest(folder).inputs, pipelines_inputs(run, plan, model)
    if differing := [name for name in sorted({*stored, *due}) if stored.get(name) != due.get(name)]:
        raise InputLinkError(f"{folder / MANIFEST}: it names another {differing[0]} than these pipelines were made from")


def _run(run: OpenRun, plan: ReaderPlan, caller: Caller) -> Assembled:
    data = run.data
    return run_pipelines(plan.pipelines or (), data.histories, data.questions, run.experiment, caller)


def read_traces(run: OpenRun, reader: str) -> tuple[Trace, ...]:
    """The traces of a reader's pipelines; AlteredError unless there is one for each pipeline and question, in their order."""

    def read() -> tuple[Trace, ...]:
        path = pipelines_folder(run, reader) / TRACES
        traces = tuple(read_lines(path, Trace))
        named = next((plan.pipelines or () for plan in run.experiment.readers if plan.reader.name == reader), ())
        check_due(path, named, run.data.questions, [(trace.pipeline, trace.question) for trace in traces])
        return traces

    return run.once(f"reads/{reader}", TRACES, read)


def read_candidates(run: OpenRun, reader: str) -> tuple[CandidateList, ...]:
    """The stored candidate lists of a reader's pipelines."""
    return tuple(read_lines(pipelines_folder(run, reader) / CANDIDATES, CandidateList))


def read_environments(run: OpenRun, reader: str) -> tuple[dict[str, str], ...]:
    """The environments of the engines that answered a reader's pipelines."""
    return tuple(read_lines(pipelines_folder(run, reader) / ENVIRONMENTS, dict[str, str]))


def read_spent(run: OpenRun, reader: str) -> Spent | None:
    """The seconds and calls spent on a reader's pipelines; None if the run does not say."""
    return spent_on(pipelines_folder(run, reader))


def replay_pipelines(
    run: OpenRun, plan: ReaderPlan, tokenizer: Tokenizer
) -> tuple[tuple[Trace, ...], tuple[CandidateList, ...], Transcript]:
    """Run a reader's pipelines again on their recorded answers, and compare every call, answer, list and trace.

    InputLinkError for the first call that differs, OutputLinkError for the first answer, list or trace.
    """
    folder = pipelines_folder(run, plan.reader.name)
    recorded = Recorded(folder / TRANSCRIPT)
    stored, reader = recorded.transcript.settings, pipeline_reader(plan.reader, pipeline_settings(run.experiment))
    check_files(folder, (TRACES, CANDIDATES, ENVIRONMENTS, *(f"{TRANSCRIPT}/{name}" for name in TRANSCRIPT_FILES)))
    check_settings(folder / TRANSCRIPT / SETTINGS, reader, stored, tokenizer)
    caller = Caller(stored, tokenizer, recorded, recorded.seeds)
    again = _run(run, plan, caller)
    check_transcript(recorded, caller.transcript)
    compare_lines(folder / CANDIDATES, again.candidates, OutputLinkError, lambda c: f"the list of query {c.query[:60]!r}")
    compare_lines(
        folder / TRACES,
        again.traces,
        OutputLinkError,
        lambda trace: f"the trace of pipeline {trace.pipeline!r}, question {trace.question!r}",
    )
    return again.traces, again.candidates, caller.transcript
