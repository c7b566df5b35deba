"""Contrasts over a scored run: what is declared and what is exploratory, what is counted, and that nothing is written."""

import csv
import io
import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from rich.console import Console
from tiny import GRAMMAR, ROWS, SWITCHED_TEMPLATE, coldread, make_folder, write_experiment, write_rows

from eval.analysis.contrasts import Bootstrap, ContrastQuery, ContrastSummary, contrasts, interactions
from eval.analysis.evidence import PairedEvidence, SideEvidence
from eval.analysis.scored import ScoredRun, open_scored
from eval.console.contrasts import contrast as print_contrast
from eval.records import Score
from eval.statistics import bootstrap, holm, mcnemar
from eval.typeset.contrasts import contrast_grid, flat, interaction_grid
from offline.canonical import read_lines
from offline.config.analysis import Analysis, DeclaredContrast, DeclaredInteraction
from offline.run.folder import EXPERIMENT
from offline.run.opened import OpenRun

ANALYSIS = {
    "contrasts": [
        {"a": "cmc", "b": "stale_closure"},
        {"a": "cmc", "b": "closed_book", "population": "few", "reader": "plain"},
        {"a": "plain", "b": "switched", "view": "cmc"},
    ],
    "interactions": [{"a": "cmc", "b": "raw_history", "c": "stale_closure", "d": "closed_book"}],
    "populations": {"few": ["ada/0", "ada/1", "ada/2", "ada/3"]},
}


def rows() -> list[dict[str, Any]]:
    """Ada's history with 12 questions of six texts, each asked twice, and Carl's with its two."""
    found: list[dict[str, Any]] = json.loads(json.dumps(ROWS))
    questions = [
        {
            "id": str(number),
            "text": f"Where does Ada live{'?' * (1 + number // 2)}",
            "hops": 1 + number // 2 % 2,
            "answers": golds,
        }
        for number, golds in enumerate([["d"], ["7"], ["1", "c"], ["Paris"]] * 3)
    ]
    return [{**found[0], "questions": questions}, found[1]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scored run of two readers with an analysis section."""
    folder = tmp_path_factory.mktemp("contrasts")
    readers = [
        {
            "use": {
                "name": name,
                "engine": "digest",
                "model": {"folder": str(make_folder(folder / name, **template))},
                "output_cap": 24,
                "batch_size": 4,
            },
            "views": views,
        }
        for name, template, views in (
            ("plain", {}, []),
            ("switched", {"template": SWITCHED_TEMPLATE}, ["cmc", "closed_book"]),
        )
    ]
    experiment = write_experiment(folder, folder, readers=readers, analysis=ANALYSIS)
    coldread("run", str(experiment), "--data", str(write_rows(folder, rows())), "--out", str(folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module")
def scored(run: Path) -> ScoredRun:
    return open_scored(OpenRun(run))


def contrast(run: Path, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(coldread("contrast", str(run), *map(str, arguments), "--json").stdout)
    return found


def refusal(run: Path, *arguments: object, code: int) -> str:
    return coldread("contrast", str(run), *map(str, arguments), code=code).stderr


def stored(run: Path, reader: str, view: str) -> dict[str, Score]:
    return {s.question: s for s in read_lines(run / "scores" / reader / "scores.jsonl", Score) if s.view == view}


def answered(scored: ScoredRun, right: dict[tuple[str, str], set[str]], **more: Any) -> ScoredRun:
    """The run with other answers: of each reader and view, the questions that are right; an experiment with `more`."""
    scores = {
        (reader, view): {
            name: msgspec.structs.replace(score, metrics={"subem": name in right.get((reader, view), set())})
            for name, score in questions.items()
        }
        for (reader, view), questions in scored.scores.items()
    }
    experiment = msgspec.structs.replace(scored.experiment, **more)
    run = OpenRun(scored.run.path)
    run.once(EXPERIMENT, "experiment", lambda: experiment)
    return replace(scored, run=run, scores=scores, metrics=("subem",))


def ada(*numbers: int) -> set[str]:
    return {f"ada/{number}" for number in numbers}


# What is declared


def test_without_views_the_declared_contrasts_are_shown(run: Path) -> None:
    result = contrast(run)
    found = [(c["a"], c["b"], c["reader"], c["view"], c["population"], c["hop_class"]) for c in result["contrasts"]]
    assert found == [
        *[("cmc", "stale_closure", "plain", None, "all", hops) for hops in ("sh", "mh", "all")],
        *[("cmc", "closed_book", "plain", None, "few", hops) for hops in ("sh", "mh", "all")],
        *[("plain", "switched", None, "cmc", "all", hops) for hops in ("sh", "mh", "all")],
    ]
    assert all(c["declared"] and c["holm_p"] is not None for c in result["contrasts"])
    assert [i["hop_class"] for i in result["interactions"]] == ["sh", "mh", "all"]
    assert result["sealed_blind"] == {"plain": True, "switched": True}
    assert result["bootstrap"] == {"replicates": 10_000, "seed": 7}


def test_what_is_not_declared_is_exploratory_and_has_no_holm_p(run: Path) -> None:
    for arguments in (
        ("--a", "cmc", "--b", "raw_history"),
        ("--a", "cmc", "--b", "closed_book"),  # declared over `few`
        ("--a", "cmc", "--b", "closed_book", "--population", "few", "--reader", "switched"),
        ("--a", "cmc", "--b", "stale_closure", "--population", "length:5"),
        ("--a", "plain", "--b", "switched", "--view", "closed_book"),
    ):
        found = contrast(run, *arguments)["contrasts"]
        assert found
        assert all(not c["declared"] and c["holm_p"] is None for c in found)


def test_naming_a_declared_contrast_in_either_direction_finds_it_declared(run: Path) -> None:
    declared = [c for c in contrast(run)["contrasts"] if c["b"] == "stale_closure"]
    assert contrast(run, "--a", "cmc", "--b", "stale_closure")["contrasts"] == declared
    back = contrast(run, "--a", "stale_closure", "--b", "cmc")["contrasts"]
    for there, here in zip(declared, back, strict=True):
        assert (here["declared"], here["holm_p"], here["mcnemar_p"]) == (True, there["holm_p"], there["mcnemar_p"])
        assert (here["only_a"], here["only_b"]) == (there["only_b"], there["only_a"])
        assert [float(here[name]) for name in ("points", "low", "high")] == [
            -float(there[name]) for name in ("points", "high", "low")
        ]


def test_declared_contrasts_over_another_population_are_exploratory(run: Path) -> None:
    found = contrast(run, "--population", "few", "--reader", "plain")
    assert {(c["b"], c["declared"]) for c in found["contrasts"]} == {("stale_closure", False), ("closed_book", True)}
    assert found["interactions"] == []


def test_holms_family_is_every_row_of_the_readers_declared_contrasts(scored: ScoredRun) -> None:
    # plain: 12 + 2 questions; cmc wins all of Ada's, stale_closure none, closed_book the first two.
    made = answered(scored, {("plain", "cmc"): ada(*range(12)), ("plain", "closed_book"): ada(0, 1)})
    asked = ContrastQuery(reader="plain").contrasts(made)
    found = contrasts(made, asked, "subem")
    # Questions 0, 1, 4, 5, 8, 9 are single-hop. cmc - stale_closure: wins 6, 6, 12; cmc - closed_book over few: 0, 2, 2.
    assert [c.only_a for c in found] == [6, 6, 12, 0, 2, 2]
    raw = [2 / 2**6, 2 / 2**6, 2 / 2**12, 1.0, 0.5, 0.5]
    assert [float(c.mcnemar_p) for c in found] == pytest.approx(raw, rel=1e-3)
    # Six rows: 6 * 2/4096; 5 * 1/32 twice; 3 * 0.5, at most 1.
    expected = [5 / 32, 5 / 32, 12 / 4096, 1.0, 1.0, 1.0]
    assert [float(c.holm_p or "nan") for c in found] == pytest.approx(expected, rel=1e-3)
    # Asked for alone, a contrast keeps the p that its family gives it.
    alone = contrasts(made, asked[1:], "subem")
    assert alone == found[3:]


def test_two_readers_of_a_view_are_a_family_of_their_own(scored: ScoredRun) -> None:
    made = answered(scored, {("plain", "cmc"): ada(*range(12))})
    found = contrasts(made, ContrastQuery(view="cmc").contrasts(made), "subem")
    assert [(c.only_a, c.reader, c.view) for c in found] == [(6, None, "cmc"), (6, None, "cmc"), (12, None, "cmc")]
    assert [float(c.holm_p or "nan") for c in found] == pytest.approx(holm([mcnemar(n, 0) for n in (6, 6, 12)]), rel=1e-3)


# What is counted


@pytest.mark.parametrize("metric", ["subem", "strict_em", "subem_words"])
def test_rows_count_the_stored_scores(run: Path, metric: str) -> None:
    found = contrast(run, "--a", "cmc", "--b", "closed_book", "--metric", metric)["contrasts"]
    assert [(c["reader"], c["hop_class"], c["questions"]) for c in found] == [
        *[("plain", hops, n) for hops, n in (("sh", 8), ("mh", 6), ("all", 14))],
        *[("switched", hops, n) for hops, n in (("sh", 8), ("mh", 6), ("all", 14))],
    ]
    for cell in found:
        a, b = (stored(run, cell["reader"], view) for view in ("cmc", "closed_book"))
        asked = [name for name in a if cell["hop_class"] in (a[name].hop_class, "all")]
        for name, outcome in zip(("both", "only_a", "only_b", "neither"), product([True, False], repeat=2), strict=True):
            assert cell[name] == sum((a[q].metrics[metric], b[q].metrics[metric]) == outcome for q in asked)
        assert cell["points"] == f"{100 * (cell['only_a'] - cell['only_b']) / cell['questions']:.2f}"
        assert float(cell["low"]) <= float(cell["points"]) <= float(cell["high"])
        assert cell["metric"] == metric


def test_the_fixture_has_discordant_questions(run: Path) -> None:
    # Else the tests of counting would pass on zeros alone.
    found = contrast(run, "--a", "cmc", "--b", "closed_book")["contrasts"]
    assert sum(cell["only_a"] + cell["only_b"] for cell in found) >= 2
    assert sum(cell["both"] for cell in found) >= 1


def test_every_form_of_the_table_holds_the_numbers_of_the_json(run: Path) -> None:
    rows = contrast(run)["contrasts"]
    printed = {form: coldread("contrast", str(run), "--format", form).stdout for form in ("markdown", "latex", "csv", "json")}
    assert json.loads(printed["json"])["contrasts"] == rows
    table = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert len(table) == len(rows)
    for cells, row in zip(table, rows, strict=True):
        assert {name: cells[name] for name in ("a", "b", "population", "hop_class")} == {
            name: row[name] for name in ("a", "b", "population", "hop_class")
        }
        for name in ("questions", "both", "only_a", "only_b", "neither", "points", "low", "high", "mcnemar_p"):
            assert float(cells[name]) == float(row[name])
        assert (cells["holm_p"] == "") == (row["holm_p"] is None)
    for row in rows:
        shown = f"{row['points']} ({row['low']} to {row['high']})"
        assert shown in printed["markdown"]
        assert shown in printed["latex"]
    assert printed["markdown"].count("declared before reading") == sum(row["declared"] for row in rows) + len(
        contrast(run)["interactions"]
    )
    assert printed["latex"].count("\\begin{tabular}") == printed["latex"].count("\\end{tabular}") == 2


def test_questions_of_one_text_are_one_cluster(scored: ScoredRun) -> None:
    # Carl's two questions have texts of their own; Ada's twelve share six.
    wins = ada(0, 1, 2, 3, 6)
    made = answered(scored, {("plain", "cmc"): wins, ("plain", "stale_closure"): ada(8)})
    (*_, pooled) = contrasts(made, [DeclaredContrast("cmc", "stale_closure", reader="plain")], "subem")
    assert (pooled.questions, pooled.clusters, pooled.only_a, pooled.only_b) == (14, 8, 5, 1)
    values = {question: (question in wins) - (question == "ada/8") for question in scored.texts}
    low, high = bootstrap(list(values.values()), [scored.texts[question] for question in values])
    assert (pooled.low, pooled.high) == (f"{low:.2f}", f"{high:.2f}")
    assert (low, high) != bootstrap(list(values.values()), list(values))
    # 5 against 1: (5 - 1)² / 6.
    assert (pooled.chi_square, pooled.mcnemar_p) == ("2.67", "0.2188")


def test_a_population_restricts_every_row(scored: ScoredRun) -> None:
    made = answered(scored, {("plain", "cmc"): ada(0, 1, 2, 5)})
    found = contrasts(made, [DeclaredContrast("cmc", "closed_book", "few", "plain")], "subem")
    assert [(c.hop_class, c.questions, c.only_a) for c in found] == [("sh", 2, 2), ("mh", 2, 1), ("all", 4, 3)]


def test_one_hop_class_is_not_counted_twice(scored: ScoredRun) -> None:
    analysis = Analysis(populations={"single": ("ada/0", "ada/1", "carl/0")})
    made = answered(scored, {}, analysis=analysis)
    found = contrasts(made, [DeclaredContrast("cmc", "closed_book", "single", "plain")], "subem")
    assert [(c.hop_class, c.questions) for c in found] == [("sh", 3)]


def test_an_interaction_as_worked_by_hand(scored: ScoredRun) -> None:
    views = ("cmc", "raw_history", "stale_closure", "closed_book")
    sets = (ada(0, 1, 2, 4, 5), ada(0), ada(1, 2), ada(2))
    made = answered(scored, {("plain", view): right for view, right in zip(views, sets, strict=True)})
    found = interactions(made, [DeclaredInteraction(*views, reader="plain")], "subem")
    # sh, 8 questions: (4 - 1) - (1 - 0) = 2. mh, 6: (1 - 0) - (1 - 1) = 1. Pooled 3 of 14.
    assert [(i.correct, i.points) for i in found] == [
        ((4, 1, 1, 0), "25.00"),
        ((1, 0, 1, 1), "16.67"),
        ((5, 1, 2, 1), "21.43"),
    ]
    assert all(i.declared and float(i.low) <= float(i.points) <= float(i.high) for i in found)


def test_an_interval_that_no_resample_could_widen_is_marked(scored: ScoredRun) -> None:
    both = {("plain", "cmc"): ada(0, 1, 3), ("plain", "closed_book"): ada(0, 1)}
    made = answered(scored, both)
    # ada/3 has two hops: the other class has no discordant question, so its zeros come of nothing that was drawn.
    sh, mh, pooled = contrasts(made, [DeclaredContrast("cmc", "closed_book", reader="plain")], "subem")
    assert (sh.only_a + sh.only_b, sh.low, sh.high, sh.no_width) == (0, "0.00", "0.00", True)
    assert (mh.only_a, mh.no_width, pooled.only_a, pooled.no_width) == (1, UNSET, 1, UNSET)
    grid = contrast_grid([[sh, mh, pooled]])
    points = [row[grid.headings.index("points (95 %)")] for row in grid.groups[0]]
    assert [str(text).endswith("*") for text in points] == [True, False, False]
    assert any(note.startswith("* every question") for note in grid.notes)
    assert not any(note.startswith("* ") for note in contrast_grid([[mh, pooled]]).notes)
    table = flat([sh, mh])
    assert [row[table.headings.index("no_width")] for row in table.groups[0]] == [True, False]
    assert "no_width" not in flat([mh]).headings
    console = Console(width=100, file=io.StringIO())
    for rows, marked in (([sh, mh], True), ([mh], False)):
        console.file = io.StringIO()
        print_contrast(console, ContrastSummary("subem", Bootstrap(), {"plain": True}, tuple(rows), ()))
        assert ("[0.00, 0.00]*" in console.file.getvalue(), "* every question" in console.file.getvalue()) == (marked, marked)


def test_an_interaction_of_which_every_question_comes_out_alike_is_marked(scored: ScoredRun) -> None:
    views = ("cmc", "raw_history", "stale_closure", "closed_book")
    made = answered(scored, {("plain", "cmc"): ada(1)})
    found = interactions(made, [DeclaredInteraction(*views, reader="plain")], "subem")
    assert {row.hop_class: row.no_width for row in found} == {"sh": UNSET, "mh": True, "all": UNSET}
    assert any(note.startswith("* every question") for note in interaction_grid(found).notes)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_contrast_and_its_reverse_agree(scored: ScoredRun, data: st.DataObject) -> None:
    subsets = st.sets(st.sampled_from(sorted(scored.texts)))
    right = {("plain", view): data.draw(subsets) for view in ("cmc", "stale_closure")}
    made = answered(scored, right)
    one, two = (
        contrasts(made, [DeclaredContrast(a, b, reader="plain")], "subem")
        for a, b in (("cmc", "stale_closure"), ("stale_closure", "cmc"))
    )
    for there, here in zip(one, two, strict=True):
        assert (there.only_a, there.only_b, there.mcnemar_p, there.holm_p) == (
            here.only_b,
            here.only_a,
            here.mcnemar_p,
            here.holm_p,
        )
        assert (float(there.low), float(there.high)) == (-float(here.high), -float(here.low))


# What evidence explains


def test_accuracy_given_evidence_and_outcomes_by_evidence_as_worked_by_hand(scored: ScoredRun) -> None:
    # Questions 3, 7 and 11 have the gold Paris. cmc shows "Ada lives in Paris." and "Paris lies on the river Seine.";
    # stale_closure has "Ada lives in Rome." instead of the former, and the latter still holds the gold; closed_book is empty.
    right = {("plain", "cmc"): ada(3, 7), ("plain", "stale_closure"): ada(11), ("plain", "closed_book"): ada(3, 11)}
    analysis = Analysis(populations={"paris": ("ada/3", "ada/7", "ada/11")})
    made = answered(scored, right, analysis=analysis)
    asked = [DeclaredContrast("cmc", b, "paris", "plain") for b in ("stale_closure", "closed_book")]
    stale, nothing = contrasts(made, asked, "subem", evidence=True)
    assert (stale.questions, nothing.questions) == (3, 3)
    assert stale.evidence == PairedEvidence(
        of_a=SideEvidence(held=3, answered=2, lost=1, lacking_record=1, lacking_gold=0),
        of_b=SideEvidence(held=3, answered=1, lost=2, lacking_record=2, lacking_gold=0),
    )
    # closed_book wins 11 without a record of its own, so cmc lacks none of them. It loses 7.
    assert nothing.evidence == PairedEvidence(
        of_a=SideEvidence(held=3, answered=2, lost=1, lacking_record=0, lacking_gold=0),
        of_b=SideEvidence(held=0, answered=0, lost=1, lacking_record=1, lacking_gold=1),
    )


def test_evidence_rows_are_those_of_the_contrasts(run: Path) -> None:
    result = contrast(run, "--evidence")
    names = ("a", "b", "reader", "view", "population", "hop_class", "questions")
    keys = [[[row[name] for name in names] for row in result[part]] for part in ("contrasts", "evidence")]
    assert keys[0] == keys[1]
    for row, found in zip(result["contrasts"], result["evidence"], strict=True):
        assert (found["of_a"]["lost"], found["of_b"]["lost"]) == (row["only_b"], row["only_a"])
        for side in (found["of_a"], found["of_b"]):
            assert side["answered"] <= side["held"] <= row["questions"]
            assert max(side["lacking_record"], side["lacking_gold"]) <= side["lost"]
    assert "evidence" not in contrast(run)


def test_gold_held_is_what_coverage_counts(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    counted = json.loads(coldread("coverage", str(copy), "--json").stdout)["views"]
    for row in contrast(run, "--a", "cmc", "--b", "raw_history", "--evidence")["evidence"]:
        if row["hop_class"] != "all":
            for side, view in (("of_a", "cmc"), ("of_b", "raw_history")):
                assert row[side]["held"] == counted[view][row["hop_class"]]["gold_in_evidence"]


# What is printed


def test_tables_fit_a_hundred_columns_and_mark_what_is_exploratory(run: Path) -> None:
    declared = coldread("contrast", str(run), "--evidence").stdout
    other = coldread("contrast", str(run), "--a", "cmc", "--b", "raw_history").stdout
    assert max(map(len, (declared + other).splitlines())) <= 108  # the last line is prose and wraps on a terminal
    tables = [line for line in (declared + other).splitlines() if not line.startswith("bootstrap over")]
    assert max(map(len, tables)) <= 100
    assert "…" not in declared + other
    assert "EXPLORATORY" in other.replace("\n", " ")
    assert "declared before reading" not in other
    assert "EXPLORATORY" not in declared
    assert declared.replace("\n", " ").count("declared before") >= 4


def test_the_table_says_what_the_json_says(run: Path) -> None:
    shown = coldread("contrast", str(run), "--a", "cmc", "--b", "closed_book", "--reader", "plain").stdout
    cell = contrast(run, "--a", "cmc", "--b", "closed_book", "--reader", "plain")["contrasts"][-1]
    (row,) = [line.split() for line in shown.splitlines() if line.split()[:1] == ["all"]]
    counts = [str(cell[name]) for name in ("questions", "both", "only_a", "only_b", "neither")]
    assert row[1:6] == counts
    assert row[6] == f"{float(cell['points']):+.2f}"
    assert " ".join(row[7:9]) == f"[{cell['low']}, {cell['high']}]"
    assert row[9:] == [
        f"{float(cell['mcnemar_p']):.2g}",
        f"{float(cell['chi_square']):.1f}",
        f"{float(cell['chi_square_p']):.2g}",
        "-",
    ]


def test_nothing_is_written_and_no_label_is_opened(run: Path) -> None:
    def state() -> dict[str, bytes]:
        return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}

    before = state()
    contrast(run, "--evidence")
    assert state() == before


# What is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--a", "cmc"], "--a and --b go together"),
        (["--a", "cmc", "--b", "cmc"], "--a and --b are both 'cmc'"),
        (["--a", "cmc", "--b", "fact_bm25"], "no reader reads both 'cmc' and 'fact_bm25'"),
        (
            ["--a", "cmc", "--b", "raw_history", "--reader", "nobody"],
            "reader 'nobody' has no view 'cmc'; there are plain:",
        ),
        (["--a", "cmc", "--b", "raw_history", "--reader", "switched"], "reader 'switched' has no view 'raw_history'"),
        (["--a", "plain", "--b", "nobody", "--view", "cmc"], "reader 'nobody' has no view 'cmc'"),
        (["--a", "plain", "--b", "switched", "--view", "cmc", "--reader", "plain"], "leave --reader out"),
        (["--reader", "nobody"], "declares no such contrast; name two views"),
        (["--metric", "rouge"], "--metric rouge: not stored; there are strict_em, subem, subem_words"),
        (
            ["--a", "cmc", "--b", "raw_history", "--population", "many"],
            "no population 'many'; there are all, length:5, length:3, non_overflow",
        ),
        (["--a", "cmc", "--b", "raw_history", "--population", "length:9k"], "no population 'length:9k'"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(run: Path, arguments: list[str], said: str) -> None:
    assert said in refusal(run, *arguments, code=2)


def test_scores_of_other_labels_are_refused(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    scores = copy / "scores" / "plain" / "scores.jsonl"
    scores.write_bytes(scores.read_bytes().replace(b"true", b"null", 1))
    assert "differs from what was written" in refusal(copy, code=20)
    shutil.rmtree(copy / "scores")
    assert "run `coldread score" in refusal(copy, code=10)


# Declared before anything is read


def start(tmp_path: Path, analysis: object, code: int = 0) -> str:
    """What freezing a run with this section says."""
    (tmp_path / "homes.yaml").write_text(GRAMMAR)
    reader = {"name": "tiny", "engine": "recorded", "model": {"folder": "/nowhere"}, "options": {"run": "/nowhere"}}
    experiment = write_experiment(tmp_path, tmp_path, readers=[{"use": reader}], analysis=analysis)
    data = write_rows(tmp_path)
    out = str(tmp_path / "run")
    return coldread("run", str(experiment), "--data", str(data), "--out", out, "--until", "freeze", code=code).stderr


@pytest.mark.parametrize(
    ("analysis", "said"),
    [
        ({"contrasts": [{"a": "cmc", "b": "raw_history", "population": "many"}]}, "no population 'many'"),
        ({"contrasts": [{"a": "cmc", "b": "raw_history", "population": "length:9k"}]}, "no population 'length:9k'"),
        ({"populations": {"few": ["ada/0", "ada/99"]}}, "lists 'ada/99', which is no question of this run"),
    ],
)
def test_a_population_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path, analysis: object, said: str) -> None:
    assert said in start(tmp_path, analysis, code=3)
    assert not (tmp_path / "run").exists()


def test_the_section_changes_the_experiment_and_no_packet(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    start(tmp_path / "with", {"contrasts": [{"a": "cmc", "b": "raw_history"}], "populations": {"few": ["ada/0"]}})
    start(tmp_path / "without", {})
    one, two = (tmp_path / name / "run" for name in ("with", "without"))
    manifests = [(place / "packets" / "manifest.json").read_bytes() for place in (one, two)]
    assert manifests[0] == manifests[1]
    assert OpenRun(one).experiment_digest() != OpenRun(two).experiment_digest()
    (declared,) = (OpenRun(one).experiment.analysis or Analysis()).contrasts
    assert declared == DeclaredContrast("cmc", "raw_history", "all", "tiny")
