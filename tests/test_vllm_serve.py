"""The OpenAI-compatible engine against a real vLLM server on this machine, which serves the embedded model in float32."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import coldread, start_coldread

from offline.canonical import encode, read_lines
from offline.config.models import Pin, Reader
from offline.records import Message
from readers.embedded import embedded_folder
from readers.engines import EngineStart
from readers.engines.openai import OpenAIEngine
from readers.journal import Journal
from readers.models.pins import identify, locate
from readers.models.served import Tokenizer
from readers.records import Decoding, Prediction, Scheduled
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer

pytestmark = pytest.mark.vllm

MODEL = "smollm2-135m-instruct"
SERVED = "smollm2"
# Not `vllm serve`: the CPU wheel is a distribution of another name, which that script looks up by `vllm`.
SERVE = [
    *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", SERVED, "--host", "127.0.0.1"),
    *("--dtype", "float32", "--enforce-eager", "--max-model-len", "2048", "--max-num-batched-tokens", "512"),
    *("--generation-config", "vllm"),
]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A vLLM server: a group of processes of its own, all of which die together."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.log = Path(tempfile.mkdtemp(prefix="coldread-vllm-")) / "log"
        environment = {
            **os.environ,
            **{"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"},
            # So that the prefix cache can be reset.
            "VLLM_SERVER_DEV_MODE": "1",
        }
        command = [*SERVE, "--model", str(embedded_folder(MODEL)), "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.5)
        said = self.log.read_text(errors="replace")[-3000:]
        self.kill()
        pytest.fail(f"vLLM did not start:\n{said}")

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.log.parent, ignore_errors=True)


class Place:
    """Where the module's one server runs now; `move` kills it and starts another."""

    def __init__(self) -> None:
        self.server = Server()

    def move(self) -> None:
        self.server.kill()
        self.server = Server()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/v1"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    running = Place()
    yield running
    running.server.kill()


@pytest.fixture(autouse=True)
def _environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", place.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def reader(name: str, engine: str, **changes: Any) -> dict[str, object]:
    """One reader of the embedded model, batches of two, not probed unless asked."""
    pin = {"embedded": MODEL}
    return {"use": {"name": name, "engine": engine, "model": pin, "batch_size": 2, "output_cap": 24, "probe": 0, **changes}}


BY_IDS = reader("ids", "openai", options={"model": SERVED, "retries": 0})
PROBED = reader("ids", "openai", probe=2, options={"model": SERVED, "retries": 0})
BY_MESSAGES = reader("messages", "openai", model={"served": SERVED}, options={"retries": 0})
HERE = reader("here", "transformers")


def frozen(folder: Path, readers: list[dict[str, object]], questions: int) -> Path:
    """A run of cmc packets over a synthetic stream, not yet read."""
    experiment = {
        "name": "vllm",
        "data": {"kind": "synthetic", "statements": [60], "questions": questions},
        "frontend": {"kind": "grammar", "grammar": "synthetic"},
        "views": ["cmc"],
        "readers": readers,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    coldread("run", str(path), "--out", str(folder / "run"), "--until", "freeze")
    return folder / "run"


def predictions(run: Path, name: str) -> dict[str, Prediction]:
    """A reader's predictions by question."""
    base = run / "reads" / name
    made = {p.request: p for p in read_lines(base / "predictions.jsonl", Prediction)}
    return {s.question: made[s.request] for s in read_lines(base / "requests" / "schedule.jsonl", Scheduled)}


def test_a_server_gives_the_ids_and_texts_of_the_transformers_engine(tmp_path: Path) -> None:
    run = frozen(tmp_path, [HERE, PROBED, BY_MESSAGES], 6)
    coldread("read", str(run))
    here, by_ids, by_messages = (predictions(run, name) for name in ("here", "ids", "messages"))
    assert len(here) == 6
    assert {p.finish_reason for p in here.values()} == {"stop", "length"}, "the cases show both endings"
    for question, expected in here.items():
        assert (by_ids[question].output_ids, by_ids[question].finish_reason) == (expected.output_ids, expected.finish_reason)
        assert (by_messages[question].text, by_messages[question].finish_reason) == (expected.text, expected.finish_reason)
    seal = json.loads((run / "reads" / "ids" / "seal.json").read_text())
    (environment,) = seal["environments"]
    assert (environment["input"], environment["max_model_len"]) == ("token ids", "2048")
    assert environment["server"].startswith("vllm ")
    assert not any("/" in value for value in environment.values())
    # The server keeps a prefix cache, and in its development mode empties it.
    assert {"batch", "shuffled", "warm", "run"} == set(seal["certificate"]["matched"])
    coldread("score", str(run))
    coldread("replay", str(run))


def asked() -> tuple[OpenAIEngine, Tokenizer, Path]:
    """An engine that sends token ids of the embedded model, its tokenizer, and where both come from."""
    read_by = Reader(name="r", engine="openai", model=Pin(embedded=MODEL), output_cap=8, options={"model": SERVED})
    folder = locate(read_by)
    tokenizer = ChatTokenizer.of(read_by, folder)
    settings = make_settings(read_by, identify(read_by, folder), tokenizer)
    return OpenAIEngine(EngineStart(settings=settings, model_folder=str(folder), longest=64)), tokenizer, folder


def served_by(place: Place) -> dict[str, str]:
    """What the server says of its process and where its model lies."""
    said = asked()[0].served_by()
    assert said is not None
    assert (said["address"], said["model"], said["root"]) == (place.url, SERVED, str(embedded_folder(MODEL)))
    assert 0 < time.time() - float(said["started"]) < 3600
    return said


def test_a_server_killed_in_the_middle_costs_nothing_that_was_finished(place: Place, tmp_path: Path, monkeypatch: Any) -> None:
    """And the server that takes its place says that it is another process."""
    said = served_by(place)
    time.sleep(1.1)  # vLLM's list names the second in which it is asked
    assert served_by(place) == said
    run = frozen(tmp_path, [BY_IDS], 16)
    undisturbed = Path(shutil.copytree(run, tmp_path / "undisturbed"))
    coldread("read", str(undisturbed))
    process = start_coldread("read", str(run))
    journal = run / "reads" / "ids" / "journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    old = place.url
    place.server.kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 8, errors
    assert "finished batches are kept" in errors
    assert "Traceback" not in errors
    kept = journal.read_bytes()
    finished = list(Journal(journal).entries)
    assert 2 <= len(finished) < 8
    place.move()
    assert place.url != old
    monkeypatch.setenv("OPENAI_BASE_URL", place.url)
    assert float(served_by(place)["started"]) > float(said["started"])
    again = start_coldread("read", str(run))
    while again.poll() is None:
        with suppress(FileNotFoundError):
            now = journal.read_bytes()
            assert now.startswith(kept), "a finished batch was lost or changed"
        time.sleep(0.02)
    assert again.returncode == 0, again.communicate()
    for name in ("predictions.jsonl", "seal.json"):
        assert (run / "reads" / "ids" / name).read_bytes() == (undisturbed / "reads" / "ids" / name).read_bytes()
    made = [p.request for p in read_lines(run / "reads" / "ids" / "predictions.jsonl", Prediction)]
    assert len(made) == len(set(made)) == 16
    coldread("score", str(run))
    coldread("replay", str(run))


def test_the_server_holds_an_answer_to_a_schema_and_ends_it_with_a_stop_id() -> None:
    engine, tokenizer, _ = asked()
    ids = tokenizer.encode((Message(role="user", content="Name a river."),))
    schema = {"items": False, "minItems": 2, "prefixItems": [{"const": 41}, {"enum": ["up", "down"]}], "type": "array"}
    (output,) = engine.complete([ids], Decoding(output_cap=40, schema=encode(schema).decode()))
    assert json.loads(tokenizer.decode(output.ids)) in ([41, "up"], [41, "down"])
    assert (output.finish_reason, output.ids[-1] in tokenizer.stop_ids()) == ("stop", True)
    (free,) = engine.complete([ids], Decoding(output_cap=8))
    assert [free] == engine.generate([ids])


def test_the_server_gives_logprobs_and_forgets_its_prefix_cache() -> None:
    import math

    import torch
    from transformers import AutoModelForCausalLM

    engine, tokenizer, folder = asked()
    ids = tokenizer.encode((Message(role="system", content="Be brief."), Message(role="user", content="Name a river.")))
    tokens = [0, 504, 11, 40_000]
    found = engine.logprobs(ids, tokens)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], dim=-1)[tokens].tolist()
    assert found is not None
    assert all(math.isclose(a, b, abs_tol=1e-3) for a, b in zip(found, expected, strict=True)), (found, expected)
    before = engine.generate([ids])
    engine.forget()
    assert engine.generate([ids]) == before


def test_a_window_of_the_server_that_is_too_small_is_said_before_reading(tmp_path: Path) -> None:
    run = frozen(tmp_path, [reader("ids", "openai", output_cap=2000, options={"model": SERVED})], 4)
    assert "--max-model-len" in coldread("read", str(run), code=3).stderr
