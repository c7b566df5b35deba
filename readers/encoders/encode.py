"""Retrieval models' work for a run, done once and stored: vectors of passages and questions, scores of candidate pairs."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offline.canonical import storage, write_lines, write_record
from offline.config.experiment import RetrievalSettings
from offline.config.models import Encoder, Reranker
from offline.errors import ModelError
from offline.memory import Memory
from offline.observer import SILENT, Observer, Task
from offline.passages import Chunk, Passage, cut, passages
from offline.run.opened import OpenRun
from offline.run.steps import MODEL_STEPS, model_work
from offline.vectors import (
    SCORES,
    PairScores,
    Retrieval,
    Role,
    TextRow,
    check_vectors,
    read_vectors,
    text_digest,
    write_vectors,
)
from offline.views import ModelWork
from readers.encoders.embedding import EmbeddingModel
from readers.encoders.journalled import in_slices
from readers.encoders.process import Call, model_process
from readers.encoders.reranking import RerankingModel
from readers.models.pins import model_for_step
from readers.records import Encoded, Model, RerankedBy

JOURNAL = ".encode"  # finished slices of an interrupted step
ENCODER, RERANKER = "encoder.json", "reranker.json"  # provenance, beside the outputs


@dataclass(frozen=True)
class Encoding:
    """A run whose texts or pairs a model processes."""

    run: OpenRun
    journal: Path  # folder of finished slices
    task: Task  # told of progress

    @property
    def numbers(self) -> RetrievalSettings:
        """The retrieval settings."""
        return self.run.experiment.retrieval or RetrievalSettings()


@dataclass(frozen=True)
class EncodedTexts:
    """Output of an embedding model."""

    facts: Encoded
    rows: list[TextRow]  # the text of each row
    matrix: NDArray[np.float32]  # float32[texts, dimension]
    chunks: list[Chunk]  # cut by its tokenizer


def vectors_step(run: OpenRun, observer: Observer = SILENT) -> bool:
    """Write vectors/; True if it was written. Vectors that are up to date stay, even without the model on this machine."""
    encoder = (run.experiment.retrieval or RetrievalSettings()).encoder
    assert encoder is not None  # model_work refuses an experiment whose views need one and that names none

    def write(out: Path, folder: Path, model: Model) -> None:
        job = Encoding(run, run.path / JOURNAL, observer.task("encode", encoder.name, "texts"))
        made = encode_texts(job, encoder, folder, model)
        write_vectors(out, made.rows, made.matrix, made.chunks)
        write_record(out / ENCODER, made.facts)

    return _step(run, "vectors", encoder, write)


def reranked_step(run: OpenRun, observer: Observer = SILENT) -> bool:
    """Write reranked/; True if it was written. Scores that are up to date stay, even without the model on this machine."""
    reranker = (run.experiment.retrieval or RetrievalSettings()).reranker
    assert reranker is not None  # as above

    def write(out: Path, folder: Path, model: Model) -> None:
        job = Encoding(run, run.path / JOURNAL, observer.task("encode", reranker.name, "texts"))
        facts, scores = score_pairs(job, reranker, folder, model)
        write_lines(out / SCORES, scores)
        write_record(out / RERANKER, facts)

    return _step(run, "reranked", reranker, write)


def _step(run: OpenRun, step: str, pinned: Encoder | Reranker, write: Callable[[Path, Path, Model], None]) -> bool:
    """Run a step whose output a pinned model makes: `write(out, model_folder, model)`; True if it was written."""
    inputs = run.upstream(step)
    found = model_for_step(run, step, inputs, pinned)
    if found is None:
        return False
    folder, model = found
    return run.step(step, {**inputs, "model": model.fingerprint}, lambda out: write(out, folder, model))


def clear_leftovers(run: OpenRun, work: ModelWork) -> None:
    """Remove the journal, and model steps that the experiment of this unsealed run no longer needs."""
    needed = {"vectors": work.units, "reranked": work.stages}
    with storage(run.path / JOURNAL):
        for name in (JOURNAL, *(step for step in MODEL_STEPS if not needed[step] and not run.sealed_readers())):
            shutil.rmtree(run.path / name, ignore_errors=True)


def encode_texts(job: Encoding, encoder: Encoder, folder: Path, model: Model) -> EncodedTexts:
    """Vectors of all passages that views rank by vectors, and of all questions; each distinct text once."""
    with model_process(EmbeddingModel, encoder, str(folder), whose=f"encoder {encoder.name!r}") as call:
        passages_of, queries, chunks = _texts(job, call)
        environment = call("describe")
        total = len(passages_of) + len(queries)

        def encode(role: Role, texts: list[str], before: int) -> tuple[NDArray[np.float32], int]:
            def work(some: list[str]) -> tuple[NDArray[np.float32], int]:
                return call("encode", role, some, encoder.batch_size), call("cut", role, some)

            key = (encoder, model.fingerprint, environment, role)
            return in_slices(job.journal, key, texts, encoder.batch_size, work, lambda done: job.task.at(before + done, total))

        of_passages, passages_cut = encode("passage", passages_of, 0)
        of_queries, queries_cut = encode("query", queries, len(passages_of))
    matrix = np.concatenate([part for part in (of_passages, of_queries) if len(part)])
    check_vectors(matrix, encoder.name)
    facts = Encoded(
        encoder=encoder,
        model=model,
        environment=environment,
        passages=len(passages_of),
        queries=len(queries),
        dimension=matrix.shape[1],
        cut=passages_cut + queries_cut,
    )
    rows = [TextRow("passage", text_digest(text)) for text in passages_of]
    return EncodedTexts(facts, rows + [TextRow("query", text_digest(text)) for text in queries], matrix, chunks)


def _texts(job: Encoding, call: Call) -> tuple[list[str], list[str], list[Chunk]]:
    """Distinct passages and questions in order of first appearance, and the chunks cut by the encoder's tokenizer."""
    units = model_work(job.run.experiment).units
    chunks: list[Chunk] = []
    texts: dict[str, None] = {}
    for memory, _ in job.run.compiled():
        for unit in units:
            if unit == "chunk":
                own = _chunks(memory, call, job.numbers.chunk_tokens)
                chunks += own
                found: Sequence[Passage] = passages(own, memory.lines)
            else:
                found = memory.corpus(unit).passages
            texts.update((passage.text, None) for passage in found)
    return list(texts), list(dict.fromkeys(question.text for question in job.run.data.questions)), chunks


def _chunks(memory: Memory, call: Call, limit: int) -> list[Chunk]:
    """A history's chunks of whole records, within `limit` tokens and the encoder's window."""
    lines, limit = memory.lines, min(limit, call("room"))
    # The tokens of a line break depend on the tokenizer.
    alone, joined = call("count", ["a", "a\na"])
    sizes = [size + joined - 2 * alone for size in call("count", [line.text for line in lines])]
    return cut(memory.history.id, lines, sizes, limit, lambda text: call("spans", text, limit))


def score_pairs(job: Encoding, reranker: Reranker, folder: Path, model: Model) -> tuple[RerankedBy, list[PairScores]]:
    """Scores of every question with the best passages of its first stages; each distinct pair once."""
    candidates = _candidates(job)
    pairs = [(query, passage) for query, found in candidates.items() for passage in found]
    with model_process(RerankingModel, reranker, str(folder), whose=f"reranker {reranker.name!r}") as call:
        environment = call("describe")
        values, full = in_slices(
            job.journal,
            (reranker, model.fingerprint, environment),
            pairs,
            reranker.batch_size,
            lambda some: call("score", some, reranker.batch_size),
            lambda done: job.task.at(done, len(pairs)),
        )
    if wrong := int((~np.isfinite(values)).sum()):
        raise ModelError(f"reranker {reranker.name!r}: {wrong} scores are no numbers; try another dtype")
    score_of = dict(zip(pairs, values[:, 0], strict=True))
    scores = [
        PairScores(
            query=text_digest(query),
            passages=tuple(text_digest(passage) for passage in found),
            # The shortest decimal that round-trips to the same float32.
            scores=tuple(str(score_of[query, passage]) for passage in found),
        )
        for query, found in candidates.items()
    ]
    return RerankedBy(reranker=reranker, model=model, environment=environment, pairs=len(pairs), cut=full), scores


def _candidates(job: Encoding) -> Mapping[str, dict[str, None]]:
    """For every question text, the passages to score: the best of each first stage, in each history it is asked about."""
    work = model_work(job.run.experiment)
    vectors = read_vectors(job.run.step_folder("vectors")) if work.units else None
    candidates: dict[str, dict[str, None]] = {question.text: {} for question in job.run.data.questions}
    for memory, about in job.run.compiled(Retrieval(job.numbers, vectors)):
        for question in about:
            for unit, first in work.stages:
                best = memory.corpus(unit).rank(first, question.text, job.numbers.candidates)
                candidates[question.text].update((passage.text, None) for passage in best)
    return candidates
