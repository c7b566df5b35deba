"""Reading: interrupted and resumed, guarded, sealed alike; what an engine does wrong is one clear error."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import ANSWER, ROWS, alive, coldread, frozen_run, start_coldread, their_reader, write_experiment, write_rows
from watcher import Watcher

from eval.run import read_all
from offline.canonical import digest_of, encode, read_lines
from offline.config.models import Pin, Reader
from offline.errors import AlteredError, InputLinkError
from offline.run.opened import OpenRun
from readers.journal import Journal
from readers.models.pins import fingerprint
from readers.records import JournalEntry, Output, Prediction, Scheduled
from readers.requests import check_settings, make_settings
from readers.tokens.chat import ChatTokenizer

READS = Path("reads") / "tiny"


def one_by_one(model: Path) -> list[dict[str, object]]:
    """A reader that generates every request in a batch of its own, so that a kill finds many places to hit."""
    return [{"use": {"name": "tiny", "engine": "digest", "model": {"folder": str(model)}, "batch_size": 1}}]


def read_killed(run: Path, after: int) -> None:
    """Read in a process that is killed as soon as it has appended so many entries to its journal."""
    append, left = Journal.append, after

    def appends(journal: Journal, made: JournalEntry) -> None:
        nonlocal left
        if left:
            append(journal, made)
            left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if not pid:
        Journal.append = appends  # type: ignore[method-assign]
        coldread("read", str(run))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_kills_after_each_of_the_first_entries_lose_nothing_and_seal_alike(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model, readers=one_by_one(tiny_model))
    undisturbed = Path(shutil.copytree(run, tmp_path / "undisturbed"))
    coldread("read", str(undisturbed))
    journal, kept = run / READS / "journal.jsonl", []
    for after in range(6):
        read_killed(run, after)
        lines = journal.read_text().splitlines() if journal.exists() else []
        assert lines[: len(kept)] == kept, "a finished batch was lost or changed"
        assert len({json.loads(line)["batch"] for line in lines}) == len(lines) == len(kept) + after, "a batch was read twice"
        kept = lines
    coldread("read", str(run))
    for name in ("seal.json", "predictions.jsonl"):
        assert (run / READS / name).read_bytes() == (undisturbed / READS / name).read_bytes()
    assert not journal.exists()
    coldread("score", str(run))
    coldread("replay", str(run))


# An engine that stops in its third batch: writes down its process and does what follows, the first time.
THIRD = (
    "note = Path(self.options['target'])\nself.count = getattr(self, 'count', 0) + 1\n"
    f"if self.count == 3 and not note.exists():\n    note.write_text(str(os.getpid()))\n    {{}}\n{ANSWER}"
)


def reader_with_note(model: Path, folder: Path) -> list[dict[str, object]]:
    return their_reader(model, folder / "note", batch_size=1, probe=0)


def test_a_command_killed_from_outside_leaves_no_process_and_resumes(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(THIRD.format("time.sleep(600)"))
    run = frozen_run(tmp_path, tiny_model, readers=reader_with_note(tiny_model, tmp_path))
    process = start_coldread("read", str(run))
    while not (tmp_path / "note").exists() or not (tmp_path / "note").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not alive(int((tmp_path / "note").read_text()))
    assert (run / READS / "journal.jsonl").read_text().count("\n") == 2
    coldread("read", str(run))
    assert (run / READS / "seal.json").exists()


def test_an_engine_process_killed_by_itself_ends_the_read_with_one_error_and_resumes(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(THIRD.format("os.kill(os.getpid(), 9)"))
    run = frozen_run(tmp_path, tiny_model, readers=reader_with_note(tiny_model, tmp_path))
    assert "killed by signal 9" in coldread("read", str(run), code=8).stderr
    assert (run / READS / "journal.jsonl").exists()
    coldread("read", str(run))
    assert (run / READS / "seal.json").exists()


def test_token_totals_after_a_resume_are_those_of_the_predictions(tiny_model: Path, tmp_path: Path) -> None:
    run = frozen_run(tmp_path, tiny_model)
    coldread("read", str(run))
    seal = json.loads((run / READS / "seal.json").read_text())
    predictions = [json.loads(line) for line in (run / READS / "predictions.jsonl").read_text().splitlines()]
    assert seal["counts"]["output_tokens"] == sum(len(p["output_ids"]) for p in predictions)
    assert seal["counts"]["input_tokens"] * 4 == (run / READS / "requests" / "inputs.u32").stat().st_size
    assert seal["counts"]["scheduled"] == 4 * 5
    assert seal["counts"]["generated"] == len(predictions)


def test_reading_tells_that_its_engine_is_started_and_probed_before_any_request(tiny_model: Path, tmp_path: Path) -> None:
    run, watcher = OpenRun(frozen_run(tmp_path, tiny_model)), Watcher()
    with run.lock():
        read_all(run, observer=watcher)
    told = watcher.told
    counts = [done for done, _, doing in told if not doing]
    total = told[0][1]
    before = [(0, total, "starting its engine"), (0, total, "probing its engine")]
    assert [now for now in told if now[2]] == told[:2] == before
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, total)


def test_the_command_line_says_so_in_words(tiny_model: Path, tmp_path: Path) -> None:
    said = coldread("read", str(frozen_run(tmp_path, tiny_model))).stderr
    starting, probing, reading = (
        said.index(f"tiny: {words}") for words in ("starting its engine", "probing its engine", "0 of ")
    )
    assert starting < probing < reading


def entry(batch: str) -> JournalEntry:
    return JournalEntry(batch=batch, outputs=(Output(ids=(1, 2), finish_reason="stop"),), environment={"e": "1"}, seconds="0.1")


def test_a_resume_killed_before_its_first_write_keeps_what_earlier_runs_wrote(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).append(entry("a"))
    before = path.read_bytes()
    Journal(path)  # opened again, then killed
    assert path.read_bytes() == before
    assert list(Journal(path).entries) == ["a"]


@pytest.mark.parametrize("kept", [1, 20, 150])
def test_a_truncated_last_line_is_dropped_and_the_next_entry_takes_its_place(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.append(entry("a"))
    first = path.read_bytes()
    journal.append(entry("b"))
    second = path.read_bytes()[len(first) :]
    path.write_bytes(first + second[:kept])
    resumed = Journal(path)
    assert (list(resumed.entries), resumed.dropped_bytes) == (["a"], kept)
    resumed.append(entry("b"))
    assert path.read_bytes() == first + second


def test_a_changed_journal_line_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for name in ("a", "b"):
        Journal(path).append(entry(name))
    path.write_bytes(path.read_bytes().replace(b'"ids":[1,2]', b'"ids":[1,3]', 1))
    with pytest.raises(AlteredError, match="line 1"):
        Journal(path)


def test_a_journal_of_other_requests_does_not_answer_for_these(tiny_model: Path, tmp_path: Path) -> None:
    # The same folder, first with a limit of one question a row, killed before the seal; then without a limit.
    experiment, rows = write_experiment(tmp_path, tiny_model), write_rows(tmp_path)
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(rows), "--out", str(run), "--limit", "1", "--until", "freeze")
    shorter = Path(shutil.copytree(run, tmp_path / "shorter"))
    coldread("read", str(shorter))
    reads = run / READS
    reads.mkdir(parents=True)
    foreign = JournalEntry(batch="f" * 64, outputs=(Output(ids=(9,), finish_reason="stop"),), environment={}, seconds="1")
    Journal(reads / "journal.jsonl").append(foreign)
    coldread("run", str(experiment), "--data", str(rows), "--out", str(run))
    scheduled = list(read_lines(reads / "requests" / "schedule.jsonl", Scheduled))
    assert len(scheduled) == 4 * 5
    assert {s.question for s in scheduled} == {f"{row['history']}/{q['id']}" for row in ROWS for q in row["questions"]}  # type: ignore[attr-defined]


def test_a_limited_run_and_the_full_run_after_it_give_all_questions(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, rows = write_experiment(tmp_path, tiny_model), write_rows(tmp_path)
    monkeypatch.chdir(tmp_path)
    coldread("run", str(experiment), "--data", str(rows), "--limit", "1")
    coldread("run", str(experiment), "--data", str(rows))
    limited, full = (tmp_path / "runs" / name / "data" / "questions.jsonl" for name in ("homes-limit1", "homes"))
    assert (len(limited.read_text().splitlines()), len(full.read_text().splitlines())) == (2, 5)


def test_a_sealed_run_is_never_extended(scored_run: Path, copied_run: Path) -> None:
    experiment, rows = scored_run.parent / "experiment.yaml", scored_run.parent / "rows.jsonl"
    before = {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()}
    done = coldread("run", str(experiment), "--data", str(rows), "--out", str(copied_run), "--limit", "1", code=10)
    assert "choose another --out" in done.stderr
    assert {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()} == before


def test_reading_a_sealed_run_again_changes_no_byte(copied_run: Path) -> None:
    before = {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()}
    coldread("read", str(copied_run))
    assert {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()} == before


def test_a_kill_between_seal_and_manifest_is_finished_by_the_next_read(copied_run: Path) -> None:
    manifest = copied_run / READS / "manifest.json"
    before = manifest.read_bytes()
    manifest.unlink()
    Journal(copied_run / READS / "journal.jsonl").append(entry("a"))
    coldread("read", str(copied_run))
    assert manifest.read_bytes() == before
    coldread("replay", str(copied_run))


def test_two_readers_over_the_same_packets_both_run(tiny_model: Path, tmp_path: Path) -> None:
    readers = [
        {"use": {"name": name, "engine": "digest", "model": {"folder": str(tiny_model)}, "output_cap": cap}}
        for name, cap in (("short", 2), ("long", 9))
    ]
    run = frozen_run(tmp_path, tiny_model, readers=readers)
    coldread("read", str(run))
    longest = {
        name: max(len(p.output_ids) for p in read_lines(run / "reads" / name / "predictions.jsonl", Prediction))
        for name in ("short", "long")
    }
    assert longest == {"short": 2, "long": 9}
    summary = json.loads(coldread("score", str(run), "--json").stdout)
    assert set(summary["readers"]) == {"short", "long"}


def test_the_recorded_engine_plays_a_sealed_run_back(scored_run: Path, tmp_path: Path, tiny_model: Path) -> None:
    recorded = {
        "name": "played",
        "engine": "recorded",
        "model": {"folder": str(scored_run / READS / "tokenizer")},
        "output_cap": 12,
        "options": {"run": str(scored_run)},
    }
    run = frozen_run(tmp_path, tiny_model, readers=[{"use": recorded}])
    coldread("read", str(run))

    def answers(folder: Path, reader: str) -> dict[tuple[str, str], str]:
        base = folder / "reads" / reader
        text = {p.request: p.text for p in read_lines(base / "predictions.jsonl", Prediction)}
        schedule = read_lines(base / "requests" / "schedule.jsonl", Scheduled)
        return {(s.view, s.question): text[s.request] for s in schedule}

    assert answers(run, "played") == answers(scored_run, "tiny")


def test_an_engine_of_another_package_plugs_in(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(ANSWER)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path))
    coldread("read", str(run))
    assert (run / READS / "seal.json").exists()


@pytest.mark.parametrize("what", ["labels/labels.jsonl", "data/questions.jsonl", "packets/evidence.jsonl", "../rows.jsonl"])
@pytest.mark.parametrize(
    "attempt",
    ["open(self.options['target']).read()", "try:\n    open(self.options['target'])\nexcept Exception:\n    pass"],
    ids=["open", "swallowed"],
)
def test_a_reader_process_cannot_open_labels_or_raw_rows(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], what: str, attempt: str
) -> None:
    plugin(f"{attempt}\n{ANSWER}")
    target = tmp_path / "run" / what
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, target))
    done = coldread("read", str(run), code=9)
    assert target.name in done.stderr
    assert not (run / READS / "seal.json").exists()


def test_a_reader_process_may_open_other_files(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    # So that the test above can fail: the same engine, another file.
    (tmp_path / "harmless.txt").write_text("x")
    plugin(f"open(self.options['target']).read()\n{ANSWER}")
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path / "harmless.txt"))
    coldread("read", str(run))


def test_a_renamed_copy_of_the_raw_rows_is_forbidden_too(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    target = tmp_path / "copy.bin"
    plugin(f"open(self.options['target']).read()\n{ANSWER}")
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, target))
    shutil.copyfile(tmp_path / "rows.jsonl", target)
    assert "copy.bin" in coldread("read", str(run), code=9).stderr


def test_reading_from_inside_the_run_folder_works(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(f"open('/dev/null', 'r').close()\n{ANSWER}")
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path))
    monkeypatch.chdir(run)
    coldread("read", ".")


def test_a_reader_process_is_started_with_no_path_of_the_run(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    # The engine writes down its own process's arguments and environment.
    note = tmp_path / "note.txt"
    body = f"Path({str(note)!r}).write_text(Path('/proc/self/cmdline').read_text() + repr(dict(os.environ)))\n{ANSWER}"
    plugin(body)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path))
    coldread("read", str(run))
    assert "readers.process.worker" in note.read_text()
    assert str(run) not in note.read_text()
    assert "rows.jsonl" not in note.read_text()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return []", "0 outputs for"),
        (
            "return [Output(ids=(80,) * 13, finish_reason='length') for _ in batch]",
            "exceeded the output cap",
        ),  # one more than its cap
        ("return [Output(ids=(-5,), finish_reason='stop') for _ in batch]", "-5, which is no token id"),
        *(
            (
                f"return [Output(ids={ids}, finish_reason='stop') for _ in batch]",
                f"'theirs' gave something else{{}} got `{kind}`",
            )
            for ids, kind in (
                ("('a',)", "str"),
                ("(True,)", "bool"),
                ("(80.0,)", "float"),
                ("(None,)", "null"),
                ("None", "null"),
            )
        ),
        ("return [Output(ids=(80,), finish_reason='done') for _ in batch]", "'theirs' gave something else{} 'done'"),
        ("return [80 for _ in batch]", "'theirs' gave something else{} got `int`"),
        ("raise RuntimeError('out of memory')", "out of memory"),
        ("os._exit(3)", "ended with exit code 3"),
        ("print('chatter on standard output')\n" + ANSWER, None),
    ],
)
def test_a_misbehaving_engine_is_one_clear_error(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], body: str, message: str | None
) -> None:
    plugin(body)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path, output_cap=12))
    done = coldread("read", str(run), code=0 if message is None else 8)
    if message is not None:
        assert "reader 'tiny'" in done.stderr
        assert all(part in done.stderr for part in message.split("{}"))
        assert not (run / READS / "seal.json").exists()


def test_failed_generations_stay_in_the_denominator(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    # Eight questions, shortest input first: two answered rightly, two failed, four wrong: 2 of 8.
    statements = [f"P{'x' * i} lives in C{'x' * i}." for i in range(8)]
    questions = [{"id": str(i), "text": f"Where does P{'x' * i} live?", "answers": [f"C{'x' * i}"]} for i in range(8)]
    rows = write_rows(tmp_path, [{"history": "h", "statements": statements, "questions": questions}])
    # The engine sees ids alone; it finds the question by decoding them.
    plugin(
        "from transformers import PreTrainedTokenizerFast as Fast\n"
        "fast = Fast.from_pretrained(self.options['target'])\n"
        "rank = lambda ids: fast.decode(ids).rsplit('does P', 1)[1].count('x')\n"
        "right = lambda ids: tuple(fast.encode('C' + 'x' * rank(ids), add_special_tokens=False))\n"
        "failed = Output(ids=(), finish_reason='error', error='refused')\n"
        "wrong = Output(ids=(80,), finish_reason='stop')\n"
        "good = lambda ids: Output(ids=right(ids), finish_reason='stop')\n"
        "return [good(ids) if rank(ids) < 2 else failed if rank(ids) < 4 else wrong for ids in batch]"
    )
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=their_reader(tiny_model, tiny_model))
    run = tmp_path / "run"
    done = coldread("run", str(experiment), "--data", str(rows), "--out", str(run), "--json")
    summary = json.loads(done.stdout)
    cell = summary["readers"]["tiny"]["cmc"]["all"]
    assert (cell["questions"], cell["subem"]) == (8, 2)
    assert summary["seals"]["tiny"]["failed"] == 2


def test_an_input_over_the_cap_is_a_failed_generation_not_a_gap(tiny_model: Path, tmp_path: Path) -> None:
    reader = {"name": "tiny", "engine": "digest", "model": {"folder": str(tiny_model)}, "output_cap": 4, "input_cap": 30}
    run = frozen_run(tmp_path, tiny_model, readers=[{"use": reader}])
    coldread("read", str(run))
    seal = json.loads((run / READS / "seal.json").read_text())
    assert (seal["counts"]["scheduled"], seal["counts"]["failed"]) == (20, 20)
    coldread("score", str(run))
    coldread("replay", str(run))


def test_a_read_of_a_run_in_use_is_refused(copied_run: Path) -> None:
    import fcntl

    descriptor = os.open(copied_run, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert "in use" in coldread("read", str(copied_run), code=10).stderr
    finally:
        os.close(descriptor)


def test_a_journal_line_checks_itself() -> None:
    made = entry("a")
    assert digest_of(made) != digest_of(entry("b"))
    assert encode(made).count(b"\n") == 0


def test_settings_of_another_model_than_the_one_that_the_reader_pins_do_not_replay(tiny_model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tiny_model, tmp_path / "other"))
    with (other / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    pinned, tokenizer = fingerprint(tiny_model), ChatTokenizer(tiny_model)
    for expected in (pinned.fingerprint, None):
        pin = Pin(folder="x", fingerprint=expected) if expected else Pin(folder="x")
        reader = Reader(name="r", engine="transformers", model=pin, output_cap=4)
        check_settings(tmp_path, reader, make_settings(reader, pinned, tokenizer), tokenizer)
        forged = make_settings(reader, fingerprint(other), tokenizer)
        if expected is None:
            check_settings(tmp_path, reader, forged, tokenizer)
        else:
            with pytest.raises(InputLinkError, match="not the model whose fingerprint"):
                check_settings(tmp_path, reader, forged, tokenizer)


def test_settings_do_not_replay_with_a_tokenizer_that_lacks_a_file_of_the_model(tiny_model: Path, tmp_path: Path) -> None:
    reader = Reader(name="r", engine="transformers", model=Pin(folder="x"), output_cap=4)
    settings = make_settings(reader, fingerprint(tiny_model), ChatTokenizer(tiny_model))
    kept = Path(shutil.copytree(tiny_model, tmp_path / "kept"))
    tokenizer = ChatTokenizer(kept)
    (kept / "model.safetensors").unlink()
    check_settings(tmp_path, reader, settings, tokenizer)
    (kept / "tokenizer_config.json").unlink()
    with pytest.raises(InputLinkError, match=r"tokenizer_config\.json: not the file of the model"):
        check_settings(tmp_path, reader, settings, tokenizer)
