"""Fallbacks and answers that the output cap ended: said by each command that prints what a view or a reader did.

Of the tiny rows one question, "Who is nobody here?", has no anchor, so that cmc and stale_closure show the whole history.
"""

import csv
import io
import json
import shutil
from collections import Counter
from pathlib import Path

from tiny import coldread, write_experiment, write_rows
from watcher import Watcher
from worlds import show

from eval.analysis.fallbacks import fallback_lines
from eval.run import read_all
from offline.run.opened import OpenRun

WORDS = "a fallback on 1 of 5 questions, not the view's own choice: raw_history for 1"


def frozen(folder: Path, **changes: object) -> tuple[Path, str]:
    """A run up to its packets, and what freezing said."""
    experiment = write_experiment(folder, folder, **changes)
    run = folder / "run"
    command = ["run", str(experiment), "--data", str(write_rows(folder)), "--out", str(run), "--until", "freeze"]
    return run, coldread(*command).stderr


def lines_of(said: str, words: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in said.splitlines() if words in line]


def test_freezing_says_which_views_show_fallbacks_and_how_many(tmp_path: Path) -> None:
    assert lines_of(frozen(tmp_path)[1], "fallback") == [f"cmc: {WORDS}", f"stale_closure: {WORDS}"]


def test_one_unresolved_record_makes_every_packet_of_the_grid_regime_a_fallback(tmp_path: Path) -> None:
    # "It is late." of Carl's history is unresolved, Ada's history has no such record.
    said = frozen(tmp_path, regime="grid", views=["cmc", "raw_history"])[1]
    words = "a fallback on 2 of 5 questions, not the view's own choice: raw_history for 2"
    assert lines_of(said, "fallback") == [f"cmc: {words}"]


def test_both_fallbacks_are_told_apart() -> None:
    packet, _ = show(["Ada leads to Bo."], "Who is Zed?", empty_selection="latest_state")
    assert packet.fallback == "latest_state"
    shown = {"cmc": Counter([packet.fallback, "raw_history", packet.fallback]), "raw_history": {}}
    (line,) = fallback_lines(shown, 7)
    assert line == "cmc: a fallback on 3 of 7 questions, not the view's own choice: latest_state for 2, raw_history for 1"


def test_coverage_has_a_column_only_where_a_packet_shows_a_fallback(tmp_path: Path) -> None:
    run, _ = frozen(tmp_path)
    shown = coldread("coverage", str(run)).stdout
    assert "fall-" in shown
    found = {tuple(line.split()[:2]): line.split()[-1] for line in shown.splitlines() if line.split()[1:2] in (["sh"], ["mh"])}
    assert {names: count for names, count in found.items() if count != "0"} == {
        ("cmc", "sh"): "1",
        ("stale_closure", "sh"): "1",
    }
    (tmp_path / "whole").mkdir()
    assert "fall-" not in coldread("coverage", str(frozen(tmp_path / "whole", views=["raw_history"])[0])).stdout


def test_scores_say_fallbacks_and_answers_that_the_output_cap_ended(copied_run: Path) -> None:
    # The tiny model says something until its cap of 12 tokens; the run's own files are the oracle.
    folder = copied_run / "reads" / "tiny"
    records = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    schedule = [json.loads(line) for line in (folder / "requests" / "schedule.jsonl").read_text().splitlines()]
    capped = {p["request"] for p in records if p["finish_reason"] == "length"}
    ended = {
        view: sum(s["view"] == view and s["request"] in capped for s in schedule) for s in schedule for view in [s["view"]]
    }
    ended = {view: count for view, count in ended.items() if count}
    assert ended
    told = json.loads(coldread("score", str(copied_run), "--json").stdout)
    assert told["fallbacks"] == {"cmc": 1, "stale_closure": 1, "raw_history": 0, "closed_book": 0}
    assert told["seals"]["tiny"]["capped"] == ended
    shown = coldread("score", str(copied_run)).stdout.splitlines()
    assert [line for line in shown if "fallback" in line] == [f"cmc: {WORDS}", f"stale_closure: {WORDS}"]
    assert [line for line in shown if "ended by" in line] == [
        f"tiny, {view}: {count} of 5 answers ended by the output cap of 12 tokens, scored as they stand"
        for view, count in ended.items()
    ]


def test_reading_says_how_many_answers_the_output_cap_ended(copied_run: Path) -> None:
    watcher = Watcher()
    read_all(OpenRun(copied_run), observer=watcher)
    ended = sum(json.loads(coldread("score", str(copied_run), "--json").stdout)["seals"]["tiny"]["capped"].values())
    assert f" {ended} ended by the output cap of 12 tokens, seal " in watcher.said[0][1]


def test_a_contrast_says_on_how_many_questions_each_side_fell_back(copied_run: Path) -> None:
    command = ("contrast", str(copied_run), "--a", "cmc", "--b", "raw_history")
    rows = json.loads(coldread(*command, "--json").stdout)["contrasts"]
    assert {row["hop_class"]: row.get("fallbacks") for row in rows} == {"sh": [1, 0], "mh": None, "all": [1, 0]}
    assert (
        "of 5 questions, shown a fallback and not the view's own choice: A cmc 1, B raw_history 0" in coldread(*command).stdout
    )
    table = csv.DictReader(io.StringIO(coldread(*command, "--format", "csv").stdout))
    assert [(row["fallback_a"], row["fallback_b"]) for row in table] == [("1", "0"), ("0", "0"), ("1", "0")]
    for form in ("markdown", "latex"):
        shown = coldread(*command, "--format", form).stdout
        assert "fallback A" in shown
        assert "fallback: questions of which that side's packet" in shown


def test_a_contrast_of_views_that_never_fall_back_says_nothing_of_it(copied_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(copied_run, tmp_path / "run"))
    command = ("contrast", str(run), "--a", "raw_history", "--b", "closed_book")
    for more in ((), ("--json",), ("--format", "csv"), ("--format", "markdown"), ("--format", "latex")):
        assert "fallback" not in coldread(*command, *more).stdout
