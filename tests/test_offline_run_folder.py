import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from worlds import PROMPT, experiment

from extract.step import extract_step
from offline.config.experiment import Prompt, ResolvedExperiment
from offline.config.frontend import GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.errors import AlteredError, StateError, StorageError
from offline.loaders.synthetic import SyntheticData
from offline.run.folder import RunFolder
from offline.run.manifest import read_manifest, verify_folder
from offline.run.opened import OpenRun
from offline.run.writing import freeze_step, load_step

EXPERIMENT = experiment()
OTHER = experiment(views=("raw_history",))


def _write(content: str, name: str = "a.txt") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)

    return write


def _fail(folder: Path) -> None:
    raise AssertionError("the step must not be written")


def _everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, hidden ones too; a folder counts as an empty file."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that holds its experiment and one step, `data`, made from the input `x: 1`."""
    folder = RunFolder(tmp_path / "run")
    folder.create(EXPERIMENT)
    assert folder.step("data", {"x": "1"}, _write("one"))
    return folder


# Steps


def test_a_manifest_lists_every_file_with_its_size_and_sha256(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")

    def write(folder: Path) -> None:
        _write("one")(folder)
        _write("zwei\n", "below/b.txt")(folder)

    run.step("data", {"y": "2", "x": "1"}, write)
    raw = json.loads((tmp_path / "run/data/manifest.json").read_text())
    assert raw["files"] == [
        {"name": "a.txt", "sha256": hashlib.sha256(b"one").hexdigest(), "size": 3},
        {"name": "below/b.txt", "sha256": hashlib.sha256(b"zwei\n").hexdigest(), "size": 5},
    ]
    assert raw["inputs"] == {"x": "1", "y": "2"}
    # Its own digest is that of the canonical manifest with an empty digest.
    line = json.dumps({**raw, "digest": ""}, sort_keys=True, separators=(",", ":"))
    assert raw["digest"] == hashlib.sha256(line.encode()).hexdigest()


def test_a_step_that_is_up_to_date_is_skipped(run: RunFolder) -> None:
    before = _everything(run.path)
    assert run.step("data", {"x": "1"}, _fail) is False
    assert _everything(run.path) == before


@pytest.mark.parametrize("inputs", [{"x": "2"}, {}, {"x": "1", "y": "1"}, {"y": "1"}])
def test_a_step_whose_inputs_changed_is_written_again_whole(run: RunFolder, inputs: dict[str, str]) -> None:
    assert run.step("data", inputs, _write("two", "b.txt")) is True
    assert sorted(_everything(run.path / "data")) == ["b.txt", "manifest.json"]
    assert read_manifest(run.path / "data").inputs == inputs


def test_a_step_in_a_folder_of_a_folder_is_written_there(run: RunFolder) -> None:
    assert run.step("reads/one/requests", {}, _write("x"))
    assert (run.path / "reads/one/requests/a.txt").read_text() == "x"


def _other_content(folder: Path) -> None:
    (folder / "a.txt").write_text("two")


def _longer(folder: Path) -> None:
    (folder / "a.txt").write_text("one ")


def _gone(folder: Path) -> None:
    (folder / "a.txt").unlink()


def _one_more(folder: Path) -> None:
    (folder / "b.txt").write_text("")


def _hidden(folder: Path) -> None:
    (folder / ".hidden").write_text("x")


def _empty_folder(folder: Path) -> None:
    (folder / "below").mkdir()


def _link(folder: Path) -> None:
    (folder / "a.txt").rename(folder.parent / "elsewhere.txt")
    (folder / "a.txt").symlink_to(folder.parent / "elsewhere.txt")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _spaced_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True) + "\n")


def _other_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"x":"1"', '"x":"2"'))


def _file_in_place_of_the_folder(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("a file")


TAMPER = pytest.mark.parametrize(
    "tamper",
    [
        _other_content,
        _longer,
        _gone,
        _one_more,
        _hidden,
        _empty_folder,
        _link,
        _pipe,
        _no_manifest,
        _spaced_manifest,
        _other_manifest,
        _file_in_place_of_the_folder,
    ],
    ids=lambda tamper: tamper.__name__,
)


@TAMPER
@pytest.mark.parametrize("inputs", [{"x": "1"}, {"x": "2"}], ids=["same inputs", "other inputs"])
def test_an_altered_step_is_refused_and_not_overwritten(
    run: RunFolder, tamper: Callable[[Path], None], inputs: dict[str, str]
) -> None:
    tamper(run.path / "data")
    listing = sorted(str(path) for path in run.path.rglob("*"))
    with pytest.raises(AlteredError, match="data"):
        run.step("data", inputs, _fail)
    assert sorted(str(path) for path in run.path.rglob("*")) == listing


@TAMPER
def test_an_altered_step_cannot_be_built_upon(run: RunFolder, tamper: Callable[[Path], None]) -> None:
    tamper(run.path / "data")
    with pytest.raises((AlteredError, StateError), match="data"):
        run.need("data")


@pytest.mark.parametrize("name", ["a.txt", "manifest.json"])
def test_every_damaged_byte_of_a_step_is_noticed(run: RunFolder, name: str) -> None:
    """Its lowest and its highest bit turned, the byte left out, another put before it."""
    path = run.path / "data" / name
    content = path.read_bytes()
    for place, byte in enumerate(content):
        for put in (bytes([byte ^ 1]), bytes([byte ^ 128]), b"", b"x" + bytes([byte])):
            path.write_bytes(content[:place] + put + content[place + 1 :])
            with pytest.raises(AlteredError):
                verify_folder(run.path / "data")


def test_files_may_be_verified_in_another_folder_that_holds_more(run: RunFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "copy"
    elsewhere.mkdir()
    with pytest.raises(AlteredError, match=r"a\.txt is missing"):
        verify_folder(run.path / "data", elsewhere={".": elsewhere})
    (elsewhere / "a.txt").write_text("one")
    (elsewhere / "more.txt").write_text("x")
    assert verify_folder(run.path / "data", elsewhere={".": elsewhere}) == read_manifest(run.path / "data")
    (elsewhere / "a.txt").write_text("two")
    with pytest.raises(AlteredError, match=r"a\.txt: differs"):
        verify_folder(run.path / "data", elsewhere={".": elsewhere})


def test_only_the_folder_that_lies_elsewhere_may_be_missing(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "inner").mkdir()
        for name in ("a.txt", "inner/b.txt", "innermost.txt"):
            (folder / name).write_text(name)

    RunFolder(tmp_path / "run").step("data", {}, write)
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("inner/b.txt")
    run = RunFolder(tmp_path / "run", {"data/inner": other, "packets": tmp_path})
    shutil.rmtree(run.path / "data" / "inner")
    assert [entry.name for entry in run.need("data").files] == ["a.txt", "inner/b.txt", "innermost.txt"]
    assert run.files_of("data/inner") == other
    assert run.files_of("data") == run.path / "data"
    (run.path / "data" / "innermost.txt").rename(other / "innermost.txt")
    with pytest.raises(AlteredError, match=r"data/innermost\.txt is missing"):
        run.need("data")


def test_a_step_that_has_not_run_is_a_state_error_that_names_the_command(run: RunFolder) -> None:
    for step, command in [("extraction", "extract"), ("packets", "freeze"), ("labels", "load"), ("reads/x/requests", "read")]:
        assert not run.has(step)
        with pytest.raises(StateError, match=f"coldread {command} "):
            run.need(step)


def test_kept_files_are_inherited_by_the_next_version_and_stay_outside_the_manifest(run: RunFolder) -> None:
    run.step("labels", {"x": "1"}, _write("one"), keep=("ledger.jsonl",))
    (run.path / "labels/ledger.jsonl").write_text("opened\n")
    assert run.step("labels", {"x": "1"}, _fail, keep=("ledger.jsonl",)) is False
    assert run.step("labels", {"x": "2"}, _write("two"), keep=("ledger.jsonl",)) is True
    assert (run.path / "labels/ledger.jsonl").read_text() == "opened\n"
    assert [entry.name for entry in run.need("labels").files] == ["a.txt"]


# Failures while a step is written


class BrokenError(Exception):
    """A writer's own failure."""


def _break(folder: Path) -> None:
    _write("half")(folder)
    raise BrokenError


def test_a_writer_that_fails_leaves_the_old_version_and_nothing_else(run: RunFolder) -> None:
    before = _everything(run.path)
    with pytest.raises(BrokenError):
        run.step("data", {"x": "2"}, _break)
    assert _everything(run.path) == before
    assert run.need("data").inputs == {"x": "1"}


def test_a_writer_that_fails_the_first_time_leaves_no_folder(run: RunFolder) -> None:
    before = _everything(run.path)
    with pytest.raises(BrokenError):
        run.step("extraction", {}, _break)
    assert _everything(run.path) == before


def test_an_interrupted_writer_leaves_the_old_version_and_nothing_else(run: RunFolder) -> None:
    # A process started in the background of a script is born deaf to this signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before = _everything(run.path)

    def interrupt(folder: Path) -> None:
        _write("half")(folder)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run.step("data", {"x": "2"}, interrupt)
    assert _everything(run.path) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from offline.run.folder import RunFolder

def write(folder):
    (folder / "half.txt").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

run = RunFolder(Path(sys.argv[1]))
with run.lock():
    run.step(sys.argv[2], {"x": "2"}, write)
"""


@pytest.mark.parametrize("step", ["data", "extraction", "reads/one/requests"])
def test_what_a_killed_process_left_is_put_away_by_the_next_one_and_the_old_version_stays(run: RunFolder, step: str) -> None:
    (run.path / step).parent.mkdir(parents=True, exist_ok=True)
    before = _everything(run.path)
    repository = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run.path), step], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert _everything(run.path) != before
    with run.lock():
        assert _everything(run.path) == before
        assert run.step(step, {"x": "2"}, _write("two"))
    assert (run.path / step / "a.txt").read_text() == "two"


def test_a_kill_between_the_two_renames_loses_neither_the_old_version_nor_its_ledger(run: RunFolder) -> None:
    run.step("labels", {"x": "1"}, _write("one"), keep=("ledger.jsonl",))
    (run.path / "labels/ledger.jsonl").write_text("opened\n")
    before = _everything(run.path)
    # The state on disk at that moment: the old folder put aside, the new one not yet in place.
    (run.path / "labels").rename(run.path / ".labels.old")
    (run.path / ".labels.partial").mkdir()
    (run.path / ".labels.partial/a.txt").write_text("two")
    with run.lock():
        assert _everything(run.path) == before


def test_a_kill_after_the_renames_keeps_the_new_version(run: RunFolder) -> None:
    (run.path / ".data.old").mkdir()
    (run.path / ".data.old/a.txt").write_text("older")
    with run.lock():
        assert run.step("data", {"x": "1"}, _fail) is False
        assert not (run.path / ".data.old").exists()


def test_a_folder_that_is_no_run_is_not_tidied(tmp_path: Path) -> None:
    (tmp_path / ".mine.partial").write_text("x")
    (tmp_path / ".mine.old").mkdir()
    before = _everything(tmp_path)
    with RunFolder(tmp_path).lock():
        pass
    assert _everything(tmp_path) == before


# A full disk, a read-only folder


def test_a_full_disk_is_a_storage_error_and_the_old_version_stays(full_disk: Path) -> None:
    run = RunFolder(full_disk / "run")
    run.create(EXPERIMENT)
    run.step("data", {"x": "1"}, _write("one"))
    before = _everything(run.path)
    with pytest.raises(StorageError, match="free the disk"):
        run.step("data", {"x": "2"}, _write("x" * (1 << 20)))
    with pytest.raises(StorageError, match="free the disk"):
        run.step("extraction", {}, _write("x" * (1 << 20)))
    assert _everything(run.path) == before
    assert run.step("data", {"x": "2"}, _write("two"))


def test_a_full_disk_leaves_no_experiment_behind(full_disk: Path) -> None:
    run = RunFolder(full_disk / "run")
    large = Prompt(name="p", system="x" * (1 << 18), user="{evidence}{question}", heading="", no_evidence="")
    with pytest.raises(StorageError, match="free the disk"):
        run.create(msgspec.structs.replace(EXPERIMENT, prompt=large))
    assert _everything(run.path) == {}
    run.create(EXPERIMENT)
    assert run.read_experiment() == EXPERIMENT


def test_a_read_only_folder_is_a_storage_error_and_gets_nothing(read_only_folder: Path) -> None:
    run = RunFolder(read_only_folder / "run")
    with pytest.raises(StorageError, match="choose a writable"):
        run.create(EXPERIMENT)
    with pytest.raises(StorageError, match="choose a writable"):
        run.step("data", {}, _fail)
    with pytest.raises(StorageError, match="choose a writable"):
        RunFolder(read_only_folder).step("data", {}, _fail)
    assert not (read_only_folder / "run").exists()
    assert not (read_only_folder / "data").exists()


def test_a_file_in_the_place_of_the_run_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StorageError):
        RunFolder(tmp_path / "run").create(EXPERIMENT)
    assert (tmp_path / "run").read_text() == "a file"


# One process at a time

HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(run: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run until its input ends."""
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        if process.stdin and not process.stdin.closed:
            process.stdin.close()


def test_a_run_in_use_by_another_process_is_refused_until_that_process_ends(
    run: RunFolder, held: subprocess.Popen[str]
) -> None:
    with pytest.raises(StateError, match="in use by another"), run.lock():
        pass
    held.communicate("")
    with run.lock():
        pass


def test_no_other_process_can_even_share_a_run_that_is_held(run: RunFolder) -> None:
    share = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", share, str(run.path)]
    with run.lock():
        assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    subprocess.run(command, check=True)


def test_a_lock_leaves_no_file(run: RunFolder) -> None:
    before = _everything(run.path)
    with run.lock():
        assert _everything(run.path) == before
    assert _everything(run.path) == before


def test_a_run_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no run folder"), RunFolder(tmp_path / "nothing").lock():
        pass


# The experiment of a run


def test_an_experiment_comes_back_as_it_was_written(run: RunFolder) -> None:
    assert run.read_experiment() == EXPERIMENT
    assert run.experiment_digest() == hashlib.sha256((run.path / "experiment.yaml").read_bytes()).hexdigest()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT, TEXT)
@example("\x85", "a\u2028b\r")
def test_an_experiment_comes_back_whatever_its_texts(
    tmp_path_factory: pytest.TempPathFactory, system: str, heading: str
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("texts") / "run")
    prompt = msgspec.structs.replace(PROMPT, system=system, heading=heading)
    written = msgspec.structs.replace(EXPERIMENT, prompt=prompt)
    run.create(written)
    assert run.read_experiment() == written


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n",
        lambda text: text.replace("hops: 5", "hops: 4"),
        lambda text: text.replace("name: tiny", "name:  tiny"),
        lambda text: text.split("\n", 1)[1],
        lambda text: text.replace("format 1", "format 2", 1),
        lambda text: text + "name: tiny\n",
        lambda text: "",
        lambda text: "[",
    ],
)
def test_an_altered_experiment_is_refused(run: RunFolder, change: Callable[[str], str]) -> None:
    path = run.path / "experiment.yaml"
    path.write_text(change(path.read_text()))
    with pytest.raises(AlteredError, match=r"experiment\.yaml"):
        run.read_experiment()
    altered = path.read_text()
    with pytest.raises(AlteredError, match=r"experiment\.yaml"):
        run.create(OTHER)
    assert path.read_text() == altered


def test_an_experiment_that_was_read_is_read_again_when_its_file_changes(run: RunFolder) -> None:
    path = run.path / "experiment.yaml"
    written, again = run.read_experiment(), path.read_bytes()
    path.write_bytes(again.replace(b"cmc", b"raw"))
    with pytest.raises(AlteredError, match=r"experiment\.yaml"):
        run.read_experiment()
    path.write_bytes(again)
    assert run.read_experiment() == written
    run.create(OTHER)
    assert run.read_experiment() == OTHER


def test_a_folder_without_an_experiment_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is no run"):
        RunFolder(tmp_path).read_experiment()


def test_a_folder_with_something_else_in_it_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StateError, match="not empty and not a run"):
        RunFolder(tmp_path).create(EXPERIMENT)
    assert _everything(tmp_path) == {"thesis.txt": b"mine"}


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    RunFolder(tmp_path).create(EXPERIMENT)
    assert RunFolder(tmp_path).read_experiment() == EXPERIMENT


def test_an_unsealed_run_takes_another_experiment(run: RunFolder) -> None:
    run.create(OTHER)
    assert run.read_experiment() == OTHER


# A sealed run


@pytest.fixture
def sealed(run: RunFolder) -> RunFolder:
    """The run with a reader that has a seal."""
    (run.path / "reads/one").mkdir(parents=True)
    (run.path / "reads/one/seal.json").write_text("{}\n")
    return run


def test_a_sealed_run_names_its_sealed_readers(sealed: RunFolder) -> None:
    assert sealed.sealed_readers() == ["one"]


def test_a_sealed_run_refuses_another_experiment_and_keeps_its_own(sealed: RunFolder) -> None:
    before = _everything(sealed.path)
    with pytest.raises(StateError, match="sealed"):
        sealed.create(OTHER)
    sealed.create(EXPERIMENT)
    assert _everything(sealed.path) == before


def test_a_sealed_run_refuses_a_step_with_other_inputs_and_skips_one_with_the_same(sealed: RunFolder) -> None:
    before = _everything(sealed.path)
    assert sealed.step("data", {"x": "1"}, _fail) is False
    with pytest.raises(StateError, match="sealed"):
        sealed.step("data", {"x": "2"}, _fail)
    assert _everything(sealed.path) == before


def test_a_step_after_the_seals_may_be_written_again(sealed: RunFolder) -> None:
    sealed.step("scores", {"x": "1"}, _write("one"), downstream=True)
    assert sealed.step("scores", {"x": "2"}, _write("two"), downstream=True) is True


# The whole of a run


def test_anything_in_the_top_folder_that_no_step_made_is_refused(run: RunFolder) -> None:
    run.verify_top()
    (run.path / "notes.txt").write_text("x")
    with pytest.raises(AlteredError, match=r"notes\.txt"):
        run.verify_top()


def test_a_link_in_the_place_of_a_step_is_refused(run: RunFolder, tmp_path: Path) -> None:
    (run.path / "packets").symlink_to(tmp_path)
    with pytest.raises(AlteredError, match="packets"):
        run.verify_top()


SYNTHETIC = msgspec.structs.replace(
    experiment(views=("cmc", "raw_history")), data=SyntheticData(statements=(60,), questions=4), grammar=None
)


@pytest.fixture
def whole(tmp_path: Path) -> OpenRun:
    """A run that was loaded, extracted and frozen."""
    plan = _plan()
    run = OpenRun(tmp_path / "whole")
    run.create(plan)
    assert load_step(run, None)
    assert extract_step(run).written
    assert freeze_step(run, len, "characters")
    return run


def _plan(**changes: object) -> ResolvedExperiment:
    grammar = load_yaml(find_config("grammars", "synthetic"), GrammarForms)
    return msgspec.structs.replace(SYNTHETIC, grammar=grammar, **changes)


def test_a_frozen_run_gives_back_what_its_steps_made(whole: OpenRun) -> None:
    data, packets, evidence = whole.data, whole.packets(["cmc", "raw_history"]), whole.evidence
    assert (len(data.histories), len(data.questions)) == (1, 4)
    texts = {statement.text for statement in data.histories[0].statements}
    assert {statement.text for statement in whole.extraction.statements} == texts
    for view in ("cmc", "raw_history"):
        assert [packet.question for packet in packets[view]] == [question.id for question in data.questions]
        assert all(packet.evidence in evidence for packet in packets[view])


def test_the_steps_of_an_unchanged_run_are_all_skipped(whole: OpenRun) -> None:
    before = _everything(whole.path)
    assert not load_step(whole, None)
    assert not extract_step(whole).written
    assert not freeze_step(whole, len, "characters")
    assert _everything(whole.path) == before


def test_a_full_run_after_a_limited_one_gives_every_question(whole: OpenRun) -> None:
    limited, full = _plan(limit=2), _plan()
    for plan, questions in ((limited, 2), (full, 4)):
        whole.create(plan)
        load_step(whole, None)
        extract_step(whole)
        freeze_step(whole, len, "characters")
        assert len(whole.data.questions) == questions
        assert len(whole.packets(["cmc"])["cmc"]) == questions


def test_another_setting_view_prompt_or_measure_freezes_the_packets_again(whole: OpenRun) -> None:
    plan = _plan()
    changes = [
        _plan(views=("cmc",)),
        _plan(settings=msgspec.structs.replace(plan.settings, hops=2)),
        _plan(prompt=msgspec.structs.replace(plan.prompt, system="other")),
    ]
    for changed in changes:
        for asked in (changed, plan):
            whole.create(asked)
            assert freeze_step(whole, len, "characters")
    assert freeze_step(whole, len, "tokens of some tokenizer")


def test_steps_refuse_to_run_before_the_ones_they_need(tmp_path: Path) -> None:
    run, plan = OpenRun(tmp_path / "run"), _plan()
    run.create(plan)
    with pytest.raises(StateError, match="coldread load"):
        extract_step(run)
    load_step(run, None)
    with pytest.raises(StateError, match="coldread extract"):
        freeze_step(run, len, "characters")
