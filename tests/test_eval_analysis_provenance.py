"""What made the triples is said of every scored run, in every form: counts by the run's own files, words by hand."""

import csv
import io
import json
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tiny import coldread

from eval.analysis.provenance import extracted_by, extraction_words
from eval.records import AskedExtractor, ExtractedBy
from offline.run.opened import OpenRun
from readers.records import StageCounts

GOLDEN = Path(__file__).parent / "golden"
BY_GRAMMAR, BY_MODEL = GOLDEN / "format-1", GOLDEN / "format-1-calls"
# Of eight statements seven are of the grammar's two forms, and "It is late." is of none.
WORDS = {
    BY_GRAMMAR: "grammar homes; statements: 7 facts, 1 unresolved, 0 no_fact",
    BY_MODEL: "hybrid by rules (folder model, fingerprint 858fdcc25762…); engine theirs; statements: 7 facts, 0 unresolved, "
    "1 no_fact; 5 calls (0 failed), 8225 tokens in, 509 out",
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_record_holds_what_the_runs_own_files_say() -> None:
    found = extracted_by(OpenRun(BY_MODEL))
    folder = BY_MODEL / "extraction"
    status = {statement["text"]: statement["status"] for statement in lines(folder / "statements.jsonl")}
    of_histories = [
        status[s["text"]] for history in lines(BY_MODEL / "data" / "histories.jsonl") for s in history["statements"]
    ]
    assert found.statements == {name: of_histories.count(name) for name in ("facts", "unresolved", "no_fact")}
    asked = found.extractor
    assert asked is not None
    calls, answers = lines(folder / "calls" / "calls.jsonl"), lines(folder / "calls" / "answers.jsonl")
    for stage in {call["stage"] for call in calls}:
        pairs = [(call, said) for call, said in zip(calls, answers, strict=True) if call["stage"] == stage]
        assert asked.stages[stage] == StageCounts(
            calls=len(pairs),
            failed=sum(said["finish_reason"] == "error" for _, said in pairs),
            input_tokens=sum(call["length"] for call, _ in pairs),
            output_tokens=sum(len(said["output_ids"]) for _, said in pairs),
        )
    assert asked.fingerprint == json.loads((folder / "calls" / "settings.json").read_text())["model"]["fingerprint"]
    assert list(asked.environments) == json.loads((folder / "environments.json").read_text())
    assert (found.frontend, asked.name, asked.unit, asked.catalogue) == ("hybrid", "rules", "tokens", None)
    assert extracted_by(OpenRun(BY_GRAMMAR)).extractor is None


@pytest.mark.parametrize("golden", WORDS, ids=lambda path: path.name)
def test_every_form_says_what_made_the_triples(golden: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(golden, tmp_path / "run"))
    words = WORDS[golden]
    record = json.loads(msgspec.json.encode(extracted_by(OpenRun(run))))
    assert f"extraction: {words}." in coldread("table", str(run)).stdout.replace("\\", "")
    assert f"extraction: {words}." in coldread("table", str(run), "--format", "latex").stdout.replace("\\", "")
    rows = csv.DictReader(io.StringIO(coldread("table", str(run), "--format", "csv").stdout, newline=""))
    assert {row["extraction"] for row in rows} == {words}
    assert json.loads(coldread("table", str(run), "--json").stdout)["extraction"] == record
    assert json.loads(coldread("score", str(run), "--json").stdout)["extraction"] == record
    assert f"extraction: {words}" in " ".join(coldread("score", str(run)).stdout.split())
    coldread("report", str(run))
    page = unescape((run / "report.html").read_text())
    assert f"<dt>extraction</dt><dd>{words}</dd>" in page
    assert f">extraction: {words}.</p>" in page
    shown = "<dt>environment of the extraction</dt><dd>coldread: 0.1.0, engine: theirs</dd>"
    assert (shown in page) is (golden == BY_MODEL)
    assert json.loads((run / "extraction" / "manifest.json").read_text())["digest"] in page


def test_a_served_model_two_environments_and_an_edited_catalogue_in_words() -> None:
    stages = {"extract": StageCounts(10, 1, 900, 90), "repair": StageCounts(3, 0, 100, 10)}
    vllm = {"engine": "vllm", "vllm": "0.22.1", "dtype": "bfloat16", "device": "NVIDIA H200", "python": "3.12.1"}
    asked = AskedExtractor(
        name="gpt",
        model="served gpt",
        fingerprint="f" * 64,
        engine="vllm",
        stages=stages,
        unit="bytes",
        catalogue="c" * 64,
        # What differs in nothing that the words say is said once; the record has it.
        environments=(vllm, {**vllm, "python": "3.12.2"}, {**vllm, "device": "NVIDIA H100"}),
    )
    found = ExtractedBy(frontend="llm", grammar=None, statements={"facts": 5, "unresolved": 2, "no_fact": 1}, extractor=asked)
    assert extraction_words(found) == (
        "llm by gpt (served gpt, fingerprint ffffffffffff…); engine vllm 0.22.1 bfloat16 NVIDIA H200; engine vllm 0.22.1 "
        "bfloat16 NVIDIA H100; statements: 5 facts, 2 unresolved, 1 no_fact; 13 calls (1 failed), 1000 bytes in, 100 out; "
        "names by a catalogue edited by hand, cccccccccccc…"
    )
