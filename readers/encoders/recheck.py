"""Encode again, with another batch size or on another machine, and compare vectors, scores and rankings."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from offline.canonical import read_record
from offline.config.models import Encoder, Reranker
from offline.errors import CommandError, ConfigurationError, ModelError
from offline.observer import SILENT, Observer
from offline.passages import Passage
from offline.run.opened import OpenRun
from offline.run.steps import model_work
from offline.vectors import Retrieval, Scores, Vectors
from offline.views import ModelWork
from offline.views.retrieval import ranking_views
from readers.encoders.encode import ENCODER, RERANKER, EncodedTexts, Encoding, encode_texts, score_pairs
from readers.models.pins import identify, kind_of, locate
from readers.records import Encoded, Model, RerankedBy


@dataclass
class Changed:
    """Rankings of one view, counted."""

    rankings: int = 0
    order: int = 0  # with another order
    chosen: int = 0  # with other chosen passages

    def add(self, before: list[Passage], after: list[Passage]) -> None:
        """Count one question."""
        self.rankings += 1
        self.order += before != after
        self.chosen += {passage.text for passage in before} != {passage.text for passage in after}


class ModelRecheck(msgspec.Struct, frozen=True, kw_only=True):
    """A model that made its outputs again."""

    name: str
    batch_size: int
    device: str
    identical: int  # outputs equal to the last bit
    largest_difference: float  # of vector coordinates, or of scores


class EncoderRecheck(ModelRecheck, frozen=True, kw_only=True):
    """An embedding model, by texts."""

    texts: int


class RerankerRecheck(ModelRecheck, frozen=True, kw_only=True):
    """A reranker, by pairs."""

    pairs: int


class Recheck(msgspec.Struct, frozen=True, kw_only=True):
    """Differences after encoding again."""

    run: str
    step: Literal["encode"] = "encode"
    encoder: EncoderRecheck | UnsetType = UNSET
    reranker: RerankerRecheck | UnsetType = UNSET
    rankings: dict[str, Changed]  # by view


def recheck(run: OpenRun, batch_size: int | None, observer: Observer = SILENT) -> Recheck:
    """Encode and score all texts of a run again and compare; the run does not change.

    batch_size: replaces the models' own. Views of vectors are ranked by the new vectors, reranked views by the new scores of
    their old candidates.
    """
    if batch_size is not None and batch_size < 1:
        raise CommandError("--batch-size must be at least 1")
    work, stored = model_work(run.experiment), run.retrieval
    if not work.units and not work.stages:
        raise ConfigurationError(f"{run.path}: no view of this run needs a model; there is nothing to encode again")
    fresh = stored
    of_encoder: EncoderRecheck | UnsetType = UNSET
    of_reranker: RerankerRecheck | UnsetType = UNSET
    with tempfile.TemporaryDirectory(prefix="coldread-encode-") as name:
        job = Encoding(run, Path(name) / "journal", observer.task("encode", "again", "texts"))
        encoder, reranker = stored.settings.encoder, stored.settings.reranker
        if stored.vectors is not None and encoder is not None:
            before = read_record(run.step_folder("vectors") / ENCODER, Encoded)
            made = encode_texts(job, _sized(encoder, batch_size), *_located(encoder, before.model))
            fresh = Retrieval(stored.settings, Vectors(made.rows, made.matrix, made.chunks), stored.scores)
            of_encoder = _vectors(made, stored.vectors.raw(made.rows))
        if stored.scores is not None and reranker is not None:
            scored = read_record(run.step_folder("reranked") / RERANKER, RerankedBy)
            facts, pairs = score_pairs(job, _sized(reranker, batch_size), *_located(reranker, scored.model))
            of_reranker = _scores(facts, list(stored.scores.beside(pairs)))
            fresh = Retrieval(stored.settings, fresh.vectors, Scores(pairs))
        rankings = _rankings(job, stored, fresh)
        return Recheck(run=str(run.path), encoder=of_encoder, reranker=of_reranker, rankings=rankings)


def _sized(model: Any, batch_size: int | None) -> Any:
    return model if batch_size is None else replace(model, batch_size=batch_size)


def _located(pinned: Encoder | Reranker, before: Model) -> tuple[Path, Model]:
    """A pinned model's folder and files; ModelError unless the run was encoded with the same files."""
    folder = locate(pinned)
    model = identify(pinned, folder)
    if model != before:
        raise ModelError(
            f"{kind_of(pinned)} {pinned.name!r}: {folder} has the fingerprint {model.fingerprint}, the run was encoded with "
            f"{before.fingerprint}: another model's outputs say nothing of this one's; restore the folder"
        )
    return folder, model


def _vectors(made: EncodedTexts, before: Any) -> EncoderRecheck:
    """Compare with the earlier vectors, one row per text."""
    return EncoderRecheck(
        name=made.facts.encoder.name,
        batch_size=made.facts.encoder.batch_size,
        device=made.facts.environment["device"],
        texts=len(made.rows),
        identical=int((before == made.matrix).all(axis=1).sum()),
        largest_difference=float(np.abs(before - made.matrix).max(initial=0.0)),
    )


def _scores(facts: RerankedBy, both: Sequence[tuple[float, float]]) -> RerankerRecheck:
    """Compare each pair's scores, before and after."""
    return RerankerRecheck(
        name=facts.reranker.name,
        batch_size=facts.reranker.batch_size,
        device=facts.environment["device"],
        pairs=len(both),
        identical=sum(before == after for before, after in both),
        largest_difference=max((abs(before - after) for before, after in both), default=0.0),
    )


def _rankings(job: Encoding, stored: Retrieval, fresh: Retrieval) -> dict[str, Changed]:
    """Changes by view; length-matched views are left out, since they show the same ranking to another length."""
    views = {name: view for name, view in ranking_views(job.run.experiment.views).items() if view.needs != ModelWork()}
    counts = {name: Changed() for name in views}
    # The stored ranking, by new vectors, and by new scores over the old vectors.
    kinds = (stored, Retrieval(stored.settings, fresh.vectors), Retrieval(stored.settings, stored.vectors, fresh.scores))
    ranked = (job.run.compiled(kind) for kind in kinds)
    for (before, about), (after, _), (reranked, _) in zip(*ranked, strict=True):
        for question in about:
            for name, view in views.items():
                again = reranked if view.needs.stages else after
                counts[name].add(view.ranked(before, question), view.ranked(again, question))
    return counts
