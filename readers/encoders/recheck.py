"""Encoding once more, with another batch size or on another machine: which vectors, scores and rankings come out otherwise."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from offline.canonical import read_record
from offline.config.models import Encoder, Reranker
from offline.errors import CommandError, ConfigurationError, ModelError
from offline.observer import SILENT, Observer
from offline.passages import Passage
from offline.run.opened import OpenRun
from offline.run.steps import model_work
from offline.vectors import PairScores, Retrieval, Scores, TextRow, Vectors
from offline.views import find_view
from offline.views.retrieval import RetrievalView
from readers.encoders.encode import ENCODER, RERANKER, Encoding, encode_texts, score_pairs
from readers.models.pins import identify, kind_of, locate
from readers.records import Encoded, Model, RerankedBy


@dataclass
class Changed:
    """Rankings of one view: how many there are, in how many the order differs, in how many the chosen passages do."""

    rankings: int = 0
    order: int = 0
    chosen: int = 0

    def add(self, before: list[Passage], after: list[Passage]) -> None:
        """Count one question."""
        self.rankings += 1
        self.order += before != after
        self.chosen += {passage.text for passage in before} != {passage.text for passage in after}


def recheck(run: OpenRun, batch_size: int | None, observer: Observer = SILENT) -> dict[str, dict[str, Any]]:
    """Encode and score all texts of a run again and compare; nothing of the run is changed.

    batch_size: in the place of the models' own. A view of vectors is ranked by the new vectors, a reranked one by the new
    scores of its old candidates.
    """
    if batch_size is not None and batch_size < 1:
        raise CommandError("--batch-size must be at least 1")
    work, stored = model_work(run.experiment), run.retrieval
    if not work.units and not work.stages:
        raise ConfigurationError(f"{run.path}: no view of this run needs a model; there is nothing to encode again")
    fresh, models = stored, {}
    with tempfile.TemporaryDirectory(prefix="coldread-encode-") as name:
        job = Encoding(run, Path(name) / "journal", observer.task("encode", "again", "texts"))
        encoder, reranker = stored.settings.encoder, stored.settings.reranker
        if stored.vectors is not None and encoder is not None:
            before = read_record(run.step_folder("vectors") / ENCODER, Encoded)
            made = encode_texts(job, _sized(encoder, batch_size), *_located(encoder, before.model))
            fresh = Retrieval(stored.settings, Vectors(made.rows, made.matrix, made.chunks), stored.scores)
            models["encoder"] = {
                **_facts(made.facts.encoder, made.facts.environment),
                **_vectors(stored.vectors, made.rows, made.matrix),
            }
        if stored.scores is not None and reranker is not None:
            scored = read_record(run.step_folder("reranked") / RERANKER, RerankedBy)
            facts, pairs = score_pairs(job, _sized(reranker, batch_size), *_located(reranker, scored.model))
            again = Scores(pairs)
            models["reranker"] = {**_facts(facts.reranker, facts.environment), **_scores(stored.scores, pairs)}
            fresh = Retrieval(stored.settings, fresh.vectors, again)
        return {**models, "rankings": _rankings(job, stored, fresh)}


def _sized(model: Any, batch_size: int | None) -> Any:
    return model if batch_size is None else replace(model, batch_size=batch_size)


def _located(pinned: Encoder | Reranker, before: Model) -> tuple[Path, Model]:
    """A pinned model's folder and files; ModelError unless they are those that the run was encoded with."""
    folder = locate(pinned)
    model = identify(pinned, folder)
    if model != before:
        raise ModelError(
            f"{kind_of(pinned)} {pinned.name!r}: {folder} has the fingerprint {model.fingerprint}, the run was encoded with "
            f"{before.fingerprint}: another model's outputs say nothing of this one's; restore the folder"
        )
    return folder, model


def _facts(model: Encoder | Reranker, environment: Mapping[str, str]) -> dict[str, Any]:
    return {"name": model.name, "batch_size": model.batch_size, "device": environment["device"]}


def _vectors(stored: Vectors, rows: list[TextRow], matrix: Any) -> dict[str, Any]:
    """How many vectors are the same to the last bit, and the largest difference of a coordinate."""
    before = stored.raw(rows)
    return {
        "texts": len(rows),
        "identical": int((before == matrix).all(axis=1).sum()),
        "largest_difference": float(np.abs(before - matrix).max(initial=0.0)),
    }


def _scores(stored: Scores, pairs: list[PairScores]) -> dict[str, Any]:
    both = [(before, after) for before, after in stored.beside(pairs)]
    return {
        "pairs": len(both),
        "identical": sum(before == after for before, after in both),
        "largest_difference": max((abs(before - after) for before, after in both), default=0.0),
    }


def _rankings(job: Encoding, stored: Retrieval, fresh: Retrieval) -> dict[str, dict[str, int]]:
    """By view: of those that rank by a model and are not matched to a length, which show the same passages in other amounts."""
    views = {
        name: view
        for name in job.run.experiment.views
        if isinstance(view := find_view(name), RetrievalView) and view.match is None and any(view.model_work())
    }
    counts = {name: Changed() for name in views}
    # As it was ranked, by new vectors, and by new scores over the old vectors.
    kinds = (stored, Retrieval(stored.settings, fresh.vectors), Retrieval(stored.settings, stored.vectors, fresh.scores))
    ranked = (job.run.compiled(kind) for kind in kinds)
    for (before, about), (after, _), (reranked, _) in zip(*ranked, strict=True):
        for question in about:
            for name, view in views.items():
                again = reranked if view.model_work()[1] else after
                counts[name].add(view.ranked(before, question), view.ranked(again, question))
    return {name: vars(count) for name, count in counts.items()}
