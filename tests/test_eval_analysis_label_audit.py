"""`coldread labels`: what it counts, prints and enters into the ledger; bounds worked out by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny import ROWS, coldread, frozen_run, their_reader, write_experiment, write_rows

from eval.analysis.label_audit import Sensitivity, Unresolved, sensitivity, unresolved_line
from eval.labels import read_ledger
from eval.records import Score
from offline.canonical import write_record
from offline.run.manifest import make_manifest, read_manifest
from offline.run.opened import OpenRun

Result = dict[str, Any]
# The tokens of "Rome": each is its byte's place in the tiny vocabulary.
ROME = "return [Output(ids=(55, 84, 82, 74), finish_reason='length') for _ in batch]"


def audit(run: Path) -> Result:
    result: Result = json.loads(coldread("labels", str(run), "--json").stdout)
    return result


def rows(**answers: str) -> list[dict[str, Any]]:
    """The tiny rows with other gold answers; `ada_0` stands for the question ada/0."""
    changed: list[dict[str, Any]] = json.loads(json.dumps(ROWS))
    for row in changed:
        for asked in row["questions"]:
            if gold := answers.get(f"{row['history']}_{asked['id']}"):
                asked["answers"] = [gold]
    return changed


def start(folder: Path, model: Path, given: list[dict[str, Any]], until: str, **changes: object) -> Path:
    run, experiment = folder / "run", write_experiment(folder, model, **changes)
    coldread("run", str(experiment), "--data", str(write_rows(folder, given)), "--out", str(run), "--until", until)
    return run


# Bounds


def test_the_published_gaps_withstand_the_least_favourable_rescoring() -> None:
    # 400 multi-hop questions, 26 flagged. ScoredRun right, in all and of the 374 others: cmc 313 and 313 (78.25 %),
    # prior_refresh 86 and 85 (21.50 %), fact_bm25 83 and 83 (20.75 %).
    cmc, prior, bm25 = (Sensitivity.of(400, right, 26, unflagged) for right, unflagged in ((313, 313), (86, 85), (83, 83)))
    assert (cmc.lowest, cmc.highest, cmc.unflagged) == (313, 339, 374)
    assert (prior.lowest, prior.highest) == (85, 111)
    # (313 - 85 - 26) / 400 = 50.50 points, (313 - 83 - 26) / 400 = 51.00.
    assert 100 * (cmc.lowest - prior.highest) / 400 == 50.5
    assert 100 * (cmc.lowest - bm25.highest) / 400 == 51.0


def test_nothing_is_said_of_unresolved_statements_where_there_are_none() -> None:
    assert unresolved_line({}) == ""
    several = {"a": Unresolved(unresolved=1, statements=4), "b": Unresolved(unresolved=2, statements=6)}
    assert "leaves 3 of 10 statements of 2 histories unresolved" in unresolved_line(several)


def score(question: str, right: bool, view: str = "cmc") -> Score:
    return Score(
        reader="r",
        view=view,
        question=question,
        row="row",
        hop_class="mh",
        hops=2,
        length="6k",
        prediction="",
        finish_reason="stop",
        golds=("gold",),
        cut=0,
        metrics={"subem": right, "strict_em": not right},
    )


def test_sensitivity_counts_what_is_right_with_and_without_flagged_questions() -> None:
    scores = [
        score("a", True),
        score("b", True),
        score("c", False),
        score("d", False),
        score("e", True),
        score("a", False, "x"),
    ]
    cells = sensitivity(scores, {"s": {"a", "c", "elsewhere"}, "none": set()})["r"]
    # Flagged: a right, c wrong. Of b, d, e two are right: from 2 of 5 up to 4 of 5.
    assert cells["cmc"]["mh"]["s"] == Sensitivity(
        questions=5, correct=3, flagged=2, correct_unflagged=2, unflagged=3, lowest=2, highest=4
    )
    assert cells["cmc"]["mh"]["none"].lowest == cells["cmc"]["mh"]["none"].highest == 3
    assert (cells["x"]["mh"]["s"].flagged, cells["x"]["mh"]["s"].highest) == (1, 1)


# The command


def test_the_audit_of_a_scored_run_by_hand(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(ROME)
    # Golds of ada/0 and carl/0 are earlier homes; the others are right. Every answer is "Rome".
    given = rows(ada_0="Rome", carl_0="Oslo")
    run = start(tmp_path, tiny_model, given, "score", readers=their_reader(tiny_model, tmp_path / "x"), views=["cmc"])
    result = audit(run)
    assert result["questions"] == 5
    # "It is late." of Carl's three statements.
    assert result["unresolved"] == {"carl": {"unresolved": 1, "statements": 3}}
    details = [finding["detail"] for finding in result["findings"]]
    assert ["unresolved" in detail for detail in details] == [False, True]
    assert result["screens"]["superseded"] == {"sh": 2, "mh": 0}
    assert all(result["screens"][name] == {"sh": 0, "mh": 0} for name in ("in_question", "inside_word", "void"))
    assert result["populations"]["flagged"] == {"sh": 2, "mh": 0}
    assert result["populations"]["unflagged"] == {"sh": 2, "mh": 1}
    assert [(f["question"], f["gold"]) for f in result["findings"]] == [("ada/0", "Rome"), ("carl/0", "Oslo")]
    assert [link["record"] for link in result["findings"][0]["chain"]] == ["[0] Ada lives in Rome.", "[4] Ada lives in Paris."]
    # sh: ada/0 (flagged) and ada/2 are right, carl/0 (flagged) and carl/1 wrong. mh: ada/1 is wrong.
    single, multi = (result["sensitivity"]["tiny"]["cmc"][hops]["superseded"] for hops in ("sh", "mh"))
    assert single == {
        "questions": 4,
        "correct": 2,
        "flagged": 2,
        "correct_unflagged": 1,
        "unflagged": 2,
        "lowest": 1,
        "highest": 3,
    }
    assert (multi["questions"], multi["correct"], multi["lowest"], multi["highest"]) == (1, 0, 0, 0)
    shown = coldread("labels", str(run)).stdout
    assert "that leaves 1 of 3 statements of history 'carl' unresolved" in " ".join(shown.split())
    assert ["cmc", "sh", "superseded", "4", "2", "50.00", "2", "1", "50.00", "25.00", "75.00"] in [
        line.split() for line in shown.splitlines()
    ]
    assert "    earlier  [0] Ada lives in Rome.\n    current  [4] Ada lives in Paris.\n" in shown


def test_an_audit_is_an_opening_of_the_labels_and_leaves_the_run_whole(copied_run: Path) -> None:
    audit(copied_run)
    assert [entry.command for entry in read_ledger(OpenRun(copied_run))] == ["score", "labels"]
    coldread("replay", str(copied_run))


def test_a_run_not_yet_read_is_audited_and_later_seals_say_so(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model)
    result = audit(run)
    assert result["sensitivity"] is None
    assert "run `coldread score" in result["note"]
    assert "without sensitivity of the headlines" in coldread("labels", str(run)).stdout
    coldread("read", str(run))
    assert json.loads(coldread("score", str(run), "--json").stdout)["seals"]["tiny"]["sealed_blind"] is False
    assert set(audit(run)["sensitivity"]["tiny"]) == {"cmc", "stale_closure", "raw_history", "closed_book"}


def test_scores_of_other_seals_are_left_out(copied_run: Path) -> None:
    # The manifest of scores that name another seal, valid in itself.
    folder = copied_run / "scores"
    manifest = read_manifest(folder)
    stale = make_manifest(folder, "scores", {**manifest.inputs, "seal_tiny": "0" * 64}, [f.name for f in manifest.files])
    write_record(folder / "manifest.json", stale)
    result = audit(copied_run)
    assert result["sensitivity"] is None
    assert "not of these seals" in result["note"]


def openings(run: Path) -> int:
    return len(read_ledger(OpenRun(run)))


def test_altered_scores_are_refused_before_the_labels_are_opened(copied_run: Path) -> None:
    with (copied_run / "scores" / "tiny" / "scores.jsonl").open("a") as file:
        file.write("\n")
    before = openings(copied_run)
    assert "scores.jsonl" in coldread("labels", str(copied_run), code=20).stderr
    assert openings(copied_run) == before


def test_without_an_extraction_the_labels_stay_closed(tiny_model: Path, tmp_path: Path) -> None:
    run = start(tmp_path, tiny_model, rows(), "load")
    assert "coldread extract" in coldread("labels", str(run), code=10).stderr
    assert openings(run) == 0
    coldread("extract", str(run))
    assert audit(run)["screens"]["superseded"] == {"sh": 0, "mh": 0}
    assert openings(run) == 1


def test_no_run_and_altered_labels_have_their_exit_codes(copied_run: Path, tmp_path: Path) -> None:
    coldread("labels", str(tmp_path / "nowhere"), code=10)
    (copied_run / "labels" / "labels.jsonl").write_text("")
    coldread("labels", str(copied_run), code=20)


# What is printed


def test_long_lists_are_cut_with_a_note_and_json_holds_all(tiny_model: Path, tmp_path: Path) -> None:
    text, gold = "Where does Ada live?", "Rome"
    many = [{"id": str(number), "text": text, "hops": 1, "answers": [gold]} for number in range(11)]
    run = start(tmp_path, tiny_model, [{**ROWS[0], "questions": many}], "extract")
    assert len(audit(run)["findings"]) == 11
    shown = coldread("labels", str(run)).stdout
    assert shown.count("gold 'Rome'") == 8
    assert "  … 3 more findings (--json prints all)\n" in shown


def test_what_is_printed_fits_a_hundred_columns_and_steers_no_terminal(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(ROME)
    home = "Rome\u001b[31m" + "東" * 90
    row = {
        "history": "long" * 20,
        "statements": [f"Ada lives in {home}.", "Ada lives in Paris."],
        "questions": [{"id": "0", "text": "Where does Ada live?", "answers": [home]}],
    }
    views = ["fact_bm25_matched_to_stale_closure_h2", "cmc"]
    reader = their_reader(tiny_model, tmp_path / "x")
    run = start(tmp_path, tiny_model, [row], "score", readers=reader, views=views)
    shown = coldread("labels", str(run)).stdout
    assert max(sum(2 if c == "東" else 1 for c in line) for line in shown.splitlines()) <= 100
    assert "\u001b" not in shown
    assert audit(run)["findings"][0]["gold"] == home
