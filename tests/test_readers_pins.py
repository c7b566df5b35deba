"""Pins: exactly one immutable thing, hashed."""

from pathlib import Path

import pytest

from offline.errors import ConfigurationError, ModelError
from offline.experiment import Pin, Reader
from readers.pins import check_pin, fingerprint, locate

COMMIT = "851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a"


def reader(**pin: str) -> Reader:
    return Reader(name="r", engine="transformers", model=Pin(**pin))


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:12], COMMIT.upper(), COMMIT + "0", ""])
def test_a_revision_that_is_no_commit_is_refused(revision: str) -> None:
    with pytest.raises(ModelError, match="40-digit commit"):
        check_pin(reader(repository="Qwen/Qwen3.5-4B", revision=revision))


def test_a_repository_without_revision_is_refused() -> None:
    with pytest.raises(ModelError, match="not pinned"):
        check_pin(reader(repository="Qwen/Qwen3.5-4B"))


def test_a_commit_is_accepted() -> None:
    check_pin(reader(repository="Qwen/Qwen3.5-4B", revision=COMMIT))


@pytest.mark.parametrize("pin", [{}, {"folder": "a", "embedded": "b"}, {"folder": "a", "revision": COMMIT}])
def test_a_pin_names_exactly_one_thing(pin: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        check_pin(reader(**pin))


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not there"):
        locate(reader(folder=str(tmp_path / "nowhere")))


def test_a_missing_embedded_model_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDREAD_MODELS", str(tmp_path))
    with pytest.raises(ModelError, match=r"python -m readers\.embedded"):
        locate(reader(embedded="smollm2-135m-instruct"))


def test_an_unreachable_hub_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="could not be fetched"):
        locate(reader(repository="nobody/nothing", revision=COMMIT))


def test_any_changed_byte_of_a_model_file_changes_the_fingerprint(tmp_path: Path) -> None:
    names = (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "merges.txt",
    )
    for name in names:
        (tmp_path / name).write_text(f"content of {name}")
    before = fingerprint(tmp_path).fingerprint
    for name in names:
        content = (tmp_path / name).read_text()
        (tmp_path / name).write_text(content.replace("content", "contenT"))
        assert fingerprint(tmp_path).fingerprint != before
        (tmp_path / name).write_text(content)
    assert fingerprint(tmp_path).fingerprint == before


def test_a_readme_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = fingerprint(tmp_path).fingerprint
    (tmp_path / "README.md").write_text("hello")
    assert fingerprint(tmp_path).fingerprint == before


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        fingerprint(tmp_path)
