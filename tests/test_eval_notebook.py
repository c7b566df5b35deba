"""Runs in Python: records, tables, and the analysis of docs/notebook.md."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import install_engine
from tiny import SPEAKS, coldread, their_reader, write_experiment, write_rows

from coldread import open_run, substring_exact_match
from eval.notebook import Run
from offline.errors import AlteredError, ColdreadError, CommandError, ConfigurationError, StateError

PAGE = Path(__file__).parents[1] / "docs" / "notebook.md"
# Answers with every home that it is shown.
SAYS = "def say(self, text):\n    return ' '.join(self.re.findall(r'lives in (\\w+)', text)) or 'no home'\n"
GENERATE = "from types import SimpleNamespace\nreturn self.complete(batch, SimpleNamespace(output_cap=60))"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Path]:
    """A folder with a scored run at runs/demo."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        install_engine(patch, folder, GENERATE, SPEAKS + SAYS)
        reader = their_reader(tiny_model, tiny_model / "tokenizer.json", output_cap=60)
        experiment = write_experiment(folder, tiny_model, readers=reader)
        coldread("run", str(experiment), "--data", str(write_rows(folder)), "--out", str(folder / "runs" / "demo"))
    return folder


@pytest.fixture
def run(home: Path) -> Run:
    return open_run(home / "runs" / "demo")


def printed(home: Path, command: str, *more: str) -> Any:
    return json.loads(coldread(command, str(home / "runs" / "demo"), *more).stdout)


def test_the_analysis_of_the_docs_runs(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(home)
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(code, names)
    said = capsys.readouterr().out
    # Ada and Carl have moved: with the values before, where they live comes out wrong.
    assert "2 of 5 questions are right with cmc and wrong with stale_closure" in said
    assert sorted(names["wins"]["question"]) == ["ada/0", "carl/0"]
    assert "ada/0, cmc" in said
    assert "Ada lives in Paris." in said
    assert "ada/0, stale_closure" in said
    assert list(names["contrasts"]["only_a"]) == [2, 0, 2]


def test_records_are_what_the_commands_print(home: Path, run: Run) -> None:
    rows, table = printed(home, "table", "--format", "json")["rows"], run.table().frame()
    assert list(table["view"]) == [row["view"] for row in rows]
    assert list(table["accuracy.sh.low"]) == [float(row["accuracy"]["sh"]["low"]) for row in rows]
    contrasts = printed(home, "contrast", "--a", "cmc", "--b", "stale_closure", "--json")["contrasts"]
    assert [row.mcnemar_p for row in run.contrasts("cmc", "stale_closure")] == [row["mcnemar_p"] for row in contrasts]
    story, shown = printed(home, "show", "ada/0", "--json"), run.question("ada/0")
    assert shown.golds == tuple(story["golds"])
    (packet,) = [packet for packet in run.packets(["cmc"]) if packet.question == "ada/0"]
    assert packet.text == story["views"]["cmc"]["evidence"] == shown.views["cmc"].evidence
    assert packet.records == story["views"]["cmc"]["records"]
    assert {packet.view for packet in run.packets()} == {*run.views}


def test_answers_scores_and_data_are_joined_by_their_names(run: Run) -> None:
    answers, scores = run.predictions().frame(), run.scores().frame()
    both = answers.merge(scores, on=["reader", "view", "question"])
    assert len(both) == len(answers) == len(scores) == len(run.views) * len(run.data.questions)
    assert (both["text"] == both["prediction"]).all()
    again = [substring_exact_match(row.text, row.golds) for row in both.itertuples()]
    assert again == list(both["metrics.subem"])
    assert "format" not in scores
    assert len(run.data.histories.frame()) == 2
    assert list(run.predictions("tiny")) == list(run.predictions())
    assert repr(run).endswith("/runs/demo: cmc, stale_closure, raw_history, closed_book; readers: tiny>")


def test_opening_a_run_opens_no_label_and_writes_nothing(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home / "runs" / "demo", tmp_path / "copy"))
    (copy / "reads" / "tiny" / "tokenizer" / "tokenizer.json").unlink()  # published without it
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    run = open_run(str(copy))
    run.scores(), run.table(), run.contrasts("cmc", "stale_closure"), run.predictions(), run.packets(), run.question("ada/0")
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_an_altered_folder_is_found_when_it_is_asked_for(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home / "runs" / "demo", tmp_path / "copy"))
    predictions = copy / "reads" / "tiny" / "predictions.jsonl"
    predictions.write_bytes(predictions.read_bytes().replace(b"Paris", b"Arles"))
    run = open_run(copy)
    assert run.data.questions
    for ask in (run.predictions, run.scores, run.table):
        with pytest.raises(AlteredError, match=r"predictions\.jsonl"):
            ask()


def test_what_a_run_does_not_have_is_an_error_that_says_what_there_is(home: Path, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ColdreadError, match="nowhere"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(CommandError, match=r"no view 'cnc'; there are cmc, stale_closure"):
        run.packets(["cnc"])
    with pytest.raises(CommandError, match="no reader 'nobody'; there are tiny"):
        run.predictions("nobody")
    copy = Path(shutil.copytree(home / "runs" / "demo", tmp_path / "copy"))
    shutil.rmtree(copy / "scores")
    unscored = open_run(copy)
    assert len(unscored.predictions()) == len(run.predictions())
    with pytest.raises(StateError, match="coldread score"):
        unscored.scores()


def test_without_pandas_frames_alone_say_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run.scores()[0].reader == "tiny"
    with pytest.raises(ConfigurationError, match=r"frame\(\) needs pandas.*pip install 'coldread\[notebook\]'"):
        run.scores().frame()


def test_importing_coldread_loads_no_heavy_library(home: Path) -> None:
    script = (
        "import sys, coldread\ncoldread.substring_exact_match('Seine', ['Seine'])\nloaded = set(sys.modules)\n"
        "coldread.open_run(sys.argv[1]).scores()\nopened = set(sys.modules)\n"
        "assert not loaded & {'numpy', 'scipy', 'pandas', 'torch', 'rich.table', 'rich.progress'}, loaded\n"
        "assert not opened & {'pandas', 'torch', 'transformers', 'rich.table'}, opened\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script, str(home / "runs" / "demo")], check=True)
