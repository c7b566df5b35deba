"""Scores of predictions that others made: hand-made files, their refusals, and 4,800 published verdicts through this path."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import coldread, write_experiment, write_rows
from worlds import real_file

from eval.analysis.prediction_file import Fields, read_answers
from eval.labels import read_ledger
from offline.errors import DataError
from offline.run.opened import OpenRun

# The tiny rows ask ada/0 Paris, ada/1 Seine (mh), ada/2 Rome, carl/0 Bergen, carl/1 No one at all.
GIVEN = {"ada/0": "Answer: Paris", "ada/1": "the Rhine", "ada/2": "It is Rome.", "carl/0": "Oslo"}


@pytest.fixture
def loaded(tiny_model: Path, tmp_path: Path) -> Path:
    """A run that is loaded and no more."""
    run = tmp_path / "run"
    experiment = str(write_experiment(tmp_path, tiny_model))
    coldread("load", str(run), "--experiment", experiment, "--data", str(write_rows(tmp_path)))
    return run


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def scored(run: Path, path: Path, *options: str) -> dict[str, Any]:
    found = coldread("score", str(run), "--predictions", str(path), "--json", *options).stdout
    return json.loads(found)  # type: ignore[no-any-return]


def as_csv(answers: dict[str, str]) -> str:
    return "question,text\r\n" + "".join(f'"{question}","{text}"\r\n' for question, text in answers.items())


FORMS: dict[str, Callable[[dict[str, str]], str]] = {
    "list.json": lambda answers: json.dumps([{"question": q, "text": t, "seed": 3} for q, t in answers.items()], indent=1),
    "object.json": json.dumps,
    "lines.jsonl": lambda answers: "\n".join(json.dumps({"question": q, "text": t}) for q, t in answers.items()) + "\n\n",
    "marked.jsonl": lambda answers: (
        "\ufeff" + "".join(json.dumps({"text": t, "question": q}) + "\r\n" for q, t in answers.items())
    ),
    "table.csv": as_csv,
    "marked.csv": lambda answers: "\ufeff" + as_csv(answers),
    "table.CSV.gz": as_csv,
    "lines.jsonl.gz": lambda answers: "".join(json.dumps({"question": q, "text": t}) + "\n" for q, t in answers.items()),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_counts_worked_out_by_hand(name: str, loaded: Path, tmp_path: Path) -> None:
    result = scored(loaded, put(tmp_path, name, FORMS[name](GIVEN)))
    # sh: Paris and Rome of four, Oslo is Carl's older home, carl/1 is missing. "It is Rome." holds Rome and is not it.
    found = result["systems"][name]
    pooled = {cell["hop_class"]: cell for cell in found["cells"] if cell["length"] is None}
    assert pooled["sh"]["correct"] == {"subem": 2, "strict_em": 1, "subem_words": 2}
    assert (pooled["sh"]["questions"], pooled["sh"]["missing"]) == (4, 1)
    # Wilson 95 % of 2/4 is symmetric around 50.
    assert (pooled["sh"]["low"], pooled["sh"]["high"]) == (15.0, 85.0)
    assert pooled["mh"]["correct"] == {"subem": 0, "strict_em": 0, "subem_words": 0}
    assert (found["predictions"], found["missing"]) == (4, 1)


def test_scores_of_others_are_marked_unsealed_wherever_they_appear(loaded: Path, tmp_path: Path) -> None:
    path, out = put(tmp_path, "theirs.json", json.dumps(GIVEN)), tmp_path / "out.json"
    table = coldread("score", str(loaded), "--predictions", str(path), "--name", "their system", "--out", str(out)).stdout
    assert "their system: not sealed" in table
    sha256 = read_answers(path, Fields()).sha256
    assert sha256 in table
    written, printed = json.loads(out.read_text()), scored(loaded, path)
    assert written["sealed"] is printed["sealed"] is False
    assert written["sha256"] == printed["sha256"] == sha256


def test_missing_questions_stay_in_the_denominator_and_the_table_says_so(loaded: Path, tmp_path: Path) -> None:
    path = put(tmp_path, "one.json", json.dumps({"ada/0": "Paris"}))
    assert (
        "4 questions have no prediction and count as wrong" in coldread("score", str(loaded), "--predictions", str(path)).stdout
    )
    cells = scored(loaded, path)["systems"]["one.json"]["cells"]
    assert {cell["hop_class"]: (cell["correct"]["subem"], cell["questions"]) for cell in cells if cell["length"] is None} == {
        "sh": (1, 4),
        "mh": (0, 1),
    }


def test_several_systems_in_one_file_are_scored_apart_each_over_every_question(loaded: Path, tmp_path: Path) -> None:
    rows = [
        {"run": "a", "qid": "ada/0", "said": "Paris"},
        {"run": "b", "qid": "ada/0", "said": "Rome"},
        {"run": "b", "qid": "ada/2", "said": "Rome"},
    ]
    path, out = put(tmp_path, "two.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), tmp_path / "out.json"
    options = ("--by", "run", "--id-field", "qid", "--text-field", "said", "--out", str(out))
    systems = scored(loaded, path, *options)["systems"]
    assert {name: (found["predictions"], found["missing"]) for name, found in systems.items()} == {"a": (1, 4), "b": (2, 3)}
    verdicts = {(v["system"], v["question"]): v["metrics"]["subem"] for v in json.loads(out.read_text())["items"]}
    assert len(verdicts) == 10
    assert [key for key, right in verdicts.items() if right] == [("a", "ada/0"), ("b", "ada/2")]


BROKEN = {
    "an unknown question": ("x.json", '{"ada/9": "Paris"}', "no question 'ada/9'; it has 5, such as 'ada/"),
    "a question answered twice": ("x.jsonl", '{"question":"ada/0","text":"a"}\n{"question":"ada/0","text":"b"}', "line 2"),
    "a key given twice": ("x.json", '{"ada/0": "a", "ada/0": "b"}', "'ada/0' is given twice"),
    "a number for an id": (
        "x.json",
        '[{"question": 7, "text": "a"}]',
        "object 1: the field 'question' must be a string, not 7",
    ),
    "no text": ("x.json", '{"ada/0": null}', "question 'ada/0': the field 'text' must be a string, not null"),
    "another field": ("x.jsonl", '\n{"question":"ada/0","answer":"a"}', "line 2: no field 'text'; it has 'question', 'answer'"),
    "no object": ("x.jsonl", '"ada/0"', "line 1: not an object"),
    "a bare number": ("x.json", "7", "neither a list"),
    "half a line": ("x.jsonl", '{"question":"ada/0",', "line 1: not JSON"),
    "half a file": ("x.json", '[\n{"question":"ada/0",\n', "line 3: not JSON"),
    "NaN": ("x.json", '{"ada/0": NaN}', "NaN is no JSON"),
    "deep nesting": ("x.json", "[" * 100_000, "not JSON"),
    "a lone surrogate": ("x.json", '{"ada/0": "\\ud800"}', "lone surrogate"),
    "not UTF-8": ("x.jsonl", b'{}\n{"question":"\xff"}', "line 2: not UTF-8"),
    "nothing": ("x.jsonl", "\n", "no prediction"),
    "names alone": ("x.csv", "question,text\n", "no prediction"),
    "a short row": ("x.csv", 'question,text\nada/0,"a\nb"\nada/1\n', "line 4: 1 fields under 2 names"),
    "a name given twice": ("x.csv", "question,text,text\n", "line 1: a field name"),
    "an open quote": ("x.csv", 'question,text\nada/0,"a', "line 2: not CSV"),
    "another type": ("x.txt", "ada/0 Paris", "unknown file type"),
    "no gzip": ("x.json", b"\x1f\x8b\x08", "not UTF-8"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_is_not_plain_is_refused_in_one_line_and_nothing_is_written(
    what: str, loaded: Path, tmp_path: Path
) -> None:
    name, text, message = BROKEN[what]
    out = tmp_path / "out.json"
    options = ("--predictions", str(put(tmp_path, name, text)), "--out", str(out))
    error = coldread("score", str(loaded), *options, code=4).stderr
    assert message in error
    assert len(error.splitlines()) == 1
    assert not out.exists()
    assert not (loaded / "labels" / "ledger.jsonl").exists()


@pytest.mark.parametrize("data", [b"not gzip", gzip.compress(b'{"ada/0": "Paris"}' * 99, mtime=0)[:-9]])
def test_a_broken_gzip_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(data)
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_answers(path, Fields())


def test_a_missing_file_is_a_storage_error(loaded: Path, tmp_path: Path) -> None:
    coldread("score", str(loaded), "--predictions", str(tmp_path / "none.json"), code=7)


def test_options_of_predictions_without_predictions_are_refused(loaded: Path) -> None:
    assert "--predictions" in coldread("score", str(loaded), "--by", "run", code=2).stderr


def test_a_csv_answer_may_run_over_lines_and_hold_quotes(tmp_path: Path) -> None:
    path = put(tmp_path, "x.csv", 'question,text\n"q","a ""b"", c\nd"\nr,\n')
    assert [(a.where.split(", ")[1], a.text) for a in read_answers(path, Fields()).answers] == [
        ("line 2", 'a "b", c\nd'),
        ("line 4", ""),
    ]


def test_a_json_line_ends_at_a_newline_alone(tmp_path: Path) -> None:
    path = put(tmp_path, "x.jsonl", '{"question":"q","text":"a\u2028b"}\n')
    assert [answer.text for answer in read_answers(path, Fields()).answers] == ["a\u2028b"]


def test_strange_names_do_not_steer_the_terminal_and_a_long_one_fits_it(loaded: Path, tmp_path: Path) -> None:
    system = "\x1b[31m[bold]\u202e" + "x" * 150
    path = put(tmp_path, "x.json", json.dumps([{"s": system, "question": "ada/0", "text": "Paris"}]))
    table = coldread("score", str(loaded), "--predictions", str(path), "--by", "s").stdout
    assert "\x1b" not in table
    assert "\u202e" not in table
    assert "[bold]" in table
    assert max(map(len, table.splitlines()[:-2])) <= 100


def test_a_sealed_run_and_its_scores_stay_and_replay_after_others_are_scored(copied_run: Path, tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file() and p.name != "ledger.jsonl"}
    scored(copied_run, put(tmp_path, "theirs.json", json.dumps(GIVEN)))
    assert {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file() and p.name != "ledger.jsonl"} == before
    assert [entry.command for entry in read_ledger(OpenRun(copied_run))] == ["score", "score-predictions"]
    coldread("replay", str(copied_run))
    coldread("score", str(copied_run))


def test_a_reader_sealed_after_others_were_scored_is_not_sealed_blind(tiny_model: Path, loaded: Path, tmp_path: Path) -> None:
    scored(loaded, put(tmp_path, "theirs.json", json.dumps(GIVEN)))
    command = ["run", str(tmp_path / "experiment.yaml"), "--data", str(tmp_path / "rows.jsonl"), "--out", str(loaded), "--json"]
    assert json.loads(coldread(*command).stdout)["seals"]["tiny"]["sealed_blind"] is False


def test_out_never_lies_in_the_run_and_never_replaces_what_is_read(loaded: Path, tmp_path: Path) -> None:
    path = put(tmp_path, "theirs.json", json.dumps(GIVEN))
    command = ["score", str(loaded), "--predictions", str(path), "--out"]
    coldread(*command, str(loaded / "scores.json"), code=3)
    coldread(*command, str(path), code=3)
    assert json.loads(path.read_text()) == GIVEN
    assert not (loaded / "labels" / "ledger.jsonl").exists()


@pytest.mark.real_data
def test_4800_published_verdicts_agree_through_the_command_line(real_data: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out.json"
    # Fifteen systems answered the first forty questions of each of the eight rows.
    coldread("load", str(run), "--experiment", "factconsolidation", "--data", str(real_data), "--limit", "40")
    path = real_file("external_predictions.jsonl.gz")
    options = ("--by", "run", "--id-field", "qa_pair_id", "--text-field", "prediction", "--out", str(out))
    systems = scored(run, path, *options)["systems"]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    published = {(row["run"], row["qa_pair_id"]): row["substring_exact_match"] for row in rows}
    ours = {(v["system"], v["question"]): v["metrics"]["subem"] for v in json.loads(out.read_text())["items"]}
    assert ours == published
    assert (len(ours), len(systems), sum(found["missing"] for found in systems.values())) == (4800, 15, 0)
