"""The main table: counts and costs by hand, the run's own files as an oracle, published rows marked, refusals."""

import csv
import html
import io
import json
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tiny import coldread, write_experiment, write_rows

from eval.analysis.accuracy import Accuracy
from eval.analysis.exchanges import Exchange
from eval.analysis.main_table import MainTable, TableReader, TableRow, published, table_row
from eval.records import ExtractedBy, Score
from eval.report.page import make_page
from eval.report.source import read_source
from eval.typeset.grid import markdown
from eval.typeset.main_table import flat, grids
from offline.records import Packet
from offline.run.opened import OpenRun

GOLDEN = Path(__file__).parent / "golden" / "format-1"


def asked(question: str, hop_class: str, right: bool, request: str, sizes: tuple[int, int], **changes: Any) -> Exchange:
    """One question; `changes`: cut, finish_reason, too_long."""
    score = Score(
        reader="r",
        view="cmc",
        question=question,
        row="row",
        hop_class=hop_class,  # type: ignore[arg-type]
        hops=None,
        length="6k",
        prediction="",
        finish_reason=changes.get("finish_reason", "stop"),
        golds=("g",),
        cut=changes.get("cut", 0),
        metrics={"subem": right},
    )
    too_long = changes.get("too_long", False)
    return Exchange(score, ("", score.cut, too_long), () if too_long else (request,), *sizes)


def test_a_row_counts_by_hand() -> None:
    items = [
        asked("a", "sh", True, "one", (10, 3)),
        asked("b", "sh", False, "one", (10, 3)),
        asked("c", "sh", True, "two", (30, 64), cut=2, finish_reason="length"),
        asked("d", "mh", False, "three", (90, 0), finish_reason="error", too_long=True),
    ]
    shown = {"a": "latest_state", "c": "raw_history", "d": "raw_history"}
    packets = {name: Packet(name, "", "", "cmc", "", "", 0, 0, 0, name in "bd", shown.get(name)) for name in "abcd"}
    reader = TableReader("m", "transformers", True, "root", "tokens", 3, 0, (), "0.000")
    row = table_row(items, packets, reader, "subem")
    # Wilson 95 % of 2/3 is [20.77, 93.85], of 0/1 [0, 79.35].
    assert row.accuracy == {
        "sh": Accuracy(3, 2, "66.67", "20.77", "93.85"),
        "mh": Accuracy(1, 0, "0.00", "0.00", "79.35"),
    }
    # (10 + 10 + 30 + 90) / 4 and (3 + 3 + 64 + 0) / 4; "one" is asked twice, "three" was never given to the model.
    assert (row.input_mean, row.output_mean, row.requests) == (35.0, 17.5, 2)
    assert (row.truncated, row.fallbacks, row.cut, row.failed, row.capped) == (2, 3, 1, 1, 1)
    assert (row.view, row.reader, row.length, row.sealed_blind, row.unit) == ("cmc", "r", None, True, "tokens")
    assert (row.pipeline, row.sampled) == (UNSET, UNSET)


def result(*units: Literal["tokens", "bytes"]) -> MainTable:
    """A table of one view, a reader for each unit, 2 of 3 right."""
    right = Accuracy(3, 2, "66.67", "20.77", "93.85")
    counts = {"requests": 2, "truncated": 1, "fallbacks": 0, "cut": 0, "failed": 0, "capped": 0}
    rows = [
        TableRow(
            view="cmc",
            reader=unit[0],
            length=None,
            sealed_blind=unit == "tokens",
            accuracy={"sh": right},
            unit=unit,
            input_mean=35.0,
            output_mean=17.5,
            **counts,
        )
        for unit in units
    ]
    readers = {
        unit[0]: TableReader("served gpt", "openai", unit == "tokens", "0123456789abcdef", unit, 9, 0, (), "1.500")
        for unit in units
    }
    extraction = ExtractedBy("grammar", "g", {"facts": 2}, None)
    return MainTable("RUN", "e", "subem", ("sh",), tuple(rows), readers, extraction, None)


def test_the_main_table_in_markdown_as_text() -> None:
    views, readers = map(markdown, grids(result("tokens")))
    assert views.splitlines()[:3] == [
        "| view | reader | sealed |        sh % (n = 3) | input tokens | output tokens | requests | truncated | cut | failed |",
        "| ---- | ------ | ------ | ------------------: | -----------: | ------------: | -------: | --------: | --: | -----: |",
        "| cmc  | t      | blind  | 66.67 (20.77-93.85) |         35.0 |          17.5 |        2 |         1 |   0 |      0 |",
    ]
    assert readers.splitlines()[2] == "| t      | served gpt | blind  | 0123456789ab… |        9 |   1.500 |"


def test_what_a_served_model_was_given_is_named_bytes() -> None:
    assert grids(result("bytes"))[0].headings[4:6] == ("input bytes", "output bytes")
    mixed = grids(result("tokens", "bytes"))[0]
    assert mixed.headings[4:6] == ("input", "output")
    assert [row[4:6] for row in mixed.groups[0]] == [("35.0 tokens", "17.5 tokens"), ("35.0 bytes", "17.5 bytes")]
    assert [row[flat(result("bytes")).headings.index("unit")] for row in flat(result("bytes")).groups[0]] == ["bytes"]


def test_a_reader_sealed_after_labels_were_opened_is_told_from_a_blind_one() -> None:
    assert [row[2] for row in grids(result("tokens", "bytes"))[0].groups[0]] == ["blind", "after labels were opened"]


def test_questions_stand_in_the_heading_only_where_all_rows_have_as_many() -> None:
    uneven = result("tokens", "bytes")
    other = replace(uneven.rows[1], accuracy={"sh": Accuracy(4, 1, "25.00", "4.56", "69.94")})
    views = grids(replace(uneven, rows=(uneven.rows[0], other)))[0]
    assert views.headings[3] == "sh %"
    assert [row[3] for row in views.groups[0]] == ["66.67 (20.77-93.85) of 3", "25.00 (4.56-69.94) of 4"]


def table(run: Path, *options: str, code: int = 0) -> str:
    return coldread("table", str(run), *options, code=code).stdout


def test_counts_and_means_are_those_of_the_runs_own_files(copied_run: Path) -> None:
    def lines(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (copied_run / name).read_text().splitlines()]

    sizes = {request["digest"]: request["length"] for request in lines("reads/tiny/requests/requests.jsonl")}
    outputs = {p["request"]: len(p["output_ids"]) for p in lines("reads/tiny/predictions.jsonl")}
    schedule = [s for s in lines("reads/tiny/requests/schedule.jsonl") if s["view"] == "raw_history"]
    (row,) = [row for row in json.loads(table(copied_run, "--json"))["rows"] if row["view"] == "raw_history"]
    assert row["input_mean"] == round(sum(sizes[s["request"]] for s in schedule) / 5, 1)
    assert row["output_mean"] == round(sum(outputs[s["request"]] for s in schedule) / 5, 1)
    assert row["requests"] == len({s["request"] for s in schedule})
    cells = [cell for cell in lines("scores/tiny/cells.jsonl") if cell["view"] == "raw_history" and cell["length"] is None]
    assert {name: (found["correct"], found["questions"], found["low"]) for name, found in row["accuracy"].items()} == {
        cell["hop_class"]: (cell["correct"]["subem"], cell["questions"], cell["low"]) for cell in cells
    }


def test_every_form_tells_the_same_of_a_released_run(tmp_path: Path) -> None:
    told = json.loads(table(GOLDEN, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(table(GOLDEN, "--format", "csv"), newline="")))
    # The run's tiny reader knows nothing: 0 of 4 and 0 of 1; all its outputs fill the cap of 12. One question names nobody.
    assert (
        table(GOLDEN, "--format", "csv")
        .split("\n")[1]
        .startswith(
            "cmc,tiny,all,subem,4,0,0.00,0.00,48.99,1,0,0.00,0.00,79.35,tokens,456.4,12.0,5,0,1,0,0,5,blind,17,0.339,this run"
        )
    )
    assert "cmc & tiny & blind & 0.00 (0.00-48.99) & 0.00 (0.00-79.35) & 456.4 & 12.0 & 5 & 0 & 1 & 0 & 0 & 5 \\\\" in table(
        GOLDEN, "--format", "latex"
    )
    assert [(row["view"], float(row["input_mean"])) for row in rows] == [(r["view"], r["input_mean"]) for r in told["rows"]]
    assert all(f"| {row['view']} " in table(GOLDEN) for row in rows)


def fallbacks_of(run: Path) -> dict[str, int]:
    """Packets with a fallback, by view, read from the run's files."""
    return {
        path.stem: sum(json.loads(line)["fallback"] is not None for line in path.read_text().splitlines())
        for path in (run / "packets").glob("*.jsonl")
        if path.stem != "evidence"
    }


def test_fallbacks_are_counted_in_every_form_and_in_the_report(copied_run: Path) -> None:
    # "Who is nobody here?" has no anchor: cmc and stale_closure choose nothing, and show the whole history.
    found = fallbacks_of(copied_run)
    assert found == {"cmc": 1, "stale_closure": 1, "raw_history": 0, "closed_book": 0}
    rows = csv.DictReader(io.StringIO(table(copied_run, "--format", "csv"), newline=""))
    assert {row["view"]: int(row["fallbacks"]) for row in rows} == found
    assert {row["view"]: row["fallbacks"] for row in json.loads(table(copied_run, "--json"))["rows"]} == found
    page = make_page(read_source(OpenRun(copied_run))).decode()
    for text in (table(copied_run), table(copied_run, "--format", "latex"), html.unescape(page)):
        assert "fallback: questions for which the view chose nothing" in text.replace("\\_", "_")
        assert "not of the view's own choice" in text


def test_a_table_without_fallbacks_has_neither_column_nor_note(tiny_model: Path, tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path, tiny_model, views=["raw_history", "closed_book"])
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run))
    for form in ("markdown", "latex", "csv"):
        assert "fallback" not in table(run, "--format", form)


def test_answers_that_the_output_cap_ended_have_a_column_and_a_note() -> None:
    told = result("tokens")
    assert not any("capped" in text for grid in grids(told) for text in (*grid.headings, *grid.notes))
    told = replace(told, rows=(replace(told.rows[0], capped=2),))
    views, flat_table = grids(told)[0], flat(told)
    assert (views.headings[-1], views.groups[0][0][-1]) == ("capped", 2)
    assert any(note.startswith("capped: answers that ended by the reader's output cap") for note in views.notes)
    assert flat_table.groups[0][0][flat_table.headings.index("capped")] == 2


def test_rows_by_length_follow_the_pooled_row_and_add_up_to_it() -> None:
    rows = [row for row in json.loads(table(GOLDEN, "--json", "--by", "length"))["rows"] if row["view"] == "cmc"]
    assert [row["length"] for row in rows] == [None, "5", "3"]
    assert [row["accuracy"]["sh"]["questions"] for row in rows] == [4, 2, 2]
    assert rows[0]["requests"] == rows[1]["requests"] + rows[2]["requests"]


def test_any_stored_metric_can_be_told_and_another_is_refused(copied_run: Path) -> None:
    told = json.loads(table(copied_run, "--json", "--metric", "strict_em"))
    scores = [json.loads(line) for line in (copied_run / "scores/tiny/scores.jsonl").read_text().splitlines()]
    right = sum(s["metrics"]["strict_em"] for s in scores if s["view"] == "cmc" and s["hop_class"] == "sh")
    assert told["rows"][0]["accuracy"]["sh"]["correct"] == right
    table(copied_run, "--metric", "rouge", code=2)


def test_a_table_opens_no_label_and_writes_nothing_into_the_run(copied_run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()}
    out = tmp_path / "table.csv"
    assert table(copied_run, "--format", "csv", "--out", str(out)) == ""
    assert out.read_bytes().decode() == table(copied_run, "--format", "csv")
    table(copied_run, "--out", str(copied_run / "table.md"), code=3)
    assert {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()} == before


def test_an_unscored_and_an_altered_run_are_refused(copied_run: Path) -> None:
    timings = copied_run / "reads" / "tiny" / "timings.json"
    kept = timings.read_bytes()
    timings.write_bytes(kept.replace(b'"batches":', b'"batches":1'))
    table(copied_run, code=20)
    timings.write_bytes(kept)
    shutil.rmtree(copied_run / "scores")
    table(copied_run, code=10)


def test_published_figures_of_other_data_or_another_metric_are_refused(copied_run: Path) -> None:
    assert "no published figures of 'plain' data" in coldread("table", str(copied_run), "--published", code=3).stderr
    table(copied_run, "--published", "--metric", "strict_em", code=3)


def test_published_rows_are_marked_in_every_form_and_claim_no_interval_or_cost() -> None:
    given = published("factconsolidation")
    told = replace(result("tokens"), hop_classes=("sh", "mh"), published=given)
    views = grids(told)[0]
    ours, theirs = views.groups
    assert len(ours) == 1
    # All mh rows here are of 400 questions, so the heading says it.
    assert theirs[0][:5] == ("cmc", "HY4-preview, LLM extraction", "published, table 1", "97.25 of 400", "78.25")
    assert theirs[0][5:] == (None,) * 6
    assert all(str(row[2]).startswith("published") for row in theirs)
    assert given.source in views.notes[-1]
    lines = [dict(zip(flat(told).headings, row, strict=True)) for row in flat(told).groups[0]]
    assert [line["source"] for line in lines[:2]] == ["this run", f"published: {given.source}, table 1"]
    assert [line["extraction"] for line in lines[:2]] == ["grammar g; statements: 2 facts", "LLM"]
    assert (lines[1]["sh_percent"], lines[1]["sh_correct"], lines[1]["sh_low"], lines[1]["requests"]) == (
        "97.25",
        None,
        None,
        None,
    )


def test_published_rows_join_the_table_of_a_run_over_the_same_data(copied_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.analysis.main_table.kind_of", lambda data: "factconsolidation")
    lines = table(copied_run, "--published").splitlines()
    assert sum("| published, " in line for line in lines) == len(published("factconsolidation").rows) == 21
    assert "published: substring match as reported in Contract Memory Compiler" in "".join(lines)


@pytest.mark.parametrize(
    ("view", "reader", "extraction", "sh", "mh"),
    [
        ("cmc", "HY4-preview", "LLM", "97.25", "78.25"),
        ("prior_refresh", "HY4-preview", "LLM", "97.25", "21.50"),
        ("fact_bm25", "HY4-preview", "LLM", "97.50", "20.75"),
        ("fact_bm25_matched", "HY4-preview", "LLM", "97.00", "7.25"),
        ("stale_closure", "Qwen3.5-4B", "LLM", "32.00", "16.50"),
        ("fact_bm25", "Llama-3.1-8B", "LLM", "92.00", "11.50"),
        ("cmc", "Qwen3.5-9B", "grammar", None, "80.25"),
        ("random_disjoint", "Qwen3.5-4B", "grammar", None, "1.25"),
    ],
)
def test_published_figures_are_the_specifications(view: str, reader: str, extraction: str, sh: str | None, mh: str) -> None:
    (row,) = [r for r in published("factconsolidation").rows if (r.view, r.reader, r.extraction) == (view, reader, extraction)]
    assert (row.percent.get("sh"), row.percent.get("mh")) == (sh, mh)
    # Of 400 questions a percentage is a whole number of them.
    assert all((float(shown) * 4).is_integer() for shown in row.percent.values())
