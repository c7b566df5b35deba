"""Comparing two readers: what is refused, what is counted, and that nothing is written."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from http_double import Asked, Reply, ids, said, serve
from tiny import ROWS, SWITCHED_TEMPLATE, TEMPLATE, coldread, make_folder, write_experiment, write_rows

from eval.analysis.compare import chat_text, lacking, paired_cells, stated
from eval.analysis.exchanges import Exchange as Item
from eval.records import Score
from offline.canonical import read_lines, read_record
from offline.config.models import Pin, pin_text
from offline.run.opened import OpenRun
from readers.records import Request, Scheduled, Settings
from readers.seal import read_seal

# One digit is a gold that the engine `digest` hits now and then, so that all four outcomes occur.
LETTERS = [["d"], ["7"], ["1", "c"]]


def easy_rows() -> list[dict[str, Any]]:
    """The tiny histories, each question asked of Ada in several wordings."""
    rows: list[dict[str, Any]] = json.loads(json.dumps(ROWS))
    questions = [
        {"id": str(number), "text": f"Where does Ada live{'?' * (number + 1)}", "hops": 1 + number % 2, "answers": golds}
        for number, golds in enumerate(LETTERS * 3)
    ]
    return [{**rows[0], "questions": questions}]


def reader(name: str, model: Path, **changes: object) -> dict[str, object]:
    return {"name": name, "engine": "digest", "model": {"folder": str(model)}, "output_cap": 24, **changes}


def played(name: str, run: Path, recorded: str, view: str) -> dict[str, object]:
    """A reader of one view that plays a run's reader back, in less time than it takes to load a model."""
    tokenizer = run / "reads" / recorded / "tokenizer"
    return reader(name, tokenizer, engine="recorded", options={"run": str(run), "reader": recorded}, views=[view])


def make_run(folder: Path, readers: list[dict[str, Any]], rows: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """A scored run in `folder`; each reader may name its `views`."""
    folder.mkdir()
    limit, coverage = changes.pop("limit", None), changes.pop("coverage", False)
    uses = [{"use": {k: v for k, v in r.items() if k != "views"}, "views": r.get("views", [])} for r in readers]
    experiment = write_experiment(folder, folder, readers=uses, **changes)
    data = write_rows(folder, easy_rows() if rows is None else rows)
    command = ["run", str(experiment), "--data", str(data), "--out", str(folder / "run")]
    command += ["--limit", str(limit)] if limit else []
    if coverage:
        coldread(*command, "--until", "freeze")
        coldread("coverage", str(folder / "run"))
    coldread(*command)
    return folder / "run"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights under two chat templates."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "plain": make_folder(folder / "plain", template=TEMPLATE),
        "switched": make_folder(folder / "switched", template=SWITCHED_TEMPLATE),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Path:
    """Four readers: two that share views, one whose cap cuts raw_history, one whose cap holds no input at all.

    The last two play a run without their inputs back: what they are given counts, not what they answer.
    """
    silent = {"engine": "recorded", "options": {"run": str(Path(__file__).parent / "golden" / "format-1")}}
    readers = [
        reader("plain", models["plain"], views=["cmc", "stale_closure", "closed_book"]),
        reader("switched", models["switched"], views=["closed_book", "cmc", "raw_history"]),
        reader("capped", models["plain"], views=["raw_history"], input_cap=480, **silent),
        reader("short", models["plain"], views=["closed_book"], input_cap=10, **silent),
    ]
    return make_run(tmp_path_factory.mktemp("compare") / "one", readers)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory, run: Path) -> Path:
    """Another run over the same packets, read after `coverage` opened the labels."""
    readers = [played("later", run, "switched", "cmc")]
    return make_run(tmp_path_factory.mktemp("compare") / "later", readers, coverage=True)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, models: dict[str, Path]) -> Path:
    """A run over the same packets whose readers ask a server, one with messages and one with token ids."""

    def answer(asked: Asked, before: int) -> Reply:
        return said("café!") if asked.path.endswith("/chat/completions") else ids([80, 81, 1])

    with serve(answer) as double:
        options = {"base_url": double.url, "retries": 0}
        asking = reader("", models["plain"], engine="openai", options=options, probe=0, views=["cmc"])
        readers = [
            {**asking, "name": "served", "model": {"served": "m"}},
            {**asking, "name": "ids", "options": {**options, "model": "m"}},
        ]
        return make_run(tmp_path_factory.mktemp("compare") / "behind", readers)


def compare(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(coldread("compare", *map(str, arguments), "--json").stdout)
    return found


def refusal(*arguments: object, code: int = 10) -> str:
    return coldread("compare", *map(str, arguments), code=code).stderr


def stored(run: Path, name: str, view: str) -> dict[str, Score]:
    return {s.question: s for s in read_lines(run / "scores" / name / "scores.jsonl", Score) if s.view == view}


# What is counted


@pytest.mark.parametrize("metric", ["subem", "strict_em", "subem_words"])
def test_cells_count_the_stored_scores(run: Path, metric: str) -> None:
    result = compare(run, "plain", "switched", "--metric", metric)
    assert result["metric"] == metric
    assert set(result["views"]) == {"cmc", "closed_book"}
    for view, cells in result["views"].items():
        ours, theirs = stored(run, "plain", view), stored(run, "switched", view)
        for hop_class, of in (("sh", 5), ("mh", 4), ("all", 9)):
            asked = [q for q, s in ours.items() if hop_class in (s.hop_class, "all")]
            counts = Counter((ours[q].metrics[metric], theirs[q].metrics[metric]) for q in asked)
            cell = cells[hop_class]
            assert cell["questions"] == len(asked) == of
            found = (cell["both"], cell["only_a"], cell["only_b"], cell["neither"])
            assert found == (counts[True, True], counts[True, False], counts[False, True], counts[False, False])


def test_the_fixture_has_discordant_questions(run: Path) -> None:
    # Else the tests of counting would pass on zeros alone.
    cells = compare(run, "plain", "switched")["views"]
    assert sum(views["all"]["only_a"] + views["all"]["only_b"] for views in cells.values()) >= 3
    assert sum(views["all"]["both"] for views in cells.values()) >= 1


def item(question: str, hop_class: str, right: bool) -> Item:
    score = Score(
        reader="r",
        view="cmc",
        question=question,
        row="row",
        hop_class=hop_class,  # type: ignore[arg-type]
        hops=None,
        length="6k",
        prediction="",
        finish_reason="stop",
        golds=("g",),
        cut=0,
        metrics={"subem": right, "strict_em": False},
    )
    return Item(score=score, given=("p", 0, False), requests=("r",), input_size=1, output_size=1)


def test_cells_come_out_as_worked_by_hand() -> None:
    # mh: 24 both, 5 only A, 2 only B, 14 neither, of 45 (published). sh: 1 both. One question of no class: only A.
    outcomes = [("mh", True, True)] * 24 + [("mh", True, False)] * 5 + [("mh", False, True)] * 2 + [("mh", False, False)] * 14
    outcomes += [("sh", True, True), ("all", True, False)]
    ours = {str(number): item(str(number), hops, a) for number, (hops, a, _) in enumerate(outcomes)}
    theirs = {str(number): item(str(number), hops, b) for number, (hops, _, b) in reversed(list(enumerate(outcomes)))}
    cells = paired_cells(ours, theirs, "subem")
    assert list(cells) == ["mh", "sh", "all"]
    # Wilson 29/45 and 26/45 are published as [49.8, 76.8] and [43.3, 71.0].
    assert msgspec.to_builtins(cells["mh"]) == {
        "questions": 45,
        "a": {"correct": 29, "low": pytest.approx(49.8, abs=0.06), "high": pytest.approx(76.8, abs=0.06)},
        "b": {"correct": 26, "low": pytest.approx(43.3, abs=0.06), "high": pytest.approx(71.0, abs=0.06)},
        "both": 24,
        "only_a": 5,
        "only_b": 2,
        "neither": 14,
        "win_tie_loss": (5, 38, 2),
        "points": 6.67,
        "mcnemar_p": pytest.approx(0.453125, abs=1e-12),
    }
    assert (cells["all"].questions, cells["all"].win_tie_loss) == (47, (6, 39, 2))
    assert (cells["sh"].questions, cells["sh"].mcnemar_p) == (1, 1.0)


def test_swapping_the_readers_mirrors_every_cell(run: Path) -> None:
    one, two = compare(run, "plain", "switched"), compare(run, "switched", "plain")
    assert (one["a"], one["b"]) == (two["b"], two["a"])
    for view, cells in one["views"].items():
        for hop_class, cell in cells.items():
            mirror = two["views"][view][hop_class]
            assert cell["win_tie_loss"] == mirror["win_tie_loss"][::-1]
            assert (cell["a"], cell["points"], cell["mcnemar_p"]) == (mirror["b"], -mirror["points"], mirror["mcnemar_p"])


def test_views_of_one_reader_are_named_not_compared(run: Path) -> None:
    result = compare(run, "plain", "switched")
    assert (result["only_a_reads"], result["only_b_reads"]) == (["stale_closure"], ["raw_history"])
    table = coldread("compare", str(run), "plain", "switched").stdout
    assert "not compared, read by A alone: stale_closure" in table
    assert "not compared, read by B alone: raw_history" in table


def test_a_reader_of_another_run_over_the_same_packets_is_compared(run: Path, later: Path) -> None:
    # `later` plays `switched` back, so every question ties.
    cells = compare(run, "switched", "later", "--other", later)["views"]
    assert list(cells) == ["cmc"]
    assert cells["cmc"]["all"]["win_tie_loss"] == [0, 9, 0]
    ours, theirs = (compare(run, "plain", *b)["views"]["cmc"] for b in (("switched",), ("later", "--other", later)))
    assert ours == theirs


# What the readers are


def test_tokens_and_caps_are_those_of_the_shared_views(run: Path) -> None:
    facts = compare(run, "plain", "switched")["a"]
    folder = run / "reads" / "plain" / "requests"
    lengths = {request.digest: request.length for request in read_lines(folder / "requests.jsonl", Request)}
    counts = [lengths[s.request] for s in read_lines(folder / "schedule.jsonl", Scheduled) if s.view != "stale_closure"]
    assert len(counts) == 18
    assert facts["input_tokens"] == {"mean": round(sum(counts) / 18, 1), "max": max(counts)}
    assert 0 < facts["output_tokens"]["mean"] <= facts["output_tokens"]["max"] <= facts["output_cap"] == 24
    assert (facts["engine"], facts["dtype"], facts["device"].split()[0]) == ("digest", "float32", "cpu")
    assert facts["views"] == {view: {"cut": 0, "failed": 0} for view in ("cmc", "closed_book")}


def test_a_device_that_no_engine_reported_is_the_one_asked_for(run: Path, later: Path) -> None:
    assert compare(run, "plain", "later", "--other", later)["b"]["device"] == "auto"


def test_a_server_states_no_dtype_and_no_device_and_a_served_models_sizes_are_bytes(run: Path, behind: Path) -> None:
    result = compare(run, "plain", "served", "--other", behind)
    facts = result["b"]
    assert (facts["dtype"], facts["device"]) == ("not known", "not known")
    assert facts["output_bytes"] == {"mean": 6.0, "max": 6}  # é is two of the six
    folder = behind / "reads" / "served" / "requests"
    assert facts["input_bytes"]["max"] == max(r.length for r in read_lines(folder / "requests.jsonl", Request))
    assert not {"input_tokens", "output_tokens"} & facts.keys()
    table = coldread("compare", str(run), "plain", "served", "--other", str(behind)).stdout
    assert "openai, dtype not known, device not known; thinking: unknown" in table
    assert "output bytes: mean 6.0, at most 6 (cap 24 tokens)" in table
    # A's line is as it ever was.
    assert f"at most {result['a']['output_tokens']['max']} (cap 24)" in table
    assert f"digest, float32 on {result['a']['device']}" in table


def test_a_server_asked_by_token_ids_states_no_dtype_either_and_its_sizes_are_tokens(run: Path, behind: Path) -> None:
    facts = compare(run, "plain", "ids", "--other", behind)["b"]
    assert (facts["dtype"], facts["device"], facts["output_tokens"]["max"]) == ("not known", "not known", 3)


def test_what_a_server_states_of_dtype_and_device_is_believed(behind: Path) -> None:
    folder = behind / "reads" / "ids"
    settings = read_record(folder / "requests" / "settings.json", Settings)
    environments = ({"device": "cpu", "dtype": "bfloat16"}, {"device": "H200"})
    seal = msgspec.structs.replace(read_seal(OpenRun(behind), "ids"), environments=environments)
    assert (stated(seal, settings, "dtype"), stated(seal, settings, "device")) == ("bfloat16", "H200, cpu")


def test_the_thinking_switch_is_told(run: Path) -> None:
    result = compare(run, "plain", "switched")
    assert (result["a"]["thinking"], result["b"]["thinking"]) == ("no switch", "off")


def test_each_reader_is_told_sealed_blind_or_not(run: Path, later: Path) -> None:
    result = compare(run, "plain", "later", "--other", later)
    assert (result["a"]["sealed_blind"], result["b"]["sealed_blind"]) == (True, False)
    table = coldread("compare", str(run), "plain", "later", "--other", str(later)).stdout
    assert f"A: plain in {run}, sealed blind" in table
    assert f"B: later in {later}, sealed after labels were opened" in table


@pytest.mark.parametrize(
    ("pin", "text"),
    [
        (Pin(embedded="tiny"), "embedded tiny"),
        (Pin(folder="models/a"), "folder models/a"),
        (Pin(repository="lab/model", revision="0" * 40), f"repository lab/model@{'0' * 40}"),
        (Pin(served="big"), "served big"),
        (Pin(folder="models/a", fingerprint="f" * 64), "folder models/a"),
    ],
)
def test_a_pin_reads_as_people_write_it(pin: Pin, text: str) -> None:
    assert pin_text(pin) == text


def test_tables_fit_a_hundred_columns_and_show_what_the_json_says(run: Path) -> None:
    shown = coldread("compare", str(run), "plain", "switched").stdout
    cell = compare(run, "plain", "switched")["views"]["cmc"]["all"]
    rows = [line.split() for line in shown.splitlines() if line.split()[:2] == ["cmc", "all"]]
    a, b = cell["a"], cell["b"]
    interval_a, interval_b = (f"{c['low']:.2f}-{c['high']:.2f}" for c in (a, b))
    percent_a, percent_b = (f"{100 * c['correct'] / 9:.2f}" for c in (a, b))
    assert rows[0][2:] == ["9", str(a["correct"]), percent_a, interval_a, str(b["correct"]), percent_b, interval_b]
    counts = [str(cell[name]) for name in ("both", "only_a", "only_b", "neither")]
    outcome = "/".join(map(str, cell["win_tie_loss"]))
    assert rows[1][2:] == [*counts, outcome, f"{cell['points']:+.2f}", f"{cell['mcnemar_p']:.3g}"]
    table = shown[shown.index("subem") : shown.index("chat template")]
    assert max(map(len, table.splitlines())) <= 100
    assert "…" not in table


# Chat templates


def test_both_templates_are_shown_with_what_each_lacks(run: Path) -> None:
    shown = compare(run, "plain", "switched")["templates"]
    plain = "<s><|system|>SYSTEM MESSAGE<|end|><|user|>USER MESSAGE<|end|><|assistant|>"
    assert shown == {
        "a": plain,
        "b": plain + "<think></think>",
        "only_a": [],
        "only_b": ["<think></think>"],
        "notes": [],
    }
    assert f"chat template of B: {shown['b']}" in coldread("compare", str(run), "plain", "switched").stdout


def test_equal_templates_are_called_the_same(run: Path, later: Path) -> None:
    assert "   the same" in coldread("compare", str(run), "switched", "later", "--other", str(later)).stdout


def test_without_transformers_the_comparison_still_works(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compare(run, "plain", "switched")
    monkeypatch.setitem(sys.modules, "transformers", None)
    bare = compare(run, "plain", "switched")
    templates = bare.pop("templates")
    assert bare == {key: value for key, value in whole.items() if key != "templates"}
    assert (templates["a"], templates["b"], templates["only_a"], templates["only_b"]) == (None, None, [], [])
    (note,) = templates["notes"]
    assert "pip install 'coldread[replay]'" in note
    assert f"chat template not shown: {note}" in coldread("compare", str(run), "plain", "switched").stdout


def test_a_reader_without_a_tokenizer_here_has_no_template_text(run: Path) -> None:
    place = OpenRun(run)
    plan = place.experiment.readers[0]
    assert chat_text(place, plan) is not None
    served = msgspec.structs.replace(plan, reader=msgspec.structs.replace(plan.reader, model=Pin(served="big")))
    assert chat_text(place, served) is None
    gone = msgspec.structs.replace(plan, reader=msgspec.structs.replace(plan.reader, name="gone"))
    assert chat_text(place, gone) is None


def test_lacking_pieces_are_marks_and_words_in_order() -> None:
    assert lacking("<|user|>\nU<|end|>", "[INST] U [/INST]") == (("<|user|>\n", "<|end|>"), ("[INST] ", " [/INST]"))
    assert lacking("same text", "same text") == ((), ())


# What is refused


def test_the_readers_that_pass_were_given_the_same_text(run: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    def texts(name: str) -> dict[tuple[str, str], str]:
        folder = run / "reads" / name
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder / "tokenizer"))
        flat = np.fromfile(folder / "requests" / "inputs.u32", dtype="<u4").tolist()
        ids = {
            r.digest: flat[r.offset : r.offset + r.length] for r in read_lines(folder / "requests" / "requests.jsonl", Request)
        }
        return {
            (s.view, s.question): tokenizer.decode(ids[s.request], skip_special_tokens=True).removesuffix("<think></think>")
            for s in read_lines(folder / "requests" / "schedule.jsonl", Scheduled)
        }

    ours, theirs = texts("plain"), texts("switched")
    shared = ours.keys() & theirs.keys()
    assert len(shared) == 18
    assert all(ours[key] == theirs[key] for key in shared)


def test_evidence_cut_for_one_reader_is_refused(run: Path) -> None:
    said = refusal(run, "switched", "capped")
    assert "view 'raw_history'" in said
    assert "the input caps cut 0 and" in said


def test_a_reader_that_was_given_nothing_is_refused(run: Path) -> None:
    # closed_book has no evidence to cut, so the cuts are equal and only `too_long` tells.
    said = refusal(run, "plain", "short")
    assert f"too long for 'short' in {run} even without evidence" in said
    assert f"too long for 'short' in {run} even without evidence" in refusal(run, "short", "plain")


def test_readers_without_a_common_view_are_refused(run: Path) -> None:
    assert "no view is read by both" in refusal(run, "plain", "capped")


def test_a_reader_is_not_compared_with_itself(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    for other in ([], ["--other", run], ["--other", copy]):
        assert "the same sealed reader" in refusal(run, "plain", "plain", *other, code=2)


def test_an_unknown_reader_is_refused_with_the_known_ones(run: Path) -> None:
    assert "has no reader 'nobody'; it has plain, switched, capped, short" in refusal(run, "plain", "nobody", code=2)
    assert "has no reader 'nobody'" in refusal(run, "nobody", "plain", code=2)


def test_an_unknown_metric_is_refused_with_the_stored_ones(run: Path) -> None:
    said = refusal(run, "plain", "switched", "--metric", "rouge", code=2)
    assert "--metric rouge: not stored for both readers; there are strict_em, subem, subem_words" in said


def test_an_unsealed_reader_is_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    shutil.rmtree(copy / "reads" / "switched")
    assert f"reader 'switched' is not sealed; run `coldread read {copy}`" in refusal(copy, "plain", "switched")
    assert "reader 'switched' is not sealed" in refusal(run, "plain", "switched", "--other", copy)


def test_an_unscored_run_is_refused(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    shutil.rmtree(copy / "scores")
    assert f"run `coldread score {copy}`" in refusal(copy, "plain", "switched")
    assert f"run `coldread score {copy}`" in refusal(run, "plain", "switched", "--other", copy)


def test_scores_of_an_earlier_seal_are_refused(later: Path, run: Path, tmp_path: Path) -> None:
    # Read again after the labels were opened by `score`: another seal, which the stored scores do not know.
    copy = Path(shutil.copytree(later, tmp_path / "copy"))
    shutil.rmtree(copy / "reads" / "later")
    coldread("read", str(copy))
    said = refusal(run, "plain", "later", "--other", copy)
    assert f"the scores are not of these seals and labels; run `coldread score {copy}`" in said


@pytest.mark.parametrize(
    "name",
    [
        "reads/switched/requests/schedule.jsonl",
        "reads/switched/predictions.jsonl",
        "reads/plain/tokenizer/tokenizer.json",
        "scores/plain/scores.jsonl",
        "packets/cmc.jsonl",
        "data/questions.jsonl",
    ],
)
def test_an_altered_file_is_refused_and_named(run: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data.replace(b"a", b"b", 1))
    assert (copy / name).read_bytes() != data
    assert name in refusal(copy, "plain", "switched", code=20)
    assert name in refusal(run, "capped", "plain", "--other", copy, code=20)


def test_other_questions_are_refused(run: Path, tmp_path: Path) -> None:
    few = make_run(tmp_path / "few", [played("few", run, "plain", "cmc")], limit=3)
    for arguments in ((run, "plain", "few", "--other", few), (few, "few", "plain", "--other", run)):
        said = refusal(*arguments)
        assert "view 'cmc'" in said
        assert "6 questions are read by one alone, for example 'ada/3'" in said


def test_other_golds_are_refused(run: Path, tmp_path: Path) -> None:
    rows = easy_rows()
    rows[0]["questions"][4]["answers"] = ["x"]
    other = make_run(tmp_path / "golds", [played("other", run, "plain", "cmc")], rows)
    said = refusal(run, "plain", "other", "--other", other)
    assert "question 'ada/4': the gold answers differ, ['7'] and ['x']" in said


def test_other_packets_are_refused_with_what_differs(run: Path, tmp_path: Path) -> None:
    rows = easy_rows()
    rows[0]["statements"][4] = "Ada lives in Oslo."
    rows[0]["questions"][2]["text"] += " Say it."
    other = make_run(tmp_path / "packets", [played("other", run, "plain", "cmc")], rows)
    said = refusal(run, "plain", "other", "--other", other)
    assert "view 'cmc'" in said
    assert "question 'ada/0': the packets differ in history_digest, evidence" in said


def test_other_wording_of_a_question_is_refused(run: Path, tmp_path: Path) -> None:
    rows = easy_rows()
    rows[0]["questions"][2]["text"] += " Say it."
    other = make_run(tmp_path / "wording", [played("other", run, "plain", "closed_book")], rows)
    said = refusal(run, "plain", "other", "--other", other)
    assert "question 'ada/2': the packets differ in question_digest;" in said


def test_another_prompt_is_refused(run: Path, tmp_path: Path) -> None:
    prompt = yaml.safe_load((Path(__file__).parents[1] / "configs" / "prompts" / "reader.yaml").read_text())
    (tmp_path / "terse.yaml").write_text(yaml.safe_dump({**prompt, "system": "Answer."}))
    readers = [played("other", run, "plain", "cmc")]
    other = make_run(tmp_path / "prompt", readers, prompt=str(tmp_path / "terse.yaml"))
    assert "differ in system" in refusal(run, "plain", "other", "--other", other)


def test_a_folder_that_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    assert "is no run" in refusal(run, "plain", "switched", "--other", tmp_path)


def test_nothing_is_written_and_the_ledger_does_not_grow(run: Path, later: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        paths = [path for folder in (run, later) for path in folder.rglob("*")]
        return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}

    before = state()
    compare(run, "plain", "later", "--other", later)
    coldread("compare", str(run), "plain", "switched")
    refusal(run, "switched", "capped")
    assert state() == before
    assert len((run / "labels" / "ledger.jsonl").read_text().splitlines()) == 1


def test_the_labels_are_never_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the labels were opened")

    for place in ("eval.labels.read_labels", "eval.labels.open_labels", "eval.score.open_labels"):
        monkeypatch.setattr(place, refuse)
    assert compare(run, "plain", "switched")["views"]
