"""Reader processes: time limits, nothing left behind, one reader's end is not another's, and batches shared by several."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import ANSWER, alive, coldread, frozen_run, their_reader, write_experiment, write_rows

from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, EngineError
from readers.process.parent import Process, _devices
from readers.records import Model, Request, Settings
from readers.requests import Requests, batches_of

CHILD = "Path(self.options['target']).write_text(str(subprocess.Popen(['sleep', '600']).pid))"


@pytest.mark.parametrize(
    ("body", "more", "limits", "words"),
    [
        (
            ANSWER,
            f"def prepare(self):\n    {CHILD}\n    time.sleep(600)",
            {"start_seconds": 4},
            ("load its model", "start_seconds"),
        ),
        (f"{CHILD}\ntime.sleep(600)", "", {"batch_seconds": 1}, ("answer a batch", "batch_seconds")),
        (f"{CHILD}\nos.kill(os.getpid(), 19)", "", {"batch_seconds": 1}, ("answer a batch", "batch_seconds")),
    ],
    ids=["loading", "reading", "stopped"],
)
def test_an_engine_that_hangs_is_killed_with_all_it_started(
    tiny_model: Path,
    tmp_path: Path,
    plugin: Callable[..., Path],
    body: str,
    more: str,
    limits: dict[str, int],
    words: tuple[str],
) -> None:
    plugin(body, more)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path / "pid", **limits))
    began = time.monotonic()
    message = coldread("read", str(run), code=8).stderr
    assert time.monotonic() - began < 60
    assert all(word in message for word in (*words, "`coldread read` resumes"))
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_hang_in_the_middle_keeps_what_was_finished_and_resumes(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    hangs = "stop = Path(self.options['target'])\nif stop.exists():\n    time.sleep(600)\nif len(batch) == 3:\n    stop.touch()"
    plugin(f"{hangs}\n{ANSWER}")
    reader = their_reader(tiny_model, tmp_path / "stop", batch_size=3, batch_seconds=2, probe=0)
    run = frozen_run(tmp_path, tiny_model, readers=reader)
    coldread("read", str(run), code=8)
    kept = (run / "reads/tiny/journal.jsonl").read_text()
    assert kept.count("\n") == 1
    engine = tmp_path / "site" / "theirs_engine.py"
    engine.write_text(engine.read_text().replace("time.sleep(600)", "pass"))
    coldread("read", str(run))
    coldread("score", str(run))
    coldread("replay", str(run))


@pytest.mark.parametrize("ending", ["sleep 0.3; exit 9", "exit 9", "exec sleep 600"])
def test_a_message_larger_than_a_pipe_to_a_process_that_does_not_read_is_one_error(ending: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with tempfile.TemporaryFile() as errors, subprocess.Popen(["sh", "-c", ending], start_new_session=True, **pipes) as shell:
        process = Process(shell, errors, Reader(name="r", engine="e", model=Pin(), batch_seconds=2))
        with pytest.raises(EngineError, match="in time and was killed" if "600" in ending else "exit code 9"):
            process.generate([[7] * 200_000])
        process.kill()
        assert shell.poll() is not None


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried to allocate", "std::bad_alloc: out of memory"])
def test_memory_that_runs_out_is_said_with_the_cure(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], words: str
) -> None:
    plugin(f"raise RuntimeError({words!r})")
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path))
    message = coldread("read", str(run), code=8).stderr
    assert words in message
    assert "batch_tokens" in message


def test_a_reader_that_fails_does_not_keep_the_others_from_reading(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin("if Path(self.options['target']).exists():\n    os._exit(7)\n" + ANSWER)
    (tmp_path / "broken").touch()
    plain = {"engine": "digest", "model": {"folder": str(tiny_model)}, "output_cap": 4}
    readers = [
        {"use": {**plain, "name": "first"}},
        *their_reader(tiny_model, tmp_path / "broken", name="second"),
        {"use": {**plain, "name": "absent", "model": {"folder": str(tmp_path / "no model")}}},
        {"use": {**plain, "name": "last", "output_cap": 5}},
    ]
    run = frozen_run(tmp_path, tiny_model, readers=readers)
    message = coldread("read", str(run), code=8).stderr
    assert "exit code 7" in message
    assert "2 of 4 readers" in message
    assert {path.parent.name for path in run.glob("reads/*/seal.json")} == {"first", "last"}
    assert "is not sealed" in coldread("score", str(run), code=10).stderr
    (tmp_path / "broken").unlink()
    (tmp_path / "no model").symlink_to(tiny_model)
    coldread("read", str(run))
    assert {path.parent.name for path in run.glob("reads/*/seal.json")} == {"first", "second", "absent", "last"}


def test_every_reader_has_a_process_of_its_own(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    note = "with open(self.options['target'], 'a') as out:\n    print(os.getpid(), file=out)"
    plugin(f"{note}\n{ANSWER}")
    readers = [r for name in ("one", "two") for r in their_reader(tiny_model, tmp_path / "pids", name=name)]
    coldread("read", str(frozen_run(tmp_path, tiny_model, readers=readers)))
    pids = (tmp_path / "pids").read_text().split()
    assert len(set(pids)) == 2
    assert str(os.getpid()) not in pids


def test_batches_shared_by_two_processes_give_the_bytes_of_one(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    # Each process is given a batch at once; every batch notes who read it.
    note = "time.sleep(0.01)\nwith open(self.options['target'], 'a') as out:\n    print(os.getpid(), file=out)"
    plugin(f"{note}\nreturn [Output(ids=(80, 81 + len(ids) % 9), finish_reason='length') for ids in batch]")
    sealed, readers = {}, {}
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        reader = their_reader(tiny_model, tmp_path / "pids", batch_size=2, data_parallel=count)
        run = frozen_run(folder, tiny_model, readers=reader)
        (tmp_path / "pids").unlink(missing_ok=True)
        coldread("read", str(run))
        sealed[count], readers[count] = run / "reads" / "tiny", set((tmp_path / "pids").read_text().split())
    assert [len(readers[count]) for count in (1, 2)] == [1, 2]
    for name in ("predictions.jsonl", "probes.jsonl", "requests/requests.jsonl"):
        assert (sealed[1] / name).read_bytes() == (sealed[2] / name).read_bytes()


def test_processes_that_do_not_run_alike_are_refused(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(ANSWER, "def environment(self):\n    return {'device': str(os.getpid())}")
    reader = their_reader(tiny_model, tmp_path, batch_size=2, data_parallel=2)
    assert "same kind of device" in coldread("read", str(frozen_run(tmp_path, tiny_model, readers=reader)), code=8).stderr


def test_a_mended_model_of_a_failed_reader_is_read_after_the_others_were_sealed(tiny_llama: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(tiny_llama, tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    readers = [
        {"use": {"name": "mended", "engine": "transformers", "model": {"folder": str(broken)}, "output_cap": 4}},
        {"use": {"name": "whole", "engine": "digest", "model": {"folder": str(tiny_llama)}}},
    ]
    run = frozen_run(tmp_path, tiny_llama, readers=readers)
    assert "cannot be loaded" in coldread("read", str(run), code=6).stderr
    assert (run / "reads/whole/seal.json").exists()
    shutil.copyfile(tiny_llama / "model.safetensors", broken / "model.safetensors")
    coldread("read", str(run))
    coldread("score", str(run))
    coldread("replay", str(run))


def test_what_an_engine_starts_cannot_take_its_messages(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    taken = "Path(self.options['target']).write_bytes(subprocess.run(['cat'], stdout=subprocess.PIPE, check=True).stdout)"
    plugin(f"{taken}\n{ANSWER}")
    reader = their_reader(tiny_model, tmp_path / "taken", batch_size=2, batch_seconds=20)
    coldread("read", str(frozen_run(tmp_path, tiny_model, readers=reader)))
    assert (tmp_path / "taken").read_bytes() == b""


@pytest.mark.parametrize("field", ["batch_tokens", "data_parallel", "start_seconds", "batch_seconds", "probe"])
def test_a_number_that_makes_no_sense_is_refused_before_anything_runs(tiny_model: Path, tmp_path: Path, field: str) -> None:
    reader = {"name": "tiny", "engine": "transformers", "model": {"folder": str(tiny_model)}, field: -1}
    experiment = write_experiment(tmp_path, tiny_model, readers=[{"use": reader}])
    assert field in coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), code=3).stderr
    reader[field] = 1
    experiment = write_experiment(tmp_path, tiny_model, readers=[{"use": reader}])
    expected = 3 if field == "probe" else 0
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--dry-run", code=expected)


def test_several_processes_share_out_the_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(name="r", engine="vllm", model=Pin(), data_parallel=2, options={"tensor_parallel_size": 2})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    assert [_devices(reader, number)["CUDA_VISIBLE_DEVICES"] for number in (0, 1)] == ["3,5", "6,7"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6")
    with pytest.raises(ConfigurationError, match="needs 4 GPUs"):
        _devices(reader, 1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert _devices(reader, 1)["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert _devices(Reader(name="r", engine="vllm", model=Pin()), 0) == {}


def planned(lengths: list[int], size: int, tokens: int | None) -> tuple[Requests, list[list[int]]]:
    """Requests of these lengths, and their batches."""
    reader = Reader(name="r", engine="e", model=Pin(), batch_size=size, **({} if tokens is None else {"batch_tokens": tokens}))
    settings = Settings(reader, Model("", ()), -1, 1_000, (1,), 0, "no switch", "")
    requests = tuple(
        Request(digest=f"{i:04}", offset=0, length=length, too_long=length > 90) for i, length in enumerate(lengths)
    )
    frozen = Requests(settings, requests, (), tuple((0,) * length for length in lengths))
    return frozen, batches_of(frozen)


@given(
    st.lists(st.integers(1, 100), max_size=40),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_every_request_is_in_one_batch_longest_first_within_size_and_tokens(
    lengths: list[int], size: int, tokens: int | None
) -> None:
    _, batches = planned(lengths, size, tokens)
    flat = [i for batch in batches for i in batch]
    assert sorted(flat) == [i for i, length in enumerate(lengths) if length <= 90]
    assert [lengths[i] for i in flat] == sorted((lengths[i] for i in flat), reverse=True)
    for batch in batches:
        assert 1 <= len(batch) <= size
        assert tokens is None or len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens


def test_batch_tokens_by_hand() -> None:
    # 50 x 2 = 100 fits; a third would make 150. 40 alone would take 20 x ... : 40, 20 -> 80; 10 -> 40 x 3 = 120 does not fit.
    lengths = [50, 20, 50, 40, 10]
    _, batches = planned(lengths, 8, 100)
    assert [[lengths[i] for i in batch] for batch in batches] == [[50, 50], [40, 20], [10]]


@pytest.mark.parametrize(("installed", "words"), [("99.1.0", "0.32 up to, not including"), ("0.31.2", "0.32 up to")])
def test_a_vllm_outside_the_known_versions_is_one_clear_error(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], installed: str, words: str
) -> None:
    site = plugin(ANSWER)
    (site / f"vllm-{installed}.dist-info").mkdir()
    (site / f"vllm-{installed}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {installed}\n")
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path, engine="vllm", options={}))
    message = coldread("read", str(run), code=3).stderr
    assert words in message
    assert installed in message


FAKE_VLLM = """
class LLM:
    def __init__(self, model, tokenizer):
        raise AssertionError("an unknown argument comes first")
"""
FAKE_PLATFORM = """
class current_platform:
    device_type = "cpu"
    is_cuda = staticmethod(lambda: False)
    is_cpu = staticmethod(lambda: True)
"""


def test_an_argument_that_a_vllm_no_longer_takes_is_one_error_with_its_version(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    site = plugin(ANSWER)
    (site / "vllm-0.32.7.dist-info").mkdir()
    (site / "vllm-0.32.7.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.7\n")
    (site / "vllm").mkdir()
    (site / "vllm" / "__init__.py").write_text(FAKE_VLLM)
    (site / "vllm" / "platforms.py").write_text(FAKE_PLATFORM)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path, engine="vllm", options={}))
    message = coldread("read", str(run), code=8).stderr
    assert "vLLM 0.32.7 does not take the arguments" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("vllm", {"tensor_paralel_size": 2}, "tensor_paralel_size"),
        ("vllm", {"tensor_parallel_size": "two"}, "Expected `int`"),
        ("transformers", {"cudnn": "no"}, "Expected `bool`"),
        ("recorded", {}, "run"),
    ],
)
def test_options_that_an_engine_does_not_know_are_refused_before_anything_runs(
    tiny_model: Path, tmp_path: Path, engine: str, options: dict[str, object], words: str
) -> None:
    reader = {"name": "tiny", "engine": engine, "model": {"folder": str(tiny_model)}, "options": options}
    experiment = write_experiment(tmp_path, tiny_model, readers=[{"use": reader}])
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run")]
    assert words in coldread(*command, code=3).stderr
    assert not (tmp_path / "run").exists()
