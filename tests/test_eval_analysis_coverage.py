"""Coverage: cmc's records, tokens, breakdowns and the curve, counted by hand on the tiny rows.

Where a question of the tiny rows leads (positions of current records that its keys have):
ada/0 and ada/1, from Ada: her home (4), then the river of Paris (2). ada/2, from Bob: his home (3), then the river of Rome (1).
carl/0, from Carl: his home (1). carl/1 has no anchor, so no key. ada/1 has two hops (mh), the others one (sh).
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import ROWS, coldread, write_experiment, write_rows
from worlds import HEADING, PROMPT, history, question, settings

from eval.analysis.coverage import Counts, Judge
from eval.labels import read_ledger
from eval.metrics.normalise import normalise_answer
from offline.freeze import freeze_memory
from offline.memory import Memory
from offline.records import Extraction, Relation, StatementExtraction, Triple
from offline.run.opened import OpenRun
from offline.views import find_view
from readers.embedded import embedded_folder
from readers.tokens.chat import ChatTokenizer

Result = dict[str, Any]


def frozen(folder: Path, model: Path, rows: list[dict[str, Any]] | None = None, **changes: object) -> Path:
    """A run of the tiny rows, or of others, frozen and not read."""
    run, experiment = folder / "run", write_experiment(folder, model, **changes)
    coldread("run", str(experiment), "--data", str(write_rows(folder, rows)), "--out", str(run), "--until", "freeze")
    return run


def count(run: Path, *options: str) -> Result:
    """What `coldread coverage --json` prints."""
    result: Result = json.loads(coldread("coverage", str(run), "--json", *options).stdout)
    return result


def keys(cell: Result) -> tuple[int, int, int]:
    """cmc's records, how many of them are shown, questions that show them all."""
    return cell["cmc_keys"], cell["cmc_keys_shown"], cell["complete"]


@pytest.fixture(scope="module")
def result(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The counts of a run with five views."""
    views = ["cmc", "stale_closure", "fact_bm25_k1", "raw_history", "closed_book"]
    return count(frozen(tmp_path_factory.mktemp("coverage"), tiny_model, views=views))


# cmc's records


def test_cmc_shows_all_of_its_records_and_a_question_that_reaches_none_is_not_complete(result: Result) -> None:
    # sh: ada/0 has two records, ada/2 two, carl/0 one, carl/1 none. mh: ada/1 two.
    assert keys(result["views"]["cmc"]["sh"]) == (5, 5, 3)
    assert keys(result["views"]["cmc"]["mh"]) == (2, 2, 1)
    # carl/1 falls back to the whole history and is not complete all the same.
    assert keys(result["views"]["raw_history"]["sh"]) == (5, 5, 3)


def test_a_record_counts_only_where_it_is_the_current_one(result: Result) -> None:
    # ada/0 and ada/1 show Ada in Rome (0) and the Seine (2): one of two. ada/2: Bob never moved. carl/0 shows Oslo (0).
    assert keys(result["views"]["stale_closure"]["sh"]) == (5, 3, 1)
    assert keys(result["views"]["stale_closure"]["mh"]) == (2, 1, 0)
    assert keys(result["views"]["closed_book"]["sh"]) == (5, 0, 0)


def test_cmc_need_not_be_a_view_of_the_run(tiny_model: Path, tmp_path: Path, result: Result) -> None:
    alone = count(frozen(tmp_path, tiny_model, views=["stale_closure"]))
    assert alone["views"] == {"stale_closure": result["views"]["stale_closure"]}


def test_records_that_a_budget_cuts_stay_cmcs_records(tiny_model: Path, tmp_path: Path) -> None:
    # The heading takes 29 of 56 characters. 27 are left: a line break and "[4] Ada lives in Paris." take 24, with
    # "[2] Paris lies on the river Seine." they would take 59; for Bob alike. Each question shows one of its two records.
    run = frozen(tmp_path, tiny_model, ROWS[:1], views=["cmc"], settings={"budget": 56})
    cells = count(run)["views"]["cmc"]
    assert (keys(cells["sh"]), cells["sh"]["truncated"]) == ((4, 2, 0), 2)
    assert (keys(cells["mh"]), cells["mh"]["truncated"]) == ((2, 1, 0), 1)
    assert cells["truncated"] == 3


def test_a_record_that_states_two_keys_counts_once() -> None:
    # One record says where Lea lives and where she leads to; a second one is about Oslo, which she leads to.
    both, more = "Lea of Rome leads to Oslo.", "Oslo leads to Bergen."
    triples = {both: (("Lea", "home", "Rome"), ("Lea", "next", "Oslo")), more: (("Oslo", "next", "Bergen"),)}
    extraction = Extraction(
        statements=tuple(StatementExtraction(t, "facts", tuple(Triple(*parts) for parts in triples[t])) for t in triples),
        relations=(Relation("home", "of"), Relation("next", "leads to")),
    )
    memory, asked = Memory(history(both, more), extraction, settings(), HEADING), question("Where does Lea lead to?")
    ((packet, evidence),) = freeze_memory(memory, [asked], [("cmc_h1", find_view("cmc_h1"))], PROMPT)
    (judged,) = Judge(extraction, {"q": ("OSLO!",)}).judge(memory, [(asked, packet, evidence)])
    # The five-hop closure has three keys in two records, of which one hop shows the first.
    assert (judged.counts.cmc_keys, judged.counts.cmc_keys_shown, judged.counts.complete) == (2, 1, 0)
    assert (judged.counts.gold_in_evidence, judged.counts.gold_as_value) == (1, 1)


# Breakdowns


def test_breakdowns_add_up_to_the_cells_by_hop_class(result: Result) -> None:
    for view, cells in result["views"].items():
        assert result["by_hops"][view] == {"1": cells["sh"], "2": cells["mh"]}
        lengths = result["by_length"][view]
        # Ada's history has five statements, Carl's three; only Ada's has a question of two hops.
        assert list(lengths) == ["5", "3"]
        assert set(lengths["3"]) == {"sh"}
        assert lengths["5"]["mh"] == cells["mh"]
        for name, value in cells["sh"].items():
            assert lengths["5"]["sh"][name] + lengths["3"]["sh"][name] == value
        assert cells["truncated"] == cells["sh"]["truncated"] + cells["mh"]["truncated"]
        assert cells["fallbacks"] == cells["sh"]["fallbacks"] + cells["mh"]["fallbacks"]


def test_lengths_are_told_apart(result: Result) -> None:
    lengths = result["by_length"]["cmc"]
    # Ada's: ada/0 and ada/2. Carl's: carl/0, and carl/1, which falls back.
    assert (keys(lengths["5"]["sh"]), lengths["5"]["sh"]["fallbacks"]) == ((4, 4, 2), 0)
    assert (keys(lengths["3"]["sh"]), lengths["3"]["sh"]["fallbacks"]) == ((1, 1, 1), 1)


def test_questions_that_do_not_say_their_hops_have_no_breakdown_by_hops(tiny_model: Path, tmp_path: Path) -> None:
    questions = [{"id": "0", "text": "Where does Ada live?", "answers": ["Paris"]}]
    run = frozen(tmp_path, tiny_model, [{**ROWS[0], "questions": questions}])
    assert "by_hops" not in count(run)
    assert "no question of this run says its number of hops" in coldread("coverage", str(run), "--by", "hops").stdout


def test_sums_do_not_make_up_tokens() -> None:
    known, unknown = Counts(1, 1, 1, 2, 30, 2, 1, 0, 9, 0, 0), Counts(1, 0, 0, 1, 20, 1, 1, 1, None, 1, 1)
    assert known + known == Counts(2, 2, 2, 4, 60, 4, 2, 0, 18, 0, 0)
    assert known + unknown == unknown + known == Counts(2, 1, 1, 3, 50, 3, 2, 1, None, 1, 1)


# Tokens


def test_tokens_are_those_of_the_first_reader(result: Result) -> None:
    # The tiny tokenizer takes a byte for a token, and this evidence is ASCII.
    for cells in result["views"].values():
        assert all(cells[hops]["tokens"] == cells[hops]["characters"] for hops in ("sh", "mh"))


@pytest.mark.parametrize(
    "readers",
    [
        [],
        [{"use": {"name": "r", "engine": "transformers", "model": {"folder": "/nowhere"}}}],
        [{"use": {"name": "r", "engine": "transformers", "model": {"repository": "lab/model", "revision": "0" * 40}}}],
        [{"use": {"name": "r", "engine": "openai", "model": {"served": "big"}, "options": {"base_url": "http://nowhere"}}}],
    ],
    ids=["no reader", "no folder", "not downloaded", "served"],
)
def test_tokens_are_unknown_without_a_tokenizer_on_this_machine(
    tiny_model: Path, tmp_path: Path, readers: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("readers.models.pins.look_up", never)
    run = frozen(tmp_path, tiny_model, readers=readers)
    assert count(run)["views"]["cmc"]["sh"]["tokens"] is None
    assert "characters" in coldread("coverage", str(run)).stdout


def test_a_sealed_run_counts_with_the_tokenizer_that_it_keeps(tiny_model: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    run = frozen(tmp_path, model, views=["cmc"])
    coldread("read", str(run))
    shutil.rmtree(model)
    cell = count(run)["views"]["cmc"]["sh"]
    assert cell["tokens"] == cell["characters"]


@given(st.text(alphabet=st.one_of(st.sampled_from("\n\r a.Σσ[1]’"), st.characters(exclude_categories=["Cs"]))))
def test_line_by_line_a_text_is_normalised_as_it_is_whole(text: str) -> None:
    assert Judge(Extraction((), ()), {}).normalise(text) == normalise_answer(text)


@pytest.mark.real_model
def test_line_by_line_a_real_tokenizer_counts_as_it_does_the_whole() -> None:
    tokenizer = ChatTokenizer(embedded_folder("smollm2-135m-instruct"))
    lines = ("Records:", "[2] Paris lies on the river Seine.", "[14] Ada's home: Łódź", "[15] 1,024\\n…", "[16] .", "[17] x")
    text = "\n".join(lines)
    assert Judge(Extraction((), ()), {}, tokenizer.count).tokens(text) == tokenizer.count(text)


# The curve


@pytest.fixture(scope="module")
def ranked(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of views that rank facts and chunks, three facts unless the name says another number. Its ledger grows."""
    views = ["cmc", "fact_bm25", "fact_bm25_k2", "chunk60_bm25_k1", "fact_bm25_matched", "window_bm25"]
    return frozen(tmp_path_factory.mktemp("curve"), tiny_model, views=views, settings={"k": 3})


def test_the_curve_shows_what_so_many_passages_would_hold(ranked: Path) -> None:
    curve = count(ranked, "--curve", "4,1,3,10")["curve"]
    points = curve["fact_bm25"]
    assert list(points) == ["1", "3", "4", "10"]
    # ada/0: only Ada's record (4) holds a word of the question that other facts lack; then come ties, newest first: 3, 2, 1.
    # ada/2: Bob's record (3), then 4, 2, 1. carl/0 and carl/1: Carl's only fact.
    assert [keys(points[k]["sh"]) for k in points] == [(5, 3, 1), (5, 4, 2), (5, 5, 3), (5, 5, 3)]
    # ada/1: two of four facts hold "river", which makes it worth nothing (idf 0), so Ada's record is first; 3 and 2 follow.
    assert [keys(points[k]["mh"]) for k in points] == [(2, 1, 0), (2, 2, 1), (2, 2, 1), (2, 2, 1)]
    assert [points[k]["mh"]["gold_in_evidence"] for k in points] == [0, 1, 1, 1]
    # Paris, Rome and Bergen are each in the first fact.
    assert [points[k]["sh"]["gold_in_evidence"] for k in points] == [3, 3, 3, 3]


def test_the_point_at_a_views_own_number_is_its_frozen_cell(ranked: Path) -> None:
    result = count(ranked, "--curve", "1,2,3")
    for view, own in {"fact_bm25": "3", "fact_bm25_k2": "2", "chunk60_bm25_k1": "1"}.items():
        cells = {hops: result["views"][view][hops] for hops in ("sh", "mh")}
        assert result["curve"][view][own] == cells
    assert result["curve"]["fact_bm25"] == result["curve"]["fact_bm25_k2"]


def test_only_views_that_rank_passages_and_match_no_length_have_a_curve(ranked: Path) -> None:
    assert list(count(ranked, "--curve", "1")["curve"]) == ["fact_bm25", "fact_bm25_k2", "chunk60_bm25_k1", "window_bm25"]
    assert "curve" not in count(ranked)


def test_a_view_that_reranks_has_no_point_beyond_its_candidates(
    tiny_model: Path, tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    # At three passages a run of it is refused, and the numbers would be those at two.
    reranker = {"name": "r", "model": {"folder": str(tiny_cross_encoder)}}
    views, numbers = ["fact_bm25_rerank_k1", "fact_bm25"], {"reranker": reranker, "candidates": 2}
    run = frozen(tmp_path, tiny_model, views=views, retrieval=numbers)
    curve = count(run, "--curve", "1,2,3")["curve"]
    assert {view: list(points) for view, points in curve.items()} == {views[0]: ["1", "2"], "fact_bm25": ["1", "2", "3"]}
    shown = coldread("coverage", str(run), "--curve", "1,2,3").stdout
    assert [row[2] for row in rows_of(shown, views[0], "mh")[1:]] == ["-"]
    assert rows_of(shown, "fact_bm25", "mh")[1][2] == "100.00"


def test_without_such_a_view_the_curve_is_empty_and_the_table_says_so(copied_run: Path) -> None:
    assert count(copied_run, "--curve", "1,2")["curve"] == {}
    assert "there is no curve" in coldread("coverage", str(copied_run), "--curve", "1,2").stdout


def test_the_curve_opens_the_labels_once_and_writes_nothing_else(ranked: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(ranked, tmp_path / "run"))
    shutil.rmtree(run / "labels")
    coldread("load", str(run), "--data", str(ranked.parent / "rows.jsonl"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    count(run, "--curve", "1,2")
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} == {"ledger.jsonl"}
    assert [entry.command for entry in read_ledger(OpenRun(run))] == ["coverage"]


@pytest.mark.parametrize("numbers", ["0", "1,", "a", "1 2", "-1", "100000"])
def test_numbers_that_no_curve_has_are_a_wrong_command_line_and_open_nothing(ranked: Path, numbers: str) -> None:
    ledger = ranked / "labels" / "ledger.jsonl"
    before = ledger.read_bytes() if ledger.exists() else None
    assert "whole numbers from 1 to 99999" in coldread("coverage", str(ranked), f"--curve={numbers}", code=2).stderr
    assert (ledger.read_bytes() if ledger.exists() else None) == before


# Tables


def rows_of(shown: str, *names: str) -> list[list[str]]:
    """The rows of all tables that begin with these words, without them."""
    rows = [line.split() for line in shown.splitlines()]
    return [row[len(names) :] for row in rows if row[: len(names)] == list(names)]


def test_the_tables_show_what_the_json_says(ranked: Path) -> None:
    result = count(ranked)

    def shown(cell: Result) -> list[str]:
        share = f"{100 * cell['cmc_keys_shown'] / cell['cmc_keys']:.2f}"
        means = [f"{cell['records'] / cell['questions']:.1f}", f"{cell['tokens'] / cell['questions']:.0f}"]
        counts = [str(cell[name]) for name in ("questions", "gold_in_evidence", "gold_as_value")]
        # One question has no anchor, so there is a column of fallbacks.
        return [*counts, share, str(cell["complete"]), *means, str(cell["truncated"]), str(cell["fallbacks"])]

    plain, length, hops = (coldread("coverage", str(ranked), *by).stdout for by in ((), ("--by", "length"), ("--by", "hops")))
    for view, cells in result["views"].items():
        assert rows_of(plain, view, "sh") == [shown(cells["sh"])]
        assert rows_of(length, view, "5", "sh") == [shown(result["by_length"][view]["5"]["sh"])]
        assert rows_of(hops, view, "2") == [shown(result["by_hops"][view]["2"])]


def test_the_curve_is_a_row_for_a_view_and_hop_class_and_a_column_for_a_number(ranked: Path) -> None:
    shown = coldread("coverage", str(ranked), "--curve", "1,3").stdout
    # The first row of these names is that of the counts. 3 of 4 questions at each number, 0 and then 1 of 1.
    assert rows_of(shown, "fact_bm25", "sh")[1] == ["75.00", "75.00"]
    assert rows_of(shown, "fact_bm25", "mh")[1] == ["0.00", "100.00"]


@pytest.mark.parametrize("by", [(), ("--by", "length"), ("--by", "hops")])
def test_tables_fit_a_hundred_columns_whatever_a_view_is_called(tiny_model: Path, tmp_path: Path, by: tuple[str, ...]) -> None:
    views = ["fact_bm25_matched_to_stale_closure_h2", "chunk1234567_bm25_k12345"]
    shown = coldread("coverage", str(frozen(tmp_path, tiny_model, views=views)), *by, "--curve", "1,2,5,10,20,50,100").stdout
    assert max(map(len, shown.splitlines())) <= 100
    assert "…" not in shown


# The published benchmark


@pytest.mark.real_data
def test_cmc_is_complete_on_all_real_questions_and_bm25_is_not(real_data: Path, tmp_path: Path) -> None:
    experiment = write_experiment(
        tmp_path,
        tmp_path,
        data={"kind": "factconsolidation"},
        frontend={"kind": "grammar", "grammar": "mquake"},
        views=["cmc", "fact_bm25"],
        readers=[],
    )
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(real_data), "--out", str(run), "--until", "freeze")
    result = count(run, "--curve", "100")
    for hops in ("sh", "mh"):
        cmc, bm25 = result["views"]["cmc"][hops], result["views"]["fact_bm25"][hops]
        assert cmc["complete"] == cmc["questions"] == 400
        assert cmc["cmc_keys_shown"] == cmc["cmc_keys"] == bm25["cmc_keys"] == cmc["records"]
        assert bm25["cmc_keys_shown"] < bm25["cmc_keys"] / 2
        assert result["curve"]["fact_bm25"]["100"][hops] == bm25
    assert list(result["by_length"]["cmc"]) == ["6k", "32k", "64k", "262k"]
