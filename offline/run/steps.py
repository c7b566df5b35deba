"""Dependencies of a run's steps: earlier steps, their part of the experiment, raw rows, models."""

from collections.abc import Sequence
from itertools import product, zip_longest
from pathlib import Path

from msgspec import UNSET

from offline.canonical import digest_of
from offline.config.experiment import ResolvedExperiment, RetrievalSettings
from offline.errors import AlteredError, CommandError, ConfigurationError, DataError
from offline.loaders import kind_of
from offline.loaders.raw import RawSource
from offline.records import Question
from offline.views import ModelWork, check_view, find_view, needs_of


def raw_source(experiment: ResolvedExperiment, path: Path | None) -> RawSource | None:
    """The source of an experiment's raw rows: the given file, else the hub; None for drawn data."""
    data = experiment.data
    if path is None:
        if data.needs_file:
            raise ConfigurationError(f"{kind_of(data)} data needs a file: give `path` in the experiment, or --data PATH")
        return data.hub()
    if data.drawn:
        raise CommandError(f"{kind_of(data)} data takes no --data; its seed and sizes are in the experiment")
    if not path.is_file():
        raise DataError(f"--data {path}: {'not a file' if path.exists() else 'no such file'}")
    return RawSource(path=path)


def data_inputs(experiment: ResolvedExperiment, source: RawSource | None) -> dict[str, str]:
    """The inputs of the data step: the data section with the limit, and the raw rows' identity."""
    identity = source.identity() if source else {}
    return {
        "configuration": digest_of((experiment.data, experiment.limit)),
        **{f"source_{k}": v for k, v in identity.items()},
    }


# The steps of retrieval models.
MODEL_STEPS = ("vectors", "reranked")


def model_work(experiment: ResolvedExperiment) -> ModelWork:
    """The model work that the views need; ConfigurationError for an unknown view or an unnamed model."""
    work, numbers = ModelWork(), experiment.retrieval or RetrievalSettings()
    for name in experiment.views:
        view = find_view(name)
        needs = needs_of(view)
        for due, model, kind in ((needs.units, numbers.encoder, "encoder"), (needs.stages, numbers.reranker, "reranker")):
            if due and model is None:
                raise ConfigurationError(
                    f"view {name!r} needs a model: name one in the experiment, `retrieval: {{{kind}: NAME}}` "
                    f"(configs/{kind}s holds those that are shipped)"
                )
        check_view(view, name, experiment.settings, numbers)
        work |= needs
    return work


def steps_before(experiment: ResolvedExperiment, step: str) -> tuple[str, ...]:
    """The steps that a step depends on, in order."""
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
    # Passages do not depend on the prompt's heading, the budget or k.
    if step == "vectors":
        return digest_of((numbers.encoder, numbers.chunk_tokens if "chunk" in work.units else None, work.units))
    return digest_of((numbers.reranker, numbers.candidates, numbers.rrf, experiment.settings.tokenizer, work.stages))


def check_due(path: Path, names: Sequence[str], questions: Sequence[Question], found: Sequence[tuple[str, str]]) -> None:
    """AlteredError unless `found`, (name, question) of each line, is each of `names` with each question, in order."""
    due = product(names, (question.id for question in questions))
    for number, (wanted, there) in enumerate(zip_longest(due, found), 1):
        if wanted != there:
            here, said = ("none" if key is None else f"{key[0]!r}, question {key[1]!r}" for key in (there, wanted))
            raise AlteredError(f"{path}, line {number}: {here}, where the experiment and its questions ask for {said}")


EXTRACTION_FILES = ("statements.jsonl", "relations.jsonl")
