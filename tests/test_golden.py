"""Sealed runs of every released format still verify, score alike and replay."""

import json
import shutil
from pathlib import Path

import pytest
from tiny import coldread, write_experiment, write_rows

GOLDEN = sorted(path for path in (Path(__file__).parent / "golden").iterdir() if path.name.startswith("format-"))


def test_there_is_a_golden_run_for_each_format() -> None:
    assert [path.name for path in GOLDEN] == ["format-1", "format-1-calls", "format-1-certificate", "format-1-vectors"]


@pytest.mark.parametrize("run", GOLDEN, ids=lambda path: path.name)
def test_a_golden_run_replays(run: Path) -> None:
    coldread("replay", str(run))


def test_a_run_published_without_any_tokenizer_replays_with_those_supplied(tmp_path: Path) -> None:
    run, given = Path(shutil.copytree(GOLDEN[1], tmp_path / "run")), tmp_path / "given"
    for kept, name in ((run / "extraction" / "tokenizer", "rules"), (run / "reads" / "tiny" / "tokenizer", "tiny")):
        shutil.copytree(kept, given / name)
        for path in kept.iterdir():
            if path.name != "manifest.json":
                path.unlink()
    (run / "extraction" / "tokenizer").rmdir()
    links = coldread("replay", str(run), "--tokenizer", str(given)).stderr
    assert "calls" in next(line for line in links.splitlines() if "extraction" in line)
    assert "extraction/tokenizer/chat_template.jinja is missing" in coldread("replay", str(run), code=20).stderr
    with (given / "rules" / "config.json").open("a") as stream:
        stream.write(" ")
    assert "given/rules/config.json: differs" in coldread("replay", str(run), "--tokenizer", str(given), code=20).stderr


@pytest.mark.parametrize("run", GOLDEN, ids=lambda path: path.name)
def test_a_golden_run_scores_as_it_did(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(copy / "scores")
    coldread("score", str(copy))
    for path in (path for path in (run / "scores").rglob("*") if path.is_file()):
        assert (copy / path.relative_to(run)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("run", [GOLDEN[0], GOLDEN[2]], ids=lambda path: path.name)
def test_the_recorded_engine_answers_from_a_golden_run(run: Path, tmp_path: Path) -> None:
    # The golden run's own histories, read again without any model: the same predictions.
    reader = {
        "name": "played",
        "engine": "recorded",
        "model": {"folder": str(run / "reads" / "tiny" / "tokenizer")},
        "output_cap": 12,
        "options": {"run": str(run)},
    }
    rows = write_rows(tmp_path)
    experiment = write_experiment(tmp_path, tmp_path, readers=[{"use": reader}])
    out = tmp_path / "out"
    coldread("run", str(experiment), "--data", str(rows), "--out", str(out))

    def texts(folder: Path) -> list[str]:
        return [json.loads(line)["text"] for line in (folder / "predictions.jsonl").read_text().splitlines()]

    assert texts(out / "reads" / "played") == texts(run / "reads" / "tiny")
