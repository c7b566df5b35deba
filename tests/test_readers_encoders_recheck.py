"""Encoding again: what comes out otherwise is counted, and the run stays as it is."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tiny import coldread, write_experiment, write_rows

from offline.canonical import read_lines, write_lines
from offline.run.manifest import MANIFEST, make_manifest, read_manifest
from offline.vectors import PairScores

pytestmark = pytest.mark.usefixtures("warm")

VIEWS = ["cmc", "fact_bm25", "fact_dense", "fact_dense_k1", "fact_dense_matched", "fact_dense_rerank_k1"]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, tiny_encoder: Path, tiny_cross_encoder: Path) -> Path:
    """A frozen run with vectors and scores, in batches of 2."""
    folder = tmp_path_factory.mktemp("recheck")
    named = {"encoder": tiny_encoder, "reranker": tiny_cross_encoder}
    retrieval = {kind: {"name": kind, "model": {"folder": str(at)}, "batch_size": 2} for kind, at in named.items()}
    experiment = write_experiment(folder, tiny_model, views=VIEWS, retrieval=retrieval, readers=[])
    coldread("run", str(experiment), "--data", str(write_rows(folder)), "--out", str(folder / "run"), "--until", "freeze")
    return folder / "run"


@pytest.fixture
def run(encoded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoded, tmp_path / "run"))


def reseal(run: Path, step: str) -> None:
    """Make a step's manifest, and those made from it, fit files that a test changed."""
    for name in {"vectors": ("vectors", "reranked"), "reranked": ("reranked",)}[step]:
        manifest = read_manifest(run / name)
        inputs = {
            key: read_manifest(run / key).digest if (run / key).is_dir() else value for key, value in manifest.inputs.items()
        }
        made = make_manifest(run / name, manifest.step, inputs, [entry.name for entry in manifest.files])
        (run / name / MANIFEST).write_bytes(msgspec.json.encode(made, order="sorted") + b"\n")


def test_the_same_machine_and_batch_size_give_the_same_bytes_and_the_run_stays_as_it_is(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = json.loads(coldread("encode", str(run), "--check", "--json").stdout)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    stored = json.loads((run / "vectors" / "encoder.json").read_text())
    assert found["encoder"]["texts"] == found["encoder"]["identical"] == stored["passages"] + stored["queries"]
    assert found["reranker"]["pairs"] == found["reranker"]["identical"] > 0
    assert (found["encoder"]["largest_difference"], found["encoder"]["batch_size"]) == (0, 2)
    # Five questions a view; cmc, BM25 and a matched view rank nothing of their own by a model.
    unchanged = {"rankings": 5, "order": 0, "chosen": 0}
    assert found["rankings"] == dict.fromkeys(("fact_dense", "fact_dense_k1", "fact_dense_rerank_k1"), unchanged)


def test_another_batch_size_is_tried_and_named(run: Path) -> None:
    found = json.loads(coldread("encode", str(run), "--check", "--batch-size", "1", "--json").stdout)
    assert (found["encoder"]["batch_size"], found["reranker"]["batch_size"]) == (1, 1)
    assert found["encoder"]["largest_difference"] < 1e-5


def test_a_vector_that_was_another_is_counted_with_the_rankings_that_it_changes(run: Path) -> None:
    path = run / "vectors" / "vectors.f32"
    rows = [json.loads(line)["role"] for line in (run / "vectors" / "texts.jsonl").read_text().splitlines()]
    vectors = np.frombuffer(path.read_bytes(), dtype="<f4").reshape(len(rows), -1).copy()
    # Every question points the other way: what was nearest is farthest, in either order of two facts or more.
    vectors[[role == "query" for role in rows]] *= -1
    path.write_bytes(vectors.tobytes())
    reseal(run, "vectors")
    found = json.loads(coldread("encode", str(run), "--check", "--json").stdout)
    questions = rows.count("query")
    assert found["encoder"]["identical"] == found["encoder"]["texts"] - questions
    assert found["encoder"]["largest_difference"] == pytest.approx(2 * float(np.abs(vectors[-questions:]).max()))
    # All facts are shown, in another order. Carl's history has one current fact, so its two questions cannot change.
    assert found["rankings"]["fact_dense"] == {"rankings": 5, "order": 3, "chosen": 0}
    assert found["rankings"]["fact_dense_k1"] == {"rankings": 5, "order": 3, "chosen": 3}
    assert found["rankings"]["fact_dense_rerank_k1"]["order"] == 0


def test_a_score_that_was_another_is_counted_with_the_rankings_that_it_changes(run: Path) -> None:
    path = run / "reranked" / "scores.jsonl"
    pairs = list(read_lines(path, PairScores))
    turned = [msgspec.structs.replace(pair, scores=tuple(str(-float(score)) for score in pair.scores)) for pair in pairs]
    write_lines(path, turned)
    reseal(run, "reranked")
    found = json.loads(coldread("encode", str(run), "--check", "--json").stdout)
    count = sum(len(pair.passages) for pair in pairs)
    assert (found["reranker"]["pairs"], found["reranker"]["identical"]) == (count, 0)
    assert found["rankings"]["fact_dense_rerank_k1"] == {"rankings": 5, "order": 3, "chosen": 3}
    assert found["rankings"]["fact_dense"]["order"] == 0


def test_the_table_says_what_changed_in_a_hundred_columns(run: Path) -> None:
    printed = coldread("encode", str(run), "--check").stdout
    assert "encoder, batch size 2 on cpu" in printed
    assert max(len(line.rstrip()) for line in printed.splitlines() if "─" in line or "fact_" in line) <= 100


@pytest.mark.parametrize("kind", ["encoder", "reranker"])
def test_another_model_in_the_folder_is_refused_and_not_counted_as_a_difference(
    kind: str, tiny_model: Path, tiny_encoder: Path, tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    named = {"encoder": tiny_encoder, "reranker": tiny_cross_encoder}
    folders = {name: Path(shutil.copytree(at, tmp_path / name)) for name, at in named.items()}
    retrieval = {name: {"name": name, "model": {"folder": str(at)}} for name, at in folders.items()}
    experiment = write_experiment(tmp_path, tiny_model, views=["chunk_dense_rerank"], retrieval=retrieval, readers=[])
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run), "--until", "freeze")
    config = folders[kind] / "tokenizer_config.json"
    config.write_text(config.read_text().replace("256", "64"))
    refused = coldread("encode", str(run), "--check", code=6).stderr
    assert f"{kind} '{kind}': {folders[kind]} has the fingerprint" in refused


def test_a_batch_size_goes_with_a_check_and_is_a_number_of_texts(run: Path) -> None:
    assert "goes with --check" in coldread("encode", str(run), "--batch-size", "1", code=2).stderr
    assert "at least 1" in coldread("encode", str(run), "--check", "--batch-size", "0", code=2).stderr


def test_a_run_without_models_has_nothing_to_encode_again(tiny_model: Path, tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path, tiny_model, readers=[])
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run), "--until", "freeze")
    assert "nothing to encode again" in coldread("encode", str(run), "--check", code=3).stderr


def test_vectors_that_no_view_needs_any_more_are_put_away_and_left_over_ones_found(
    run: Path, encoded: Path, tiny_model: Path, tmp_path: Path
) -> None:
    experiment = write_experiment(tmp_path, tiny_model)
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run))
    assert {path.name for path in run.iterdir()}.isdisjoint({"vectors", "reranked"})
    coldread("replay", str(run))
    shutil.copytree(encoded / "vectors", run / "vectors")
    assert "no view of this run's experiment needs it" in coldread("replay", str(run), code=20).stderr
