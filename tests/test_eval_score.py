"""Scoring and coverage: counts by hand, disagreements listed, refusals before a label is opened."""

import json
import re
import shutil
from pathlib import Path

import pytest
from tiny import ROWS, coldread, write_experiment, write_rows

from eval.records import Cell, Score
from eval.score import tabulate
from offline.canonical import read_lines


def score(view: str, hop_class: str, length: str, subem: bool, strict: bool = False) -> Score:
    return Score(
        reader="r",
        view=view,
        question="q",
        row="row",
        hop_class=hop_class,  # type: ignore[arg-type]
        hops=None,
        length=length,
        prediction="",
        finish_reason="stop",
        golds=("g",),
        cut=0,
        metrics={"subem": subem, "strict_em": strict},
    )


def test_cells_count_by_view_hops_and_length_and_pool_lengths() -> None:
    scores = [
        score("cmc", "sh", "6k", True, True),
        score("cmc", "sh", "6k", False),
        score("cmc", "sh", "32k", True),
        score("cmc", "mh", "6k", False),
    ]
    cells = {(c.view, c.hop_class, c.length): (c.questions, c.correct) for c in tabulate(scores, blind=True)}
    assert cells == {
        ("cmc", "sh", None): (3, {"subem": 2, "strict_em": 1}),
        ("cmc", "mh", None): (1, {"subem": 0, "strict_em": 0}),
        ("cmc", "sh", "6k"): (2, {"subem": 1, "strict_em": 1}),
        ("cmc", "sh", "32k"): (1, {"subem": 1, "strict_em": 0}),
        ("cmc", "mh", "6k"): (1, {"subem": 0, "strict_em": 0}),
    }


def test_score_json_has_the_documented_shape(copied_run: Path) -> None:
    summary = json.loads(coldread("score", str(copied_run), "--json").stdout)
    assert set(summary["readers"]) == {"tiny"}
    assert set(summary["readers"]["tiny"]) == {"cmc", "stale_closure", "raw_history", "closed_book"}
    cell = summary["readers"]["tiny"]["cmc"]["sh"]
    assert cell == {"questions": 4, "subem": cell["subem"], "strict_em": cell["strict_em"], "subem_words": cell["subem_words"]}
    assert summary["readers"]["tiny"]["cmc"]["mh"]["questions"] == 1


def test_the_table_folds_a_long_views_name_and_cuts_no_number(tiny_model: Path, tmp_path: Path) -> None:
    # rich would cut the intervals, "0.00-48.…", to make room for the name.
    view = "fact_bm25_matched_to_fact_bm25_k2"
    experiment = write_experiment(tmp_path, tiny_model, views=[view])
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"))
    shown = coldread("score", str(tmp_path / "run")).stdout
    assert "…" not in shown
    assert max(len(line) for line in shown.splitlines() if not line.startswith("tiny, ")) <= 100
    cells = list(read_lines(tmp_path / "run" / "scores" / "tiny" / "cells.jsonl", Cell))
    assert all(f"{cell.low}-{cell.high}" in shown for cell in cells)


def test_the_table_counts_by_length_only_where_there_are_several(copied_run: Path, tiny_model: Path, tmp_path: Path) -> None:
    # Histories of 5 and of 3 statements; then the first alone: three questions, two of one hop and one of two.
    several = coldread("score", str(copied_run)).stdout
    assert re.findall(r"^ cmc +sh +(\w+) +(\d+) ", several, re.M) == [("all", "4"), ("5", "2"), ("3", "2")]
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"])
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path, ROWS[:1])), "--out", str(tmp_path / "run"))
    one = coldread("score", str(tmp_path / "run")).stdout
    assert "length" not in one
    assert re.findall(r"^ cmc +(\w+) +(\d+) ", one, re.M) == [("sh", "2"), ("mh", "1")]


def test_every_item_on_which_metrics_disagree_is_listed(copied_run: Path) -> None:
    scores = list(read_lines(copied_run / "scores" / "tiny" / "scores.jsonl", Score))
    listed = list(read_lines(copied_run / "scores" / "tiny" / "disagreements.jsonl", Score))
    assert listed == [s for s in scores if len(set(s.metrics.values())) == 2]
    assert len(scores) == 20


def test_coverage_json_counts_what_the_evidence_holds(tiny_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["run", str(write_experiment(tmp_path, tiny_model)), "--data", str(write_rows(tmp_path)), "--out", str(run)]
    coldread(*command, "--until", "freeze")
    views = json.loads(coldread("coverage", str(run), "--json").stdout)["views"]
    # sh: ada/0 Paris, ada/2 Rome, carl/0 Bergen are shown by cmc; carl/1 has no anchor and no gold anywhere.
    # stale_closure shows Ada in Rome for ada/0 and so "Paris lies on the river Seine." (cmc's keys): the string Paris is there,
    # but as a subject; Bob never moved; Carl's older home is Oslo.
    assert views["cmc"]["sh"]["questions"] == 4
    assert (views["cmc"]["sh"]["gold_in_evidence"], views["cmc"]["sh"]["gold_as_value"]) == (3, 3)
    assert (views["stale_closure"]["sh"]["gold_in_evidence"], views["stale_closure"]["sh"]["gold_as_value"]) == (2, 1)
    # mh: the home of Ada is Paris, its river the Seine; cmc's keys with older values still hold Paris's only river.
    assert (views["cmc"]["mh"]["gold_in_evidence"], views["stale_closure"]["mh"]["gold_in_evidence"]) == (1, 1)
    assert views["closed_book"]["sh"]["gold_in_evidence"] == 0
    assert views["cmc"]["truncated"] == 0
    assert views["cmc"]["fallbacks"] == 1


def test_scoring_an_unsealed_run_is_refused_before_labels_are_opened(tiny_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["run", str(write_experiment(tmp_path, tiny_model)), "--data", str(write_rows(tmp_path)), "--out", str(run)]
    coldread(*command, "--until", "freeze")
    assert "not sealed" in coldread("score", str(run), code=10).stderr
    assert not (run / "labels" / "ledger.jsonl").exists()


def test_scoring_again_from_nothing_gives_the_same_bytes(copied_run: Path) -> None:
    scores = copied_run / "scores"
    before = {p.relative_to(scores): p.read_bytes() for p in scores.rglob("*") if p.is_file()}
    shutil.rmtree(scores)
    coldread("score", str(copied_run))
    assert {p.relative_to(scores): p.read_bytes() for p in scores.rglob("*") if p.is_file()} == before


def test_evidence_cut_by_the_input_cap_is_counted_in_seal_scores_and_table(tiny_model: Path, tmp_path: Path) -> None:
    # 600 ids hold the instructions and a few records of raw_history, not all five of Ada's.
    reader = {"name": "tiny", "engine": "digest", "model": {"folder": str(tiny_model)}, "output_cap": 2}
    experiment = write_experiment(tmp_path, tiny_model, views=["raw_history"], readers=[{"use": {**reader, "input_cap": 480}}])
    run = tmp_path / "run"
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run), "--json"]
    summary = json.loads(coldread(*command).stdout)
    cells = [cell for cell in read_lines(run / "scores" / "tiny" / "cells.jsonl", Cell) if cell.length is None]
    assert summary["seals"]["tiny"]["cut"] == sum(cell.cut for cell in cells) == 3
    story = coldread("show", str(run), "ada/0").stdout
    assert "oldest records cut" in story


def test_the_table_names_its_interval(copied_run: Path) -> None:
    cells = list(read_lines(copied_run / "scores" / "tiny" / "cells.jsonl", Cell))
    table = coldread("score", str(copied_run)).stdout
    assert f"{cells[0].low}-{cells[0].high}" in table


@pytest.mark.real_data
def test_the_coverage_table_of_the_specification_comes_out(real_data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["run", "factconsolidation", "--data", str(real_data), "--out", str(run), "--until", "freeze"]
    coldread(*command)
    views = json.loads(coldread("coverage", str(run), "--json").stdout)["views"]
    # view: gold in evidence of 400 sh, of 400 mh, tolerance, truncated of 800
    expected = {
        "cmc": (393, 340, 2, 0),
        "stale_closure": (329, 164, 2, 0),
        "prior_refresh": (397, 101, 2, 0),
        "latest_state": (337, 291, 2, 600),
        "stale_state": (278, 196, 2, 600),
        "raw_history": (334, 292, 2, 600),
        "fact_bm25": (396, 233, 20, 0),
        "fact_bm25_matched": (390, 36, 20, 0),
        "closed_book": (0, 0, 0, 0),
    }
    for view, (sh, mh, tolerance, truncated) in expected.items():
        assert abs(views[view]["sh"]["gold_in_evidence"] - sh) <= tolerance, view
        assert abs(views[view]["mh"]["gold_in_evidence"] - mh) <= tolerance, view
        assert views[view]["truncated"] == truncated, view
        assert views[view]["sh"]["questions"] == views[view]["mh"]["questions"] == 400
    # The depth ablation: mh golds reached as an object at one, two, three and five hops.
    reached = [views[name]["mh"]["gold_as_value"] for name in ("cmc_h1", "cmc_h2", "cmc_h3", "cmc")]
    assert reached == pytest.approx([0, 225, 295, 339], abs=2)
    # The negative control shows as many records as cmc, and about as many characters.
    for hop_class in ("sh", "mh"):
        control, cmc = views["random_disjoint"][hop_class], views["cmc"][hop_class]
        assert control["records"] == cmc["records"]
        assert abs(control["characters"] - cmc["characters"]) <= 20
