"""A whole run, step by step: load, extract, encode, freeze, read, score. Steps that are up to date are skipped."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, UnsetType

from eval.analysis.fallbacks import fallback_counts, fallback_lines
from eval.analysis.populations import check_populations
from eval.labels import commitment, labels_step
from eval.results import Result
from eval.score import score_run
from extract.frontends import check_frontend
from extract.frontends.edited_catalogue import check_spellings
from extract.pipelines import find_pipeline
from extract.pipelines.results import read_stored
from extract.pipelines.step import read_spent, serve_pipelines
from extract.step import extract_step
from offline.canonical import read_record
from offline.config.experiment import Experiment, ReaderPlan, ResolvedExperiment, RetrievalSettings, resolve
from offline.config.yaml import find_config, load_yaml
from offline.errors import ColdreadError, CommandError, ConfigurationError, EngineError, ModelError, StateError
from offline.observer import SILENT, Observer
from offline.run.opened import OpenRun
from offline.run.steps import model_work, raw_source
from offline.run.writing import freeze_step, load_step
from readers.certificate import certificate_line
from readers.encoders.encode import ENCODER, RERANKER, clear_leftovers, reranked_step, vectors_step
from readers.engines import check_engine
from readers.models.pins import check_pin, locate
from readers.read import freeze_requests, is_sealed, make_measure, probe_reader, read
from readers.records import Certificate, Encoded, RerankedBy, Spent, StageCounts
from readers.seal import SEAL, PipelineFacts, pipelines_line, reads_folder
from readers.sealed import sealed_reader

STEPS = ("load", "extract", "encode", "freeze", "read", "score")


@dataclass(frozen=True)
class Plan:
    """An experiment as requested on the command line."""

    experiment: ResolvedExperiment
    data: Path | None


class StepDone(Result, frozen=True):
    """A step that is up to date."""

    run: str
    step: str
    packets_identical: int | UnsetType = UNSET  # set after a check
    seals: dict[str, str] | UnsetType = UNSET  # seal roots by reader


class Probed(Result, frozen=True):
    """A probe of a reader's engine."""

    run: str
    reader: str
    certificate: Certificate
    environment: dict[str, str]  # resolved by the engine


def make_plan(name: str, data: Path | None, limit: int | None) -> Plan:
    """Resolve an experiment given by path or shipped name; ConfigurationError or ModelError if it cannot be run."""
    path = find_config("experiments", name)
    written = load_yaml(path, Experiment)
    given = getattr(written.data, "path", None)
    if data is None and given is not None:
        # Relative paths in a file are relative to that file.
        data = path.parent / Path(given).expanduser()
    experiment = resolve(written, limit, str(path))
    retrieval = experiment.retrieval or RetrievalSettings()
    extractor = None if experiment.extractor is UNSET else experiment.extractor.reader
    if experiment.extractor is not UNSET and experiment.extractor.catalogue is not None:
        check_spellings(experiment.extractor.catalogue, f"{path}: extractor: the catalogue")
    for pinned in (*(plan.reader for plan in experiment.readers), extractor, retrieval.encoder, retrieval.reranker):
        if pinned is not None:
            check_pin(pinned)
    return Plan(experiment, data)


def default_out(experiment: ResolvedExperiment) -> Path:
    """runs/NAME, or runs/NAME-limitN for a limited run, since each limit is a different run."""
    return Path("runs") / (experiment.name + (f"-limit{experiment.limit}" if experiment.limit else ""))


def _done(written: bool) -> str:
    return "written" if written else "up to date"


def load(run: OpenRun, data: Path | None, observer: Observer = SILENT) -> None:
    """Load histories, questions and, separately, labels. Without `data`, up-to-date files are kept."""
    if data is None and run.has("data") and run.has("labels"):
        with suppress(StateError):
            run.fresh("labels")
            observer.say("load", "up to date")
            return
    source = raw_source(run.experiment, data)
    written = load_step(run, source)
    written = labels_step(run, source) or written
    loaded = run.data
    statements = sum(len(history.statements) for history in loaded.histories)
    observer.say(
        "load",
        f"{_done(written)}: {len(loaded.histories)} histories, {statements} statements, {len(loaded.questions)} questions",
    )


def extract(run: OpenRun, observer: Observer = SILENT) -> None:
    """Extract triples from statements; reports the costs of model calls."""
    done = extract_step(run, observer)
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(done.statuses.items()))
    observer.say("extract", f"{_done(done.written)}: {statuses}")
    for line in _costs(done.stages, done.spent, done.written and not done.recorded):
        observer.say("extract", line)
    if done.recorded:
        observer.say("extract", "the calls are those that the run had: none was made again")


def _costs(stages: Mapping[str, StageCounts], spent: Spent | None, written: bool) -> Iterator[str]:
    """Lines that report the costs of model calls by stage."""
    for stage, cost in stages.items():
        calls = f"{cost.calls} calls ({cost.failed} failed), {cost.input_tokens} tokens in, {cost.output_tokens} out"
        took = f", {float(spent.seconds.get(stage, 0)):.0f} s" if spent else ""
        yield f"{stage}: {calls}{took}"
    if written and spent and spent.cached:
        yield f"{spent.cached} of {spent.cached + spent.generated} calls were answered from the cache"


def encode(run: OpenRun, observer: Observer = SILENT) -> None:
    """Make the vectors and rerank scores that views need."""
    work, retrieval = model_work(run.experiment), run.experiment.retrieval
    if retrieval and retrieval.encoder and work.units:
        written = vectors_step(run, observer)
        made = read_record(run.step_folder("vectors") / ENCODER, Encoded)
        observer.say(
            "encode",
            f"{_done(written)}: {retrieval.encoder.name}, {made.passages} passages and {made.queries} questions, "
            f"{made.dimension} dimensions, {made.cut} texts cut to {made.environment['window']} tokens",
        )
    if retrieval and retrieval.reranker and work.stages:
        written = reranked_step(run, observer)
        scored = read_record(run.step_folder("reranked") / RERANKER, RerankedBy)
        observer.say(
            "encode",
            f"{_done(written)}: {retrieval.reranker.name}, {scored.pairs} pairs, {scored.cut} filled the window of "
            f"{scored.environment['window']} tokens",
        )
    clear_leftovers(run, work)


def freeze(run: OpenRun, observer: Observer = SILENT) -> None:
    """Freeze the packets of every view; reports views with fallbacks."""
    measure, name = make_measure(run)
    written = freeze_step(run, measure, name)
    questions = len(run.data.questions)
    observer.say("freeze", f"{_done(written)}: {len(run.experiment.views)} views, {questions} questions")
    for line in fallback_lines(fallback_counts(run, run.experiment.views), questions):
        observer.say("freeze", line)


def read_all(run: OpenRun, only: str | None = None, observer: Observer = SILENT) -> None:
    """Read and seal every reader (or the named one); a failing reader does not stop the others, its error is raised last."""
    plans = [plan for plan in run.experiment.readers if only in (None, plan.reader.name)]
    if not run.experiment.readers:
        raise StateError(f"{run.path}: the experiment names no reader; name one under `readers` and start another run")
    if not plans:
        names = ", ".join(plan.reader.name for plan in run.experiment.readers)
        raise CommandError(f"{run.path} has no reader {only!r}; its experiment names: {names}")
    failed: list[ColdreadError] = []
    for plan in plans:
        before = (reads_folder(run, plan.reader.name) / SEAL).is_file()
        try:
            facts = _serve(run, plan, observer)
            seal = read(run, plan, commitment(run), facts, observer)
        except (EngineError, ModelError, ConfigurationError, StateError) as error:
            failed.append(error)
            if len(plans) > 1:
                observer.say("read", f"{plan.reader.name}: not read: {error}")
            continue
        capped = sum(sealed_reader(run, plan.reader.name).ended_by_cap.values())
        observer.say(
            "read",
            f"{plan.reader.name}: {'up to date' if before else 'sealed'}, "
            f"{seal.counts.scheduled} questions through {seal.counts.generated} requests, {seal.counts.failed} failed, "
            f"{seal.counts.cut} with evidence cut, "
            + (f"{capped} ended by the output cap of {plan.reader.output_cap} tokens, " if capped else "")
            + f"seal {seal.root}; {certificate_line(seal.certificate)}"
            + (f"; {pipelines_line(seal.counts.pipelines, seal.sampled or ())}" if seal.counts.pipelines else ""),
        )
    if failed:
        more = f" ({len(failed)} of {len(plans)} readers were not read)" if len(plans) > 1 else ""
        raise type(failed[0])(f"{failed[0]}{more}")


def _serve(run: OpenRun, plan: ReaderPlan, observer: Observer) -> PipelineFacts | None:
    """Run a reader's pipelines, unless it has none or is sealed, and report their costs.

    Its views' requests are frozen first: one that cannot be made prevents the seal, and would waste paid calls.
    """
    name = plan.reader.name
    if not plan.pipelines or is_sealed(run, name):
        return None
    freeze_requests(run, plan, locate(plan.reader))
    written = serve_pipelines(run, plan, observer)
    stored = read_stored(run, name)
    observer.say("read", f"{name}: pipelines {_done(written)}, {len(stored.traces)} traces")
    for line in _costs(stored.transcript.counts(), read_spent(run, name), written):
        observer.say("read", f"{name}: {line}")
    return stored.facts()


def probe(run: OpenRun, reader: str, size: int) -> Probed:
    """Probe one reader's engine on demand. A sealed run is not changed."""
    plan = next((plan for plan in run.experiment.readers if plan.reader.name == reader), None)
    if plan is None:
        names = ", ".join(plan.reader.name for plan in run.experiment.readers)
        raise CommandError(f"{run.path} has no reader {reader!r}; its experiment names: {names or 'none'}")
    if size < 2:
        raise CommandError("--sample must be at least 2: a request alone has no company")
    certificate, environment = probe_reader(run, plan, size)
    return Probed(str(run.path), reader, certificate, environment)


def start(run: OpenRun, plan: Plan, observer: Observer = SILENT) -> None:
    """Start (or resume) a run up to its loaded data; on failure, remove the folder if this call made it.

    The caller holds no lock yet; errors that can be detected without running anything are raised before a file is made.
    """
    experiment = plan.experiment
    model_work(experiment)
    check_frontend(experiment)
    check_populations(experiment)
    for each in experiment.readers:
        check_engine(each.reader)
        for name in each.pipelines or ():
            find_pipeline(name)
    if experiment.extractor is not UNSET:
        check_engine(experiment.extractor.reader)
    raw_source(experiment, plan.data)
    made = run.make()
    try:
        with run.lock():
            run.create(experiment)
            load(run, plan.data, observer)
            if experiment.analysis is not UNSET:
                check_populations(experiment, run.data)
    except ColdreadError:
        if made:
            shutil.rmtree(run.path, ignore_errors=True)
        raise


def check_until(until: str) -> int:
    """The index of a step; CommandError for an unknown one."""
    if until not in STEPS:
        raise CommandError(f"--until {until!r}: the steps are {', '.join(STEPS)}")
    return STEPS.index(until)


def run_all(run: OpenRun, plan: Plan, until: str, observer: Observer = SILENT) -> None:
    """Run all steps up to and including `until`."""
    last = check_until(until)
    start(run, plan, observer)
    with run.lock():
        experiment = run.experiment
        if experiment != plan.experiment:
            raise StateError(f"{run.path}: another process gave this run another experiment; run the command again")
        if last >= 1:
            extract(run, observer)
        if last >= 2:
            encode(run, observer)
        if last >= 3:
            freeze(run, observer)
        if last >= 4 and experiment.readers:
            read_all(run, None, observer)
        if last >= 5 and experiment.readers:
            observer.say("score", _done(score_run(run)))
