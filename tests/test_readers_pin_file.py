"""A pin written into a reader file: comments stay, nothing else changes, and what cannot be edited is left alone."""

from pathlib import Path

import msgspec
import pytest

from offline.config.models import Pin, Reader
from offline.config.yaml import load_yaml, parse_yaml
from offline.errors import ConfigurationError
from readers.pin_file import reader_that_names, write_pin

COMMIT, SHA = "8" * 39 + "f", "9" * 63 + "f"
PIN = Pin(repository="lab/tiny", revision=COMMIT, fingerprint=SHA)
HEAD = "# a reader\nname: r\nengine: transformers\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("model: {repository: lab/tiny}\n", f"model: {{repository: lab/tiny, revision: {COMMIT}, fingerprint: {SHA}}}\n"),
        (
            "model: {revision: main, repository: lab/tiny} # why\n",
            f"model: {{revision: {COMMIT}, repository: lab/tiny, fingerprint: {SHA}}} # why\n",
        ),
        (
            "model:\n    # the model\n    repository: lab/tiny # theirs\n\n# how\ndtype: float16\n",
            f"model:\n    # the model\n    repository: lab/tiny # theirs\n    revision: {COMMIT}\n    fingerprint: {SHA}\n\n"
            "# how\ndtype: float16\n",
        ),
        (
            "model:\n  fingerprint: 'aa' # old\n  repository: lab/tiny\n  revision: # none yet",
            f"model:\n  fingerprint: {SHA} # old\n  repository: lab/tiny\n  revision: {COMMIT} # none yet",
        ),
        (
            "model:\r\n  repository: lab/tiny\r\ndtype: float16\r\n",
            f"model:\r\n  repository: lab/tiny\r\n  revision: {COMMIT}\r\n  fingerprint: {SHA}\r\ndtype: float16\r\n",
        ),
        (
            "model: {\n  repository: lab/tiny, # theirs\n  revision: 'main'  # moves\n}\n",
            f"model: {{\n  repository: lab/tiny, # theirs\n  revision: {COMMIT}, fingerprint: {SHA}  # moves\n}}\n",
        ),
    ],
    ids=["flow", "flow, replaced", "block", "block, replaced", "other line ends", "flow over lines"],
)
def test_a_pin_is_filled_in_and_nothing_else_is_touched(tmp_path: Path, written: str, expected: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes((HEAD + written).encode())
    before = load_yaml(path, Reader)
    write_pin(path, PIN)
    assert path.read_bytes() == (HEAD + expected).encode()
    assert load_yaml(path, Reader) == msgspec.structs.replace(before, model=PIN)
    # And again: what is there is replaced by itself.
    write_pin(path, PIN)
    assert path.read_bytes() == (HEAD + expected).encode()
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]


def by_hand(path: Path, pin: Pin) -> str:
    """The line that the error asks to be put in; the file must be as it was."""
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="by hand: model: ") as caught:
        write_pin(path, pin)
    assert path.read_bytes() == before
    return str(caught.value).partition("by hand: ")[2]


@pytest.mark.parametrize(
    ("written", "pin"),
    [
        ("model:\n  repository: >-\n    lab/tiny\ndtype: float32\n", PIN),
        ("model: {repository: &one lab/tiny, revision: *one}\n", PIN),
        # All digits: unquoted, the edited file would hold a number.
        ("model: {repository: lab/tiny}\n", msgspec.structs.replace(PIN, revision="8" * 40)),
    ],
    ids=["a text over lines", "a reference", "a number"],
)
def test_what_cannot_be_edited_is_left_alone_and_the_error_gives_a_line_that_works(
    tmp_path: Path, written: str, pin: Pin
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + written)
    assert parse_yaml(f"{HEAD}{by_hand(path, pin)}\n", Reader, "by hand").model == pin


@pytest.mark.parametrize(
    "written",
    ["model: {repository: lab/tiny,}\n", "model: {? repository\n : lab/tiny\n }\n", "model: &m\n  repository: lab/tiny\n"],
)
def test_unusual_forms_that_can_be_edited_are(tmp_path: Path, written: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + written)
    write_pin(path, PIN)
    assert load_yaml(path, Reader) == Reader(name="r", engine="transformers", model=PIN)


def test_a_local_folders_file_gets_the_fingerprint_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + "model: {folder: model}\n")
    write_pin(path, Pin(folder=str(tmp_path / "model"), fingerprint=SHA))
    assert load_yaml(path, Reader).model == Pin(folder="model", fingerprint=SHA)


@pytest.mark.parametrize("model", ["{repository: lab/other}", "{folder: elsewhere}", "{embedded: smollm2-135m-instruct}"])
def test_a_file_of_another_model_is_refused(tmp_path: Path, model: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + f"model: {model}\n")
    with pytest.raises(ConfigurationError, match="not lab/tiny"):
        write_pin(path, PIN)
    with pytest.raises(ConfigurationError, match="not lab/tiny"):
        reader_that_names("lab/tiny", path)
    assert path.read_text() == HEAD + f"model: {model}\n"


def test_a_linked_reader_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(HEAD + "model: {repository: lab/tiny}\n")
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    write_pin(tmp_path / "link.yaml", PIN)
    assert (tmp_path / "link.yaml").is_symlink()
    assert load_yaml(tmp_path / "real.yaml", Reader).model == PIN
