"""Retrieval models: their vectors and scores equal plain transformers', and what is not such a model is refused."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import alive, children

from offline.errors import ConfigurationError, EngineError
from readers.encoders.process import model_process


class Unsendable(Exception):
    """As some of a library's errors: what pickle keeps of it does not make it again."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class Stand:
    """A model in miniature, for the process around it."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def say(self, word: str) -> tuple[str, int]:
        print("a library prints")
        return self.answer + word, os.getpid()

    def fail(self, kind: str) -> None:
        if kind == "unsendable":
            raise Unsendable("two", "words")
        if kind == "memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate")
        if kind == "ours":
            raise ConfigurationError("ours, as it is")
        os._exit(9)


def test_a_models_process_answers_and_prints_nothing_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with model_process(Stand, "hello ", whose="encoder 'e'") as call:
        said, process = call("say", "world")
    assert said == "hello world"
    assert process != os.getpid()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "a library prints" in captured.err


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("unsendable", EngineError, "encoder 'e': Unsendable: two words"),
        ("memory", EngineError, r"encoder 'e': RuntimeError: CUDA out of memory.*smaller batch_size in its configuration"),
        ("ours", ConfigurationError, "ours, as it is"),
        ("killed", EngineError, "encoder 'e': its process was killed.*the same command resumes"),
    ],
)
def test_whatever_goes_wrong_in_a_models_process_is_one_error_that_says_what(
    kind: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words), model_process(Stand, "", whose="encoder 'e'") as call:
        call("fail", kind)


WAITS = """
from test_readers_encoders import Stand, model_process
if __name__ == "__main__":
    with model_process(Stand, "", whose="encoder 'e'") as call:
        call("say", "")
        input()
"""


@pytest.mark.parametrize("seconds", [0, 0.03, 0.06, 1])
def test_a_models_process_ends_with_its_parent_even_if_that_is_killed_before_the_process_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    with subprocess.Popen([sys.executable, "-P", str(tmp_path / "waits.py")], stdin=subprocess.PIPE) as parent:
        # The other one is multiprocessing's tracker of resources.
        while len(started := children(parent.pid)) < 2 and parent.poll() is None:
            time.sleep(0.002)
        time.sleep(seconds)
        parent.kill()
    assert len(started) == 2
    assert not any(map(alive, started))
