"""Whole runs through a server: messages frozen, read, sealed, scored and replayed; faults in the middle; no key anywhere."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_double import Asked, Double, Reply, ids, said, serve
from tiny import coldread, write_experiment, write_rows

from offline.canonical import read_lines, read_record
from readers.journal import Journal
from readers.records import Prediction, Settings

KEY = "sk-double-0123456789"
READS = Path("reads") / "tiny"
# More bytes than the output cap of 12 tokens.
ANSWER = "Answer: Päris, and nothing besides"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def served_reader(**changes: Any) -> list[dict[str, object]]:
    """A served reader, not probed, so that requests can be counted; `changes` replace its keys."""
    reader = {"name": "tiny", "engine": "openai", "model": {"served": "m"}, "batch_size": 2, "output_cap": 12, "probe": 0}
    return [{"use": {**reader, "options": {"retries": 0}, **changes}}]


def start(folder: Path, readers: list[dict[str, object]], *more: str, code: int = 0) -> tuple[Path, str]:
    """Run a tiny experiment; its folder and what was printed."""
    experiment = write_experiment(folder, folder, readers=readers)
    command = ["run", str(experiment), "--data", str(write_rows(folder)), "--out", str(folder / "run"), *more]
    ended = coldread(*command, code=code)
    return folder / "run", ended.stdout + ended.stderr


def kept(run: Path) -> bytes:
    """All bytes of a run."""
    return b"".join(path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file())


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that always gives the same answer, known by OPENAI_BASE_URL."""
    with serve(lambda asked, before: said(ANSWER, system_fingerprint="fp_1")) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def test_a_served_model_is_read_sealed_scored_and_replayed(double: Double, tmp_path: Path) -> None:
    run, _ = start(tmp_path, served_reader())
    settings = read_record(run / READS / "requests" / "settings.json", Settings)
    assert (settings.transport, settings.thinking, settings.stop_ids, settings.window) == ("messages", "unknown", (), -1)
    predictions = list(read_lines(run / READS / "predictions.jsonl", Prediction))
    assert {p.text for p in predictions} == {ANSWER}
    assert predictions[0].reported == {
        "model": "m",
        "system_fingerprint": "fp_1",
        "prompt_tokens": "7",
        "completion_tokens": "3",
    }
    seal = json.loads((run / READS / "seal.json").read_text())
    (environment,) = seal["environments"]
    assert (environment["input"], environment["weights"]) == ("messages", "not verified, the server reports m")
    assert sorted(path.name for path in (run / READS / "tokenizer").iterdir()) == ["manifest.json", "messages.json"]
    # Every distinct request was asked once, as the messages that were frozen.
    assert len(double.asked) == len(predictions) == seal["counts"]["generated"]
    frozen = (run / READS / "requests" / "inputs.u32").read_bytes()[::4]
    for asked in double.asked:
        assert json.dumps(asked.body["messages"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() in frozen
    assert "every link replays" in coldread("replay", str(run)).stderr


def test_what_a_served_models_pipelines_cost_is_named_bytes(
    double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "cache"))
    run, _ = start(tmp_path, [{**served_reader()[0], "views": [], "pipelines": ["direct"]}])
    found = json.loads(coldread("pipelines", str(run), "--json").stdout)["readers"]["tiny"]
    assert found["unit"] == "bytes"
    cost = found["stages"]["direct"]
    # One answer a call, its letter with two dots two bytes long.
    assert cost["output_tokens"] == cost["calls"] * len(ANSWER.encode()) == cost["calls"] * (len(ANSWER) + 1)
    shown = coldread("pipelines", str(run)).stdout
    assert "calls and bytes by stage" in shown
    assert "tokens" not in shown


def test_a_served_models_determinism_is_probed_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server counts what it is asked, so no two answers are the same.
    with serve(lambda asked, before: said(f"answer {before}")) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        run, _ = start(tmp_path, served_reader(probe=3))
    certificate = json.loads((run / READS / "seal.json").read_text())["certificate"]
    assert (certificate["sample"], set(certificate["matched"].values())) == (3, {0})
    assert certificate["first"]["margin"] is None
    coldread("replay", str(run))


def test_no_place_and_no_key_is_kept_of_a_server(double: Double, tmp_path: Path) -> None:
    run, printed = start(tmp_path, served_reader())
    for secret in (KEY, "127.0.0.1", str(double.port), "/secret/place"):
        assert secret.encode() not in kept(run)
        assert secret not in printed


@pytest.mark.parametrize(("status", "code"), [(400, 3), (401, 3), (404, 3), (429, 8), (500, 8)])
def test_a_key_that_the_server_repeats_is_found_in_no_file_and_no_message(
    status: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked, before: int) -> Reply:
        wrong = Reply(status, {"error": {"message": f"no: {asked.headers['authorization']}"}})
        return said(ANSWER, model=asked.headers["authorization"]) if before < 2 else wrong

    with serve(answer) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        run, printed = start(tmp_path, served_reader(), code=code)
    assert "Traceback" not in printed
    assert KEY not in printed
    assert KEY.encode() not in kept(run)
    # So that this can fail: the server's words did reach the run.
    assert b"Bearer [key]" in kept(run)


def test_an_address_with_credentials_leaves_no_run_behind(tmp_path: Path) -> None:
    reader = served_reader(options={"base_url": "http://user:hunter2@127.0.0.1:1/v1"})
    run, printed = start(tmp_path, reader, code=3)
    assert not run.exists()
    assert "hunter2" not in printed


def test_a_server_that_fails_in_the_middle_keeps_the_journal_and_another_one_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked, before: int) -> Reply:
        return said(str(len(json.dumps(asked.body["messages"]))))

    whole, half = tmp_path / "whole", tmp_path / "half"
    whole.mkdir()
    half.mkdir()
    with serve(answer) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        undisturbed, _ = start(whole, served_reader())
    with serve(lambda asked, before: answer(asked, before) if before < 5 else Reply(200, None)) as first:
        monkeypatch.setenv("OPENAI_BASE_URL", first.url)
        run, printed = start(half, served_reader(), code=8)
    assert "`coldread read` resumes" in printed
    entries = list(Journal(run / READS / "journal.jsonl").entries)
    assert len(entries) == 2
    with serve(answer) as second:
        monkeypatch.setenv("OPENAI_BASE_URL", second.url)
        coldread("read", str(run))
    assert len(second.asked) == len(double.asked) - 4, "a finished batch was asked for again, or one was lost"
    for name in ("predictions.jsonl", "seal.json"):
        assert (run / READS / name).read_bytes() == (undisturbed / READS / name).read_bytes()


def test_failed_generations_of_a_server_stay_in_the_denominator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(lambda asked, before: Reply(400, {"error": {"message": f"too long by {before}"}})) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        run, _ = start(tmp_path, served_reader())
    counts = json.loads((run / READS / "seal.json").read_text())["counts"]
    assert counts["failed"] == counts["scheduled"] == 20
    coldread("replay", str(run))


def test_a_template_that_refuses_every_request_seals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(lambda asked, before: Reply(400, {"error": {"message": "no system role", "code": 400}})) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        run, printed = start(tmp_path, served_reader(), code=3)
    assert "refused alike: no system role" in printed
    assert not (run / READS / "seal.json").exists()


def test_a_reader_of_a_server_that_names_a_device_leaves_no_run_behind(double: Double, tmp_path: Path) -> None:
    run, printed = start(tmp_path, served_reader(device="cuda"), code=3)
    assert "cannot choose device: cuda" in printed
    assert not run.exists()


def test_an_input_cap_of_a_served_model_counts_bytes_and_cuts_the_oldest_records(double: Double, tmp_path: Path) -> None:
    run, _ = start(tmp_path, served_reader(), "--until", "freeze")
    coldread("read", str(run))
    lengths = [
        int(json.loads(line)["length"]) for line in (run / READS / "requests" / "requests.jsonl").read_text().splitlines()
    ]
    cap = max(lengths) - 1
    other = tmp_path / "other"
    other.mkdir()
    capped, _ = start(other, served_reader(input_cap=cap))
    assert json.loads((capped / READS / "seal.json").read_text())["counts"]["cut"] > 0
    assert (
        max(len(json.dumps(a.body["messages"], separators=(",", ":"), ensure_ascii=False).encode()) for a in double.asked[-9:])
        <= cap
    )
    coldread("replay", str(capped))


def test_a_dry_run_says_that_it_guesses_a_served_models_tokens(double: Double, tmp_path: Path) -> None:
    experiment, rows = write_experiment(tmp_path, tmp_path, readers=served_reader()), write_rows(tmp_path)
    printed = coldread("run", str(experiment), "--data", str(rows), "--dry-run", "--json").stdout
    estimate = json.loads(printed)["readers"]["tiny"]
    assert (estimate["tokens_counted"], "four bytes" in estimate["note"]) == (False, True)
    assert double.asked == []


Alter = Callable[[Path], None]


def _other_codec(run: Path) -> None:
    path = run / READS / "tokenizer" / "messages.json"
    path.write_text(path.read_text().replace("UTF-8", "UTF-9"))


def _no_codec(run: Path) -> None:
    (run / READS / "tokenizer" / "messages.json").unlink()


@pytest.mark.parametrize("alter", [_other_codec, _no_codec])
def test_an_altered_codec_does_not_replay(alter: Alter, double: Double, tmp_path: Path) -> None:
    run, _ = start(tmp_path, served_reader())
    alter(run)
    assert "messages.json" in coldread("replay", str(run), code=20).stderr


def test_a_codec_beside_the_run_replays_it(double: Double, tmp_path: Path) -> None:
    run, _ = start(tmp_path, served_reader())
    beside = tmp_path / "beside"
    beside.mkdir()
    shutil.move(run / READS / "tokenizer" / "messages.json", beside)
    coldread("replay", str(run), "--tokenizer", str(beside))


def test_a_recorded_run_of_a_server_plays_back(double: Double, tmp_path: Path) -> None:
    run, _ = start(tmp_path, served_reader())
    again = tmp_path / "again"
    again.mkdir()
    played, _ = start(again, served_reader(engine="recorded", options={"run": str(run)}))
    texts = [{p.text for p in read_lines(at / READS / "predictions.jsonl", Prediction)} for at in (run, played)]
    assert texts == [{ANSWER}, {ANSWER}]
    coldread("replay", str(played))


def test_a_reader_with_a_tokenizer_reads_by_token_ids(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The stop id of the tiny model is 1; 80 and 81 are bytes.
    with serve(lambda asked, before: ids([80, 81, 1])) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        reader = served_reader(model={"folder": str(tiny_model)}, options={"model": "m", "retries": 0})
        run, _ = start(tmp_path, reader)
    settings = json.loads((run / READS / "requests" / "settings.json").read_text())
    assert "transport" not in settings
    assert double.asked[0].body["stop_token_ids"] == settings["stop_ids"] == [1]
    (environment,) = json.loads((run / READS / "seal.json").read_text())["environments"]
    assert environment["input"] == "token ids"
    coldread("replay", str(run))


def test_more_token_ids_than_the_cap_are_refused(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(lambda asked, before: ids([80] * 13)) as double:
        monkeypatch.setenv("OPENAI_BASE_URL", double.url)
        _, printed = start(
            tmp_path, served_reader(model={"folder": str(tiny_model)}, options={"model": "m", "retries": 0}), code=8
        )
    assert "output cap of 12" in printed
