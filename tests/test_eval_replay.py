"""Replay and refusal: any changed byte is named, every broken link has its own exit code."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from forge import add_file, append, edit_line, reseal
from installed import Install
from tiny import coldread, write_experiment, write_rows

from eval.replay import replay
from eval.score import score_run
from eval.verify import verify_run
from offline.canonical import digest_of, write_record
from offline.errors import ColdreadError
from offline.run.manifest import make_manifest, read_manifest
from offline.run.opened import OpenRun
from readers.records import Seal
from readers.seal import close

ALTERED = 20
SEALED_FILES = ["predictions.jsonl", "probes.jsonl", "seal.json", "timings.json"]


def files_of(run: Path) -> list[str]:
    return sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())


def test_an_untouched_run_replays_every_link(copied_run: Path) -> None:
    done = json.loads(coldread("replay", str(copied_run), "--json").stdout)
    assert [link["link"] for link in done["links"]] == [
        *("files", "extraction", "packets", "inputs", "outputs", "seal", "scores")
    ]


def test_replay_writes_nothing(copied_run: Path) -> None:
    before = {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()}
    coldread("replay", str(copied_run))
    assert {p: p.read_bytes() for p in copied_run.rglob("*") if p.is_file()} == before


def _refusals(run: Path) -> list[tuple[str, ColdreadError]]:
    """What scoring and replay say of a run that was changed; fails if either accepts it."""
    found = []
    for name, action in (
        ("score", lambda: score_run(OpenRun(run))),
        ("replay", lambda: replay(OpenRun(run))),
    ):
        with pytest.raises(ColdreadError) as caught:
            action()
        found.append((name, caught.value))
    return found


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "changed": lambda content, place: content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :],
    "added": lambda content, place: content[:place] + b"x" + content[place:],
    "removed": lambda content, place: content[:place] + content[place + 1 :],
}
# What no manifest covers.
ALONE = ("experiment.yaml", "labels/ledger.jsonl")


def test_a_damaged_file_is_refused_and_named(copied_run: Path) -> None:
    """One damage to each file of a manifest, three kinds at six places to the others.

    Each byte of a manifest and of its files is damaged in test_every_damaged_byte_of_a_step_is_noticed.
    """
    draw, kinds = random.Random(7), cycle(DAMAGES.items())
    openings = (copied_run / "labels" / "ledger.jsonl").read_bytes()
    for name in files_of(copied_run):
        path = copied_run / name
        content = path.read_bytes()
        if name in ALONE:
            places = (0, len(content) - 1, *(draw.randrange(len(content)) for _ in range(4)))
            damaged = [(how, damage(content, place)) for place in places for how, damage in DAMAGES.items()]
        else:
            how, damage = next(kinds) if content else ("added", DAMAGES["added"])
            damaged = [(how, damage(content, draw.randrange(len(content) or 1)))]
        for how, data in damaged:
            path.write_bytes(data)
            for action, error in _refusals(copied_run):
                assert path.name in str(error), f"{action}: {name} {how}: {error}"
                assert error.exit_code in {20, 26}, f"{action}: {name} {how}: {error}"
        path.write_bytes(content)
    # No refused score opened the labels.
    assert (copied_run / "labels" / "ledger.jsonl").read_bytes() == openings
    verify_run(OpenRun(copied_run))


def test_any_file_removed_is_refused_and_named(copied_run: Path) -> None:
    for name in files_of(copied_run):
        path = copied_run / name
        content = path.read_bytes()
        path.unlink()
        for _, error in _refusals(copied_run):
            assert path.name in str(error) or path.parent.name in str(error), f"{name}: {error}"
        path.write_bytes(content)


@pytest.fixture
def published(copied_run: Path) -> Path:
    """A scored run without its tokenizer's files: their manifest alone is kept."""
    for path in (copied_run / "reads" / "tiny" / "tokenizer").iterdir():
        if path.name != "manifest.json":
            path.unlink()
    return copied_run


def test_a_run_published_without_its_tokenizer_replays_all_but_token_ids(published: Path) -> None:
    done = json.loads(coldread("replay", str(published), "--no-tokens", "--json").stdout)
    assert [link["link"] for link in done["links"]] == ["files", "extraction", "packets", "tokens", "seal", "scores"]
    said = coldread("replay", str(published), code=ALTERED).stderr
    assert "reads/tiny/tokenizer/chat_template.jinja is missing" in said
    assert "`--tokenizer FOLDER`" in said
    assert "`--no-tokens`" in said


def test_commands_that_need_no_tokenizer_say_of_such_a_run_what_they_say_of_the_whole_one(
    scored_run: Path, published: Path, tmp_path: Path
) -> None:
    asked = [
        *(("score", "--json"), ("labels", "--json"), ("table",), ("table", "--format", "json"), ("show", "ada/1")),
        ("contrast", "--a", "cmc", "--b", "raw_history", "--json"),
    ]
    whole = Path(shutil.copytree(scored_run, tmp_path / "whole"))
    for command, *more in asked:
        said = [coldread(command, str(run), *more).stdout.replace(str(run), "RUN") for run in (whole, published)]
        assert said[0] == said[1] != "", command
    # Tokens of evidence are not counted where no tokenizer is at hand; the rest of the table is.
    assert "cmc" in coldread("coverage", str(published)).stdout
    assert coldread("report", str(published), "--out", str(tmp_path / "page.html")).stdout


@pytest.mark.parametrize("change", ["config.json", "stranger.json"])
def test_what_is_there_of_a_tokenizer_must_be_what_was_written(copied_run: Path, change: str) -> None:
    kept = copied_run / "reads" / "tiny" / "tokenizer"
    (kept / "tokenizer.json").unlink()
    with (kept / change).open("a") as stream:
        stream.write(" ")
    for command, *more in (("replay", "--no-tokens"), ("score",), ("table",)):
        assert change in coldread(command, str(copied_run), *more, code=ALTERED).stderr


def test_a_run_published_without_its_extractors_tokenizer_is_shown_and_replayed_without_token_ids(tmp_path: Path) -> None:
    golden = Path(__file__).parent / "golden" / "format-1-calls"
    run = Path(shutil.copytree(golden, tmp_path / "run"))
    shutil.rmtree(run / "extraction" / "tokenizer")
    links = json.loads(coldread("replay", str(run), "--no-tokens", "--json").stdout)["links"]
    assert [link["detail"] for link in links if "--no-tokens" in link["detail"]] == [
        "skipped: its calls are token ids, and --no-tokens was given",
        "skipped for tiny: --no-tokens was given",
        "skipped for tiny: their calls are token ids, and --no-tokens was given",
    ]
    for command in ("catalogue", "pipelines"):
        whole = json.loads(coldread(command, str(golden), "--json").stdout)
        assert {**json.loads(coldread(command, str(run), "--json").stdout), "run": str(golden)} == whole
    assert "--tokenizer FOLDER" in coldread("replay", str(run), code=ALTERED).stderr


def test_the_manifest_of_a_tokenizer_cannot_be_left_out(published: Path) -> None:
    shutil.rmtree(published / "reads" / "tiny" / "tokenizer")
    for command, *more in (("replay", "--no-tokens"), ("table",)):
        assert "manifest.json is missing" in coldread(command, str(published), *more, code=ALTERED).stderr


@pytest.mark.parametrize("place", ["", "data", "packets", "labels", "reads", "reads/tiny", "reads/tiny/requests", "scores"])
def test_any_file_or_folder_added_is_refused_and_named(copied_run: Path, place: str) -> None:
    stranger = copied_run / place / "stranger"
    for make, remove in ((lambda: stranger.write_text(""), stranger.unlink), (stranger.mkdir, stranger.rmdir)):
        make()
        for _, error in _refusals(copied_run):
            assert "stranger" in str(error)
        remove()


def test_a_file_swapped_for_a_link_to_the_same_bytes_is_refused(copied_run: Path, tmp_path: Path) -> None:
    path = copied_run / "packets" / "cmc.jsonl"
    path.rename(tmp_path / "cmc.jsonl")
    path.symlink_to(tmp_path / "cmc.jsonl")
    for _, error in _refusals(copied_run):
        assert "cmc.jsonl" in str(error)


def swap_statuses(record: dict[str, Any]) -> None:
    record.update(status="no_fact", triples=[], reason="forged")


READS = "reads/tiny"
FORGERIES: dict[str, tuple[int, str, Callable[[Path], None]]] = {
    "extraction": (21, "Ada lives in Rome", lambda run: edit_line(run / "extraction/statements.jsonl", 0, swap_statuses)),
    "packets": (22, "ada/0", lambda run: edit_line(run / "packets/cmc.jsonl", 0, lambda r: r.update(records=9))),
    "schedule": (23, "cmc", lambda run: edit_line(run / f"{READS}/requests/schedule.jsonl", 0, lambda r: r.update(cut=1))),
    "ids": (23, "inputs.u32", lambda run: flip_ids(run)),
    "outputs": (24, "line 1", lambda run: edit_line(run / f"{READS}/predictions.jsonl", 0, lambda r: r.update(text="Paris"))),
    "scores": (
        25,
        "scores.jsonl",
        lambda run: edit_line(run / "scores/tiny/scores.jsonl", 0, lambda r: r["metrics"].update(subem=True)),
    ),
    "cells": (25, "cells", lambda run: edit_line(run / "scores/tiny/cells.jsonl", 0, lambda r: r["correct"].update(subem=4))),
    **{
        f"a file more in {place}": (20, "stranger", lambda run, place=place: add_file(run / place))
        for place in ("extraction", "packets", f"{READS}/requests", f"{READS}/tokenizer", READS, "scores")
    },
    "bytes behind the statements": (21, "statements.jsonl, line 9", lambda run: append(run / "extraction/statements.jsonl")),
    "bytes behind the packets": (22, "cmc.jsonl, line 6", lambda run: append(run / "packets/cmc.jsonl")),
    "bytes behind the scores": (25, "scores.jsonl", lambda run: append(run / "scores/tiny/scores.jsonl")),
    "an answer beyond its cap": (
        24,
        "predictions.jsonl, line 1: more output ids than its cap of 12",
        lambda run: edit_line(run / f"{READS}/predictions.jsonl", 0, lambda r: r.update(output_ids=[5] * 12 + r["output_ids"])),
    ),
    "labels": (25, "scores.jsonl", lambda run: edit_line(run / "labels/labels.jsonl", 0, lambda r: r.update(golds=["Rome"]))),
}


def flip_ids(run: Path) -> None:
    path = run / "reads/tiny/requests/inputs.u32"
    data = bytearray(path.read_bytes())
    data[4 * 30] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("link", FORGERIES)
def test_a_forgery_with_fitting_hashes_breaks_its_own_link(copied_run: Path, link: str) -> None:
    code, named, forge = FORGERIES[link]
    forge(copied_run)
    reseal(copied_run)
    verify_run(OpenRun(copied_run))  # the hashes fit: only deriving again finds it out
    assert named in coldread("replay", str(copied_run), code=code).stderr


def test_bytes_behind_a_forged_schedule_are_found_before_anything_is_derived(copied_run: Path) -> None:
    append(copied_run / READS / "requests" / "schedule.jsonl")
    reseal(copied_run)
    for command in ("replay", "score"):
        assert "schedule.jsonl, line 21: the line is not ended" in coldread(command, str(copied_run), code=ALTERED).stderr


def test_weights_that_the_fingerprint_does_not_name_are_found_before_anything_is_derived(copied_run: Path) -> None:
    settings = copied_run / READS / "requests" / "settings.json"
    edit_line(settings, 0, lambda r: r["model"]["files"][-1].update(sha256="0" * 64))
    reseal(copied_run)
    for command in ("replay", "score"):
        assert "settings.json: the model's fingerprint" in coldread(command, str(copied_run), code=ALTERED).stderr


def test_resealing_an_honest_run_still_replays(copied_run: Path) -> None:
    # So that the tests above fail for the forgery and not for the resealing.
    reseal(copied_run)
    coldread("replay", str(copied_run))


def test_a_seal_over_other_packets_breaks_the_seal_link(copied_run: Path) -> None:
    reads = copied_run / "reads" / "tiny"
    seal = msgspec.json.decode((reads / "seal.json").read_bytes(), type=Seal)
    seal = close(msgspec.structs.replace(seal, packets="0" * 64))
    write_record(reads / "seal.json", seal)
    write_record(
        reads / "manifest.json",
        make_manifest(reads, "reads", {"seal": seal.root}, SEALED_FILES),
    )
    assert "packets" in coldread("replay", str(copied_run), code=26).stderr
    assert coldread("score", str(copied_run), code=26).stdout == ""


def test_labels_exchanged_after_sealing_break_the_seal_link(copied_run: Path) -> None:
    edit_line(copied_run / "labels/labels.jsonl", 0, lambda r: r.update(golds=["Rome"]))
    old = read_manifest(copied_run / "labels")
    write_record(
        copied_run / "labels" / "manifest.json",
        make_manifest(copied_run / "labels", old.step, old.inputs, ["labels.jsonl"]),
    )
    assert "committed" in coldread("score", str(copied_run), code=26).stderr


def test_a_ledger_shorter_than_the_seal_saw_is_refused(copied_run: Path) -> None:
    reads = copied_run / "reads" / "tiny"
    seal = msgspec.json.decode((reads / "seal.json").read_bytes(), type=Seal)
    seal = close(msgspec.structs.replace(seal, ledger=5))
    write_record(reads / "seal.json", seal)
    write_record(
        reads / "manifest.json",
        make_manifest(reads, "reads", {"seal": seal.root}, SEALED_FILES),
    )
    assert "ledger" in coldread("replay", str(copied_run), code=26).stderr


def test_replay_without_tokens_loads_neither_torch_nor_transformers(copied_run: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom eval.replay import replay\nfrom offline.run.opened import OpenRun\n"
        "print(*(link.link for link in replay(OpenRun(Path(sys.argv[1])), tokens=False)))\n"
        "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script, str(copied_run)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["files", "extraction", "packets", "tokens", "seal", "scores"]


def test_replay_with_tokens_loads_no_torch(copied_run: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom eval.replay import replay\nfrom offline.run.opened import OpenRun\n"
        "replay(OpenRun(Path(sys.argv[1])))\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script, str(copied_run)], check=True)


@pytest.mark.parametrize("below", ["", "tiny"])
def test_a_run_published_without_its_tokenizer_replays_with_one_supplied(copied_run: Path, tmp_path: Path, below: str) -> None:
    kept, given = copied_run / "reads" / "tiny" / "tokenizer", tmp_path / "given"
    shutil.copytree(kept, given / below)
    for path in kept.iterdir():
        if path.name != "manifest.json":
            path.unlink()
    coldread("replay", str(copied_run), "--tokenizer", str(given))
    assert "missing" in coldread("replay", str(copied_run), code=ALTERED).stderr


def test_a_supplied_tokenizer_with_another_byte_is_refused(copied_run: Path, tmp_path: Path) -> None:
    given = Path(shutil.copytree(copied_run / "reads" / "tiny" / "tokenizer", tmp_path / "given"))
    (given / "tokenizer.json").write_bytes((given / "tokenizer.json").read_bytes() + b" ")
    assert "tokenizer.json" in coldread("replay", str(copied_run), "--tokenizer", str(given), code=ALTERED).stderr


def test_freeze_check_names_the_first_packet_that_differs(copied_run: Path) -> None:
    coldread("freeze", str(copied_run), "--check")
    edit_line(copied_run / "packets/stale_closure.jsonl", 2, lambda r: r.update(truncated=True))
    old = read_manifest(copied_run / "packets")
    names = [entry.name for entry in old.files]
    write_record(copied_run / "packets" / "manifest.json", make_manifest(copied_run / "packets", old.step, old.inputs, names))
    errors = coldread("freeze", str(copied_run), "--check", code=22).stderr
    assert "stale_closure" in errors
    assert "line 3" in errors


def test_a_later_format_is_refused_by_its_number(copied_run: Path) -> None:
    path = copied_run / "reads" / "tiny" / "seal.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    errors = coldread("score", str(copied_run), code=ALTERED).stderr
    assert "another version" in errors


def test_a_record_digest_is_the_digest_of_its_stored_line(copied_run: Path) -> None:
    schedule = [json.loads(line) for line in (copied_run / "reads/tiny/requests/schedule.jsonl").read_text().splitlines()]
    packets = (copied_run / "packets/cmc.jsonl").read_bytes().splitlines()
    assert schedule[0]["packet"] == digest_of(json.loads(packets[0]))


def test_forged_request_settings_break_the_input_link(copied_run: Path) -> None:
    path = copied_run / "reads/tiny/requests/settings.json"
    path.write_bytes(path.read_bytes().replace(b'"pad_id":5', b'"pad_id":4'))
    reseal(copied_run)
    assert "settings.json" in coldread("replay", str(copied_run), code=23).stderr


@pytest.mark.parametrize("command", [["score"], ["replay", "--no-tokens"], ["table"]])
def test_a_question_that_a_resealed_schedule_leaves_out_is_missed_without_a_tokenizer(
    copied_run: Path, command: list[str]
) -> None:
    """What was wrong could be left out of the denominator: no other file says that it was scheduled."""
    path = copied_run / "reads/tiny/requests/schedule.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    seal = copied_run / "reads/tiny/seal.json"
    scheduled = json.loads(seal.read_bytes())["counts"]["scheduled"]
    seal.write_bytes(seal.read_bytes().replace(f'"scheduled":{scheduled}'.encode(), f'"scheduled":{scheduled - 1}'.encode()))
    reseal(copied_run)
    errors = coldread(command[0], str(copied_run), *command[1:], code=ALTERED).stderr
    assert f"schedule.jsonl, line {len(lines)}: none, where the experiment and its questions ask for" in errors


def test_forged_counts_break_the_seal_link(copied_run: Path) -> None:
    path = copied_run / "reads/tiny/seal.json"
    path.write_bytes(path.read_bytes().replace(b'"failed":0', b'"failed":5'))
    reseal(copied_run)
    assert "failed=5" in coldread("replay", str(copied_run), code=26).stderr


@pytest.mark.parametrize("change", ["config.json", "stranger.json"])
def test_a_supplied_tokenizer_does_not_excuse_a_changed_one_in_the_run(copied_run: Path, tmp_path: Path, change: str) -> None:
    kept = copied_run / "reads" / "tiny" / "tokenizer"
    given = Path(shutil.copytree(kept, tmp_path / "given"))
    with (kept / change).open("a") as stream:
        stream.write(" ")
    assert change in coldread("replay", str(copied_run), "--tokenizer", str(given), code=ALTERED).stderr


@pytest.mark.parametrize("name", ["seal.json", "manifest.json"])
def test_half_a_seal_names_the_missing_half(copied_run: Path, name: str) -> None:
    (copied_run / "reads" / "tiny" / name).unlink()
    for _, error in _refusals(copied_run):
        assert name in str(error)


def test_a_file_in_the_place_of_a_step_is_refused(copied_run: Path) -> None:
    shutil.rmtree(copied_run / "scores")
    (copied_run / "scores").write_text("")
    for _, error in _refusals(copied_run):
        assert "scores" in str(error)


def test_show_prints_nothing_from_altered_files(copied_run: Path) -> None:
    for name in ("reads/tiny/predictions.jsonl", "scores/tiny/scores.jsonl"):
        path = copied_run / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b'"finish_reason":"length"', b'"finish_reason":"stop"', 1))
        done = coldread("show", str(copied_run), "ada/0", code=ALTERED)
        assert (done.stdout, path.name in done.stderr) == ("", True)
        path.write_bytes(content)


def test_a_run_replays_from_another_place(copied_run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "with a space" / "moved"
    moved.parent.mkdir()
    copied_run.rename(moved)
    coldread("replay", str(moved))


def test_a_metric_installed_later_does_not_change_what_replays(copied_run: Path, install: Install) -> None:
    install("acme", "coldread.metrics", {"always": "acme_code:always"}, "def always(prediction, golds):\n    return True\n")
    coldread("replay", str(copied_run))
    summary = json.loads(coldread("score", str(copied_run), "--json").stdout)
    assert summary["readers"]["tiny"]["cmc"]["sh"]["always"] == 4
    coldread("replay", str(copied_run))


def test_a_run_whose_negative_control_matches_tokens_replays_with_the_kept_or_a_supplied_tokenizer(
    tiny_model: Path, tmp_path: Path
) -> None:
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc", "random_disjoint"], settings={"length_unit": "tokens"})
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run), "--until", "read")
    assert read_manifest(run / "packets").inputs["measure"].startswith("tokens of ")
    coldread("replay", str(run))
    shutil.copytree(run / "reads" / "tiny" / "tokenizer", tmp_path / "given" / "tiny")
    coldread("replay", str(run), "--tokenizer", str(tmp_path / "given"))
    assert "skipped" in coldread("replay", str(run), "--no-tokens").stderr
