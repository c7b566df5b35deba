"""What retrieval models do for a run, done once and kept: vectors of passages and questions, scores of candidate pairs."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from offline.canonical import Record, digest_of, read_record, self_digest, storage, write_lines, write_record
from offline.errors import AlteredError, ModelError
from offline.experiment import ResolvedExperiment, RetrievalSettings
from offline.freeze import memories
from offline.memory import Memory
from offline.models import Encoder, Reranker
from offline.passages import Chunk, cut, passages
from offline.run_folder import RunFolder
from offline.steps import model_work, read_data, read_extraction, upstream
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
from readers.encoders.embedding import EmbeddingModel
from readers.encoders.process import Call, model_process
from readers.encoders.reranking import RerankingModel
from readers.pins import identify, locate
from readers.records import Encoded, Model, RerankedBy

# What was finished of a step that was interrupted; gone when it is done.
JOURNAL = ".encode"
# Of the models, beside what they made.
ENCODER, RERANKER = "encoder.json", "reranker.json"
# Batches that are sent to a model's process, and journalled, at a time.
_BATCHES = 16
# (texts or pairs done, in all)
Progress = Callable[[int, int], None]


class Slice(Record, frozen=True):
    """Journalled output: float32 values, and how many inputs the window cut. `check`: digest of it with an empty check."""

    values: bytes
    cut: int
    check: str = ""


def vectors_step(run: RunFolder, experiment: ResolvedExperiment, progress: Progress) -> bool:
    """Write vectors/; True if it was written. Without the model on this machine, vectors that are up to date stay."""
    encoder = experiment.retrieval.encoder if experiment.retrieval else None
    assert encoder is not None  # model_work refuses an experiment whose views need one and that names none
    inputs = upstream(run, experiment, "vectors")
    found = _model(run, "vectors", inputs, encoder)
    if found is None:
        return False
    folder, model = found

    def write(out: Path) -> None:
        with model_process(EmbeddingModel, encoder, str(folder), whose=f"encoder {encoder.name!r}") as call:
            facts, rows, matrix, chunks = _encode(run, experiment, call, encoder, model, encoder.batch_size, progress)
        write_vectors(out, rows, matrix, chunks)
        write_record(out / ENCODER, facts)

    return run.step("vectors", {**inputs, "model": model.fingerprint}, write)


def reranked_step(run: RunFolder, experiment: ResolvedExperiment, progress: Progress) -> bool:
    """Write reranked/; True if it was written. Without the model on this machine, scores that are up to date stay."""
    reranker = experiment.retrieval.reranker if experiment.retrieval else None
    assert reranker is not None  # as above
    inputs = upstream(run, experiment, "reranked")
    found = _model(run, "reranked", inputs, reranker)
    if found is None:
        return False
    folder, model = found

    def write(out: Path) -> None:
        with model_process(RerankingModel, reranker, str(folder), whose=f"reranker {reranker.name!r}") as call:
            facts, scores = _rerank(run, experiment, call, reranker, model, reranker.batch_size, progress)
        write_lines(out / SCORES, scores)
        write_record(out / RERANKER, facts)

    return run.step("reranked", {**inputs, "model": model.fingerprint}, write)


def clear_journal(run: RunFolder) -> None:
    """Put away what an interrupted step had finished, once nothing is left to do."""
    with storage(run.path / JOURNAL):
        shutil.rmtree(run.path / JOURNAL, ignore_errors=True)


def _model(run: RunFolder, step: str, inputs: Mapping[str, str], pinned: Encoder | Reranker) -> tuple[Path, Model] | None:
    """A pinned model's folder and files; None if the step was made from these inputs and need not be looked at again."""
    made = run.has(step) and inputs.items() <= run.need(step).inputs.items()
    if made and pinned.model.repository is not None:
        return None  # A commit does not change, and the inputs name it.
    try:
        folder = locate(pinned)
    except ModelError:
        if made:
            return None
        raise
    return folder, identify(pinned, folder)


def _memories(run: RunFolder, experiment: ResolvedExperiment, retrieval: Retrieval | None = None) -> Iterator[Memory]:
    data, extraction = read_data(run), read_extraction(run)
    return memories(data.histories, extraction, experiment.settings, experiment.prompt.heading, retrieval=retrieval)


def _chunks(memory: Memory, call: Call, limit: int) -> list[Chunk]:
    """A history's chunks of whole records: so many tokens at most, or as many as the encoder's window holds."""
    lines, limit = memory.lines, min(limit, call("room"))
    # What a line break costs between two lines, which differs by tokenizer.
    alone, joined = call("count", ["a", "a\na"])
    sizes = [size + joined - 2 * alone for size in call("count", [line.text for line in lines])]
    return cut(memory.history.id, lines, sizes, limit, lambda text: call("spans", text, limit))


def _encode(
    run: RunFolder,
    experiment: ResolvedExperiment,
    call: Call,
    encoder: Encoder,
    model: Model,
    batch_size: int,
    progress: Progress,
) -> tuple[Encoded, list[TextRow], NDArray[np.float32], list[Chunk]]:
    """Vectors of all passages that views rank by them, and of all questions, each distinct text once."""
    numbers, units = experiment.retrieval or RetrievalSettings(), model_work(experiment).units
    chunks: list[Chunk] = []
    texts: dict[Role, dict[str, None]] = {"passage": {}, "query": {q.text: None for q in read_data(run).questions}}
    for memory in _memories(run, experiment):
        for unit in units:
            if unit == "chunk":
                cut_here = _chunks(memory, call, numbers.chunk_tokens)
                chunks += cut_here
                found = passages(cut_here, memory.lines)
            else:
                found = list(memory.corpus(unit).passages)
            texts["passage"].update((passage.text, None) for passage in found)
    environment = call("describe")
    key = (encoder, model.fingerprint, environment)
    total = sum(map(len, texts.values()))

    def encode(role: Role, before: int) -> tuple[NDArray[np.float32], int]:
        def work(some: list[str]) -> tuple[NDArray[np.float32], int]:
            return call("encode", role, some, batch_size), call("cut", role, some)

        journal, wanted = run.path / JOURNAL, list(texts[role])
        return _in_slices(journal, (*key, role), wanted, batch_size, work, lambda done: progress(before + done, total))

    (of_passages, passages_cut), (of_queries, queries_cut) = encode("passage", 0), encode("query", len(texts["passage"]))
    matrix = np.concatenate([part for part in (of_passages, of_queries) if len(part)])
    rows = [TextRow(role, text_digest(text)) for role, wanted in texts.items() for text in wanted]
    check_vectors(matrix, encoder.name)
    facts = Encoded(
        encoder=encoder,
        model=model,
        environment=environment,
        passages=len(texts["passage"]),
        queries=len(texts["query"]),
        dimension=matrix.shape[1],
        cut=passages_cut + queries_cut,
    )
    return facts, rows, matrix, chunks


def _rerank(
    run: RunFolder,
    experiment: ResolvedExperiment,
    call: Call,
    reranker: Reranker,
    model: Model,
    batch_size: int,
    progress: Progress,
) -> tuple[RerankedBy, list[PairScores]]:
    """Scores of every question with the best passages of its first stages, each distinct pair once."""
    candidates = _candidates(run, experiment)
    pairs = [(query, passage) for query, found in candidates.items() for passage in found]
    environment = call("describe")
    values, full = _in_slices(
        run.path / JOURNAL,
        (reranker, model.fingerprint, environment),
        pairs,
        batch_size,
        lambda some: call("score", some, batch_size),
        lambda count: progress(count, len(pairs)),
    )
    if not np.isfinite(values).all():
        raise ModelError(
            f"reranker {reranker.name!r}: {int((~np.isfinite(values)).sum())} scores are no numbers; try another dtype"
        )
    score_of = dict(zip(pairs, values[:, 0], strict=True))
    scores = [
        PairScores(
            query=text_digest(query),
            passages=tuple(text_digest(passage) for passage in found),
            # The shortest decimal that gives the same float32 again.
            scores=tuple(str(score_of[query, passage]) for passage in found),
        )
        for query, found in candidates.items()
    ]
    return RerankedBy(reranker=reranker, model=model, environment=environment, pairs=len(pairs), cut=full), scores


def _candidates(run: RunFolder, experiment: ResolvedExperiment) -> Mapping[str, dict[str, None]]:
    """For every question text, the passages to score: the best of each first stage, in each history that it is asked about."""
    work, numbers = model_work(experiment), experiment.retrieval or RetrievalSettings()
    vectors = read_vectors(run.step_folder("vectors")) if work.units else None
    candidates: dict[str, dict[str, None]] = {question.text: {} for question in read_data(run).questions}
    for memory in _memories(run, experiment, Retrieval(numbers, vectors)):
        for question in read_data(run).questions:
            for unit, first in work.stages if question.history == memory.history.id else ():
                best = memory.corpus(unit).rank(first, question.text, numbers.candidates)
                candidates[question.text].update((passage.text, None) for passage in best)
    return candidates


def _in_slices(
    journal: Path,
    key: Any,
    items: Sequence[Any],
    batch_size: int,
    work: Callable[[list[Any]], tuple[NDArray[np.float32], int]],
    progress: Callable[[int], None],
) -> tuple[NDArray[np.float32], int]:
    """The outputs of all items, float32[items, values of each], in their order, and how many items were cut.

    Longest first, equal ones by content, in batches of exactly `batch_size`, so that what shares a batch follows from the
    items alone. Finished slices are kept under the digest of what they were made from, and found again after a kill.
    """
    order = sorted(range(len(items)), key=lambda i: (-len("".join(items[i])), items[i]))
    rows: list[NDArray[np.float32]] = []
    total_cut = 0
    with storage(journal):
        journal.mkdir(exist_ok=True)
    for at in range(0, len(order), batch_size * _BATCHES):
        some = [items[i] for i in order[at : at + batch_size * _BATCHES]]
        path = journal / f"{digest_of((key, batch_size, some))}.json"
        if path.is_file():
            kept = read_record(path, Slice)
            if self_digest(kept, "check") != kept.check:
                raise AlteredError(f"{path}: its check does not fit its content; the file was altered: remove it, then go on")
        else:
            values, cut_here = work(some)
            kept = Slice(values.astype("<f4", copy=False).tobytes(), cut_here)
            write_record(path, msgspec.structs.replace(kept, check=self_digest(kept, "check")))
        rows.append(np.frombuffer(kept.values, dtype="<f4").reshape(len(some), -1))
        total_cut += kept.cut
        progress(at + len(some))
    made = np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)
    back = np.empty_like(made)
    back[order] = made
    return back, total_cut
