from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from worlds import experiment, settings

from extract.step import extract_step
from offline.canonical import digest_of, encode, write_lines
from offline.config.experiment import ResolvedExperiment, RetrievalSettings
from offline.config.models import Encoder, Pin, Reranker
from offline.errors import AlteredError, ConfigurationError, StateError
from offline.loaders.raw import RawSource
from offline.run.opened import OpenRun
from offline.run.steps import configuration_of, model_work, steps_before
from offline.run.writing import freeze_step, load_step
from offline.vectors import SCORES, PairScores, TextRow, text_digest, write_vectors

ENCODER = Encoder(name="mine", model=Pin(folder="/mine"))
RERANKER = Reranker(name="mine", model=Pin(folder="/mine"))
BOTH = RetrievalSettings(encoder=ENCODER, reranker=RERANKER)


def _experiment(*views: str, retrieval: RetrievalSettings | None = BOTH, **changes: object) -> ResolvedExperiment:
    plain = experiment(views=views, view_settings=settings(**changes))
    return plain if retrieval is None else msgspec.structs.replace(plain, retrieval=retrieval)


# What models must do


@pytest.mark.parametrize(
    ("views", "units", "stages"),
    [
        (("cmc", "raw_history", "closed_book"), (), ()),
        (("fact_bm25", "fact_bm25_matched", "chunk4096_bm25", "window_bm25_k3"), (), ()),
        (("fact_dense_k3",), ("fact",), ()),
        (("window_dense", "fact_hybrid", "fact_dense"), ("fact", "window"), ()),
        # Boundaries in tokens of the encoder are needed whatever ranks the chunks.
        (("chunk_bm25",), ("chunk",), ()),
        (("fact_bm25_rerank", "fact_bm25_rerank_k3"), (), (("fact", "bm25"),)),
        (
            ("chunk_dense_rerank", "chunk4096_hybrid_rerank"),
            ("chunk", "chunk4096"),
            (("chunk", "dense"), ("chunk4096", "hybrid")),
        ),
        # What a view is matched to must be frozen too.
        (("fact_bm25_matched_to_chunk_dense_rerank",), ("chunk",), (("chunk", "dense"),)),
        (("fact_bm25_matched_to_fact_bm25_matched_to_window_dense",), ("window",), ()),
        (("fact_dense_matched_to_chunk_bm25_rerank",), ("chunk", "fact"), (("chunk", "bm25"),)),
    ],
)
def test_the_views_say_which_passages_models_must_encode_and_which_stages_they_must_score(
    views: tuple[str, ...], units: tuple[str, ...], stages: tuple[tuple[str, str], ...]
) -> None:
    work = model_work(_experiment(*views))
    assert (work.units, work.stages) == (units, stages)


@pytest.mark.parametrize(
    ("view", "retrieval", "kind"),
    [
        ("fact_dense", None, "encoder"),
        ("fact_dense", RetrievalSettings(reranker=RERANKER), "encoder"),
        ("chunk_bm25", RetrievalSettings(), "encoder"),
        ("chunk_dense_rerank", RetrievalSettings(encoder=ENCODER), "reranker"),
        ("fact_bm25_rerank_k3", None, "reranker"),
        ("fact_bm25_matched_to_fact_dense", None, "encoder"),
    ],
)
def test_a_view_whose_model_is_not_named_is_refused_with_the_cure(
    view: str, retrieval: RetrievalSettings | None, kind: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        model_work(_experiment("cmc", view, retrieval=retrieval))
    assert str(caught.value) == (
        f"view '{view}' needs a model: name one in the experiment, `retrieval: {{{kind}: NAME}}` "
        f"(configs/{kind}s holds those that are shipped)"
    )


def test_a_retrieval_view_without_a_model_needs_no_retrieval_section() -> None:
    work = model_work(_experiment("fact_bm25", "chunk4096_bm25_matched_to_window_bm25", retrieval=None))
    assert (work.units, work.stages) == ((), ())


@pytest.mark.parametrize("view", ["fact_tfidf", "nothing", "fact_bm25_matched_to_nothing"])
def test_an_unknown_view_is_refused_before_anything_runs(view: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown view"):
        model_work(_experiment("cmc", view))


@pytest.mark.parametrize("view", ["fact_hybrid_k101", "fact_bm25_rerank_k101", "fact_bm25_matched_to_fact_hybrid_k101"])
def test_a_view_that_shows_more_than_fusion_and_reranking_tell_apart_is_refused(view: str) -> None:
    with pytest.raises(ConfigurationError, match=f"view '{view}' would show 101 passages, but .* go 100 deep"):
        model_work(_experiment(view))
    model_work(_experiment(view, retrieval=_with(candidates=101)))
    model_work(_experiment(view.replace("101", "100")))


@pytest.mark.parametrize("view", ["fact_dense_k101", "chunk4096_bm25_k101"])
def test_a_ranking_of_all_passages_has_no_such_bound(view: str) -> None:
    model_work(_experiment(view))


# What a step is made from


@pytest.mark.parametrize(
    ("views", "before"),
    [
        (("cmc", "fact_bm25"), ("data", "extraction")),
        (("fact_dense",), ("data", "extraction", "vectors")),
        (("fact_bm25_rerank",), ("data", "extraction", "reranked")),
        (("chunk_dense_rerank",), ("data", "extraction", "vectors", "reranked")),
    ],
)
def test_packets_are_made_from_the_models_steps_that_their_views_need(views: tuple[str, ...], before: tuple[str, ...]) -> None:
    asked = _experiment(*views)
    assert steps_before(asked, "packets") == before
    for step in set(before) & {"vectors", "reranked"}:
        assert steps_before(asked, step) == before[: before.index(step)]
    assert [steps_before(asked, step) for step in ("data", "labels", "extraction")] == [(), ("data",), ("data",)]


def test_an_experiment_without_a_retrieval_section_has_the_bytes_and_digests_of_one_from_before_there_was_one() -> None:
    plain = _experiment("cmc", "fact_bm25", retrieval=None)
    assert b"retrieval" not in encode(plain)
    assert configuration_of(plain, "packets") == digest_of((plain.settings, plain.prompt, plain.views))
    # An empty section is one all the same: its numbers could be other ones.
    empty = _experiment("cmc", "fact_bm25", retrieval=RetrievalSettings())
    assert configuration_of(empty, "packets") != configuration_of(plain, "packets")


def _with(**changes: object) -> RetrievalSettings:
    return msgspec.structs.replace(BOTH, **changes)


VIEWS = ("chunk_dense_rerank", "fact_hybrid_rerank")
OTHER_ENCODER = msgspec.structs.replace(ENCODER, batch_size=7)
OTHER_RERANKER = msgspec.structs.replace(RERANKER, max_tokens=7)
CHANGES: dict[str, tuple[ResolvedExperiment, set[str]]] = {
    "encoder": (_experiment(*VIEWS, retrieval=_with(encoder=OTHER_ENCODER)), {"vectors", "packets"}),
    "chunk_tokens": (_experiment(*VIEWS, retrieval=_with(chunk_tokens=7)), {"vectors", "packets"}),
    "reranker": (_experiment(*VIEWS, retrieval=_with(reranker=OTHER_RERANKER)), {"reranked", "packets"}),
    "candidates": (_experiment(*VIEWS, retrieval=_with(candidates=170)), {"reranked", "packets"}),
    "rrf": (_experiment(*VIEWS, retrieval=_with(rrf=7)), {"reranked", "packets"}),
    "tokenizer": (_experiment(*VIEWS, tokenizer="unicode"), {"reranked", "packets"}),
    "chunk_k": (_experiment(*VIEWS, retrieval=_with(chunk_k=7)), {"packets"}),
    "windows": (_experiment(*VIEWS, retrieval=_with(windows=7)), {"packets"}),
    "k": (_experiment(*VIEWS, k=7), {"packets"}),
    "budget": (_experiment(*VIEWS, budget=7_000), {"packets"}),
    "k in a name": (_experiment("chunk_dense_rerank_k3", "fact_hybrid_rerank"), {"packets"}),
    "a view without a model": (_experiment(*VIEWS, "cmc"), {"packets"}),
    "another unit": (_experiment(*VIEWS, "window_dense"), {"vectors", "packets"}),
    "another stage": (_experiment(*VIEWS, "fact_dense_rerank"), {"reranked", "packets"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_step_is_made_anew_exactly_where_a_setting_can_change_it(name: str) -> None:
    before, (after, expected) = _experiment(*VIEWS), CHANGES[name]
    steps = ("data", "extraction", "vectors", "reranked", "packets")
    assert {step for step in steps if configuration_of(before, step) != configuration_of(after, step)} == expected


# A run whose model steps are made by hand

ROW = (
    '{"history": "world", "statements": ["Ada leads to Bo.", "Bo leads to Cy.", "Cy leads to Di."], '
    '"questions": [{"id": "0", "text": "Ada?"}]}\n'
)
STATEMENTS = ["Ada leads to Bo.", "Bo leads to Cy.", "Cy leads to Di."]
DENSE = ("fact_dense_k1", "fact_dense_rerank_k1")


@pytest.fixture
def run(tmp_path: Path) -> OpenRun:
    """A run with data, extraction, vectors that say `Bo leads to Cy.`, and scores that say `Cy leads to Di.`."""
    folder, asked = OpenRun(tmp_path / "run"), _experiment(*DENSE)
    (tmp_path / "rows.jsonl").write_text(ROW)
    folder.create(asked)
    load_step(folder, RawSource(path=tmp_path / "rows.jsonl"))
    extract_step(folder)
    folder.step("vectors", folder.upstream("vectors"), _write_vectors(1))
    pairs = PairScores(text_digest("Ada?"), tuple(map(text_digest, STATEMENTS)), ("0.1", "0.2", "0.3"))
    folder.step("reranked", folder.upstream("reranked"), lambda out: write_lines(out / SCORES, [pairs]))
    return folder


def _write_vectors(nearest: int) -> Callable[[Path], None]:
    rows = [*(TextRow("passage", text_digest(text)) for text in STATEMENTS), TextRow("query", text_digest("Ada?"))]
    matrix = np.array([*([float(at == nearest), float(at != nearest)] for at in range(3)), [1.0, 0.0]], dtype=np.float32)
    return lambda out: write_vectors(out, rows, matrix, [])


def _shown(run: OpenRun) -> dict[str, str]:
    packets, evidence = run.packets(DENSE), run.evidence
    return {view: evidence[packets[view][0].evidence].text.splitlines()[1] for view in DENSE}


def test_packets_are_frozen_from_what_the_models_steps_hold(run: OpenRun) -> None:
    assert freeze_step(run, len, "characters")
    assert _shown(run) == {"fact_dense_k1": "[1] Bo leads to Cy.", "fact_dense_rerank_k1": "[2] Cy leads to Di."}
    assert not freeze_step(run, len, "characters")


def test_other_vectors_make_scores_and_packets_out_of_date(run: OpenRun) -> None:
    freeze_step(run, len, "characters")
    run.step("vectors", {**run.upstream("vectors"), "model": "another"}, _write_vectors(0))
    with pytest.raises(StateError, match=r"reranked was made from another vectors .* run `coldread encode"):
        freeze_step(run, len, "characters")


def test_vectors_that_are_missing_or_altered_are_named(run: OpenRun, tmp_path: Path) -> None:
    path = run.step_folder("vectors") / "vectors.f32"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(AlteredError, match=r"vectors\.f32"):
        assert OpenRun(run.path).retrieval
    for name in list(run.step_folder("vectors").iterdir()):
        name.unlink()
    run.step_folder("vectors").rmdir()
    with pytest.raises(StateError, match=r"'vectors' has not run; run `coldread encode"):
        assert OpenRun(run.path).retrieval


def test_an_experiment_whose_views_need_no_model_reads_none(run: OpenRun) -> None:
    run.create(_experiment("cmc", "fact_bm25", retrieval=RetrievalSettings(chunk_k=3)))
    read = run.retrieval
    assert (read.vectors, read.scores, read.settings.chunk_k) == (None, None, 3)
