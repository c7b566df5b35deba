"""The steps that need neither model nor label: load, extract's storage, freeze."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from pathlib import Path

from msgspec import UNSET

from offline.canonical import digest_of, read_lines, write_lines
from offline.config.experiment import (
    Drawn,
    FactConsolidationData,
    PlainData,
    PluginData,
    ResolvedExperiment,
    RetrievalSettings,
)
from offline.errors import AlteredError, CommandError, ConfigurationError, DataError, StateError
from offline.freeze import Frozen, freeze, memories
from offline.loaders import kind_of, load
from offline.loaders.raw import RawSource
from offline.memory import Measure, Memory
from offline.records import Evidence, Extraction, History, Packet, Question, Relation, StatementExtraction
from offline.run.folder import COMMANDS, Manifest, RunFolder
from offline.vectors import Retrieval, read_scores, read_vectors
from offline.views import View, find_view
from offline.views.retrieval import RetrievalView


def raw_source(experiment: ResolvedExperiment, path: Path | None) -> RawSource | None:
    """Where an experiment's raw rows come from: the given file, else the hub; None for data that is drawn."""
    data = experiment.data
    if path is not None and isinstance(data, Drawn):
        raise CommandError(f"{kind_of(data)} data takes no --data; its seed and sizes stand in the experiment")
    if path is not None and not path.is_file():
        raise DataError(f"--data {path}: {'not a file' if path.exists() else 'no such file'}")
    if isinstance(data, FactConsolidationData) and path is None:
        return RawSource(repository=data.repository, revision=data.revision, split=data.split)
    if isinstance(data, PlainData) and path is None:
        raise ConfigurationError("plain data needs a file: give `path` in the experiment, or --data PATH")
    if isinstance(data, Drawn | PluginData) and path is None:
        return None
    return RawSource(path=path)


def data_inputs(experiment: ResolvedExperiment, source: RawSource | None) -> dict[str, str]:
    """What the data step depends on: the data section, the limit, and the raw rows' identity."""
    identity = source.identity() if source else {}
    return {
        "configuration": digest_of((experiment.data, experiment.limit)),
        **{f"source_{k}": v for k, v in identity.items()},
    }


# The steps of retrieval models.
MODEL_STEPS = ("vectors", "reranked")


@dataclass(frozen=True)
class ModelWork:
    """What an experiment's views need of models: units whose passages are encoded, and (unit, first stage) to rerank."""

    units: tuple[str, ...]
    stages: tuple[tuple[str, str], ...]


def model_work(experiment: ResolvedExperiment) -> ModelWork:
    """What the views need; ConfigurationError for an unknown view, and for one whose model the experiment does not name."""
    units: set[str] = set()
    stages: set[tuple[str, str]] = set()
    named = experiment.retrieval or RetrievalSettings()
    for name in experiment.views:
        view: View | None = find_view(name)
        if isinstance(view, RetrievalView):
            encoded, reranked = view.model_work()
            for work, model, kind in ((encoded, named.encoder, "encoder"), (reranked, named.reranker, "reranker")):
                if work and model is None:
                    raise ConfigurationError(
                        f"view {name!r} needs a model: name one in the experiment, `retrieval: {{{kind}: NAME}}` "
                        f"(configs/{kind}s holds those that are shipped)"
                    )
            units |= encoded
            stages |= reranked
        # A view and those that it is matched to.
        while isinstance(view, RetrievalView):
            depth, deepest = view.depth(experiment.settings, named), view.deepest(named)
            if deepest is not None and depth > deepest:
                raise ConfigurationError(
                    f"view {name!r} would show {depth} passages, but fusing and reranking go {deepest} deep; raise "
                    "`candidates` in the experiment's `retrieval`, or ask for fewer"
                )
            view = view.match
    return ModelWork(tuple(sorted(units)), tuple(sorted(stages)))


def steps_before(experiment: ResolvedExperiment, step: str) -> tuple[str, ...]:
    """The steps that a step is made from, in order."""
    if step in ("data", "labels", "extraction"):
        return () if step == "data" else ("data",)
    work = model_work(experiment)
    models = (*(("vectors",) if work.units else ()), *(("reranked",) if work.stages else ()))
    chain = ("data", "extraction", *models, "packets")
    return chain[: chain.index(step)]


def configuration_of(experiment: ResolvedExperiment, step: str) -> str:
    """The digest of a step's part of the experiment."""
    if step in ("data", "labels"):
        return digest_of((experiment.data, experiment.limit))
    if step == "extraction":
        frontend = (experiment.frontend, experiment.grammar)
        return digest_of(frontend if experiment.extractor is UNSET else (*frontend, experiment.extractor))
    retrieval = experiment.retrieval
    if step == "packets":
        parts = (experiment.settings, experiment.prompt, experiment.views)
        return digest_of(parts if retrieval is UNSET else (*parts, retrieval))
    numbers, work = retrieval or RetrievalSettings(), model_work(experiment)
    # The prompt's heading and the budget do not matter to a passage, nor does k.
    if step == "vectors":
        return digest_of((numbers.encoder, numbers.chunk_tokens if "chunk" in work.units else None, work.units))
    return digest_of((numbers.reranker, numbers.candidates, numbers.rrf, experiment.settings.tokenizer, work.stages))


def upstream(run: RunFolder, experiment: ResolvedExperiment, step: str) -> dict[str, str]:
    """What a step's manifest must name as its inputs in this run: the steps before it and its part of the experiment.

    StateError if one of those is itself missing or out of date.
    """
    before = {name: fresh(run, experiment, name).digest for name in steps_before(experiment, step)}
    return {**before, "configuration": configuration_of(experiment, step)}


def foreign_input(run: RunFolder, experiment: ResolvedExperiment, step: str, manifest: Manifest) -> str | None:
    """The first input that a step's manifest does not share with what the run now holds, None if it shares all."""
    expected = upstream(run, experiment, step)
    return next((name for name, digest in expected.items() if manifest.inputs.get(name) != digest), None)


def fresh(run: RunFolder, experiment: ResolvedExperiment, step: str) -> Manifest:
    """The verified manifest of a step; StateError unless it was made from what the run now holds."""
    manifest = run.need(step)
    if name := foreign_input(run, experiment, step, manifest):
        raise StateError(
            f"{run.step_folder(step)} was made from another {name} than the run holds now; "
            f"run `coldread {COMMANDS[step]} {run.path}` first"
        )
    return manifest


def load_step(run: RunFolder, experiment: ResolvedExperiment, source: RawSource | None) -> bool:
    """Write data/: histories and questions. True if it was written, False if it was up to date."""

    def write(folder: Path) -> None:
        loaded = load(experiment.data, source, experiment.limit)
        write_lines(folder / "histories.jsonl", loaded.histories)
        write_lines(folder / "questions.jsonl", loaded.questions)

    return run.step("data", data_inputs(experiment, source), write)


@dataclass(frozen=True)
class Data:
    """The loaded data of a run."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]


def read_data(run: RunFolder) -> Data:
    """The verified data of a run."""
    fresh(run, run.experiment(), "data")
    folder = run.step_folder("data")
    return Data(tuple(read_lines(folder / "histories.jsonl", History)), tuple(read_lines(folder / "questions.jsonl", Question)))


def check_due(path: Path, names: Sequence[str], questions: Sequence[Question], found: Sequence[tuple[str, str]]) -> None:
    """AlteredError unless a file's lines are, in order, one for each of these views or pipelines and each question.

    found: name and question of each line.
    """
    due = product(names, (question.id for question in questions))
    for number, (wanted, there) in enumerate(zip_longest(due, found), 1):
        if wanted != there:
            here, said = ("none" if key is None else f"{key[0]!r}, question {key[1]!r}" for key in (there, wanted))
            raise AlteredError(f"{path}, line {number}: {here}, where the experiment and its questions ask for {said}")


EXTRACTION_FILES = ("statements.jsonl", "relations.jsonl")


def write_extraction(folder: Path, extraction: Extraction) -> None:
    """Store an extraction: statements in order of first appearance, and the relation catalogue."""
    for name, records in zip(EXTRACTION_FILES, (extraction.statements, extraction.relations), strict=True):
        write_lines(folder / name, records)


def read_extraction(run: RunFolder) -> Extraction:
    """The verified extraction of a run."""
    fresh(run, run.experiment(), "extraction")
    folder = run.step_folder("extraction")
    return Extraction(
        statements=tuple(read_lines(folder / "statements.jsonl", StatementExtraction)),
        relations=tuple(read_lines(folder / "relations.jsonl", Relation)),
    )


def read_retrieval(run: RunFolder, experiment: ResolvedExperiment) -> Retrieval:
    """What the retrieval models of a run made, verified."""
    work = model_work(experiment)
    for step in ("vectors",) * bool(work.units) + ("reranked",) * bool(work.stages):
        fresh(run, experiment, step)
    return Retrieval(
        settings=experiment.retrieval or RetrievalSettings(),
        vectors=read_vectors(run.step_folder("vectors")) if work.units else None,
        scores=read_scores(run.step_folder("reranked")) if work.stages else None,
    )


def compiled(
    run: RunFolder, experiment: ResolvedExperiment, retrieval: Retrieval | None = None
) -> Iterator[tuple[Memory, list[Question]]]:
    """Each history of a run, compiled, one at a time, and the questions about it, in order."""
    data, extraction = read_data(run), read_extraction(run)
    settings, heading = experiment.settings, experiment.prompt.heading
    return memories(data.histories, data.questions, extraction, settings, heading, retrieval=retrieval)


def freeze_run(run: RunFolder, experiment: ResolvedExperiment, measure: Measure) -> Frozen:
    """Derive the packets of a run from its data and extraction."""
    data = read_data(run)
    return freeze(
        data.histories,
        data.questions,
        read_extraction(run),
        experiment.settings,
        experiment.prompt,
        experiment.views,
        measure,
        read_retrieval(run, experiment),
    )


def packet_files(frozen: Frozen) -> dict[str, Sequence[Packet] | Sequence[Evidence]]:
    """The files of packets/ and their records."""
    return {**{f"{view}.jsonl": packets for view, packets in frozen.packets.items()}, "evidence.jsonl": frozen.evidence}


def freeze_step(run: RunFolder, experiment: ResolvedExperiment, measure: Measure, measure_name: str) -> bool:
    """Write packets/; True if it was written. `measure_name` says by what random_disjoint measures a record."""

    def write(folder: Path) -> None:
        for name, records in packet_files(freeze_run(run, experiment, measure)).items():
            write_lines(folder / name, records)

    return run.step("packets", {**upstream(run, experiment, "packets"), "measure": measure_name}, write)


def read_packets(run: RunFolder, views: Sequence[str]) -> Mapping[str, tuple[Packet, ...]]:
    """The verified packets of these views."""
    fresh(run, run.experiment(), "packets")
    return {view: tuple(read_lines(run.step_folder("packets") / f"{view}.jsonl", Packet)) for view in views}


def read_evidence(run: RunFolder) -> dict[str, Evidence]:
    """The verified evidence texts of a run, by digest."""
    fresh(run, run.experiment(), "packets")
    return {e.digest: e for e in read_lines(run.step_folder("packets") / "evidence.jsonl", Evidence)}
