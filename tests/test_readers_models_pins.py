"""Pins: exactly one immutable thing, hashed."""

from pathlib import Path

import pytest
from tiny import coldread, write_experiment, write_rows

from offline.config.models import Pin, Reader
from offline.config.yaml import configs_folder, load_yaml
from offline.errors import ConfigurationError, ModelError
from readers.models.pins import check_pin, fingerprint, identify, is_model_file, locate

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


def test_a_manifest_and_what_lies_in_a_folder_below_are_no_model_files() -> None:
    assert is_model_file("config.json")
    assert not is_model_file("manifest.json")
    assert not is_model_file("onnx/config.json")
    assert not is_model_file("pytorch_model.bin")


def test_an_unpinned_repository_is_refused_with_the_command_that_pins_it() -> None:
    with pytest.raises(ModelError, match=r"`coldread pin Qwen/Qwen3\.5-9B --write FILE`"):
        check_pin(reader(repository="Qwen/Qwen3.5-9B"))


@pytest.mark.parametrize("digest", ["", "abc", "A" * 64, "0" * 63, "0" * 65])
def test_a_fingerprint_that_is_no_sha256_is_refused(digest: str) -> None:
    with pytest.raises(ModelError, match="no sha256"):
        check_pin(reader(folder="a", fingerprint=digest))


def test_a_model_of_the_expected_fingerprint_is_accepted_and_any_other_refused_with_both(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    expected = fingerprint(tmp_path)
    pinned = reader(folder=str(tmp_path), fingerprint=expected.fingerprint)
    assert identify(pinned, tmp_path) == expected
    (tmp_path / "config.json").write_text("{ }")
    with pytest.raises(ModelError, match=f"{fingerprint(tmp_path).fingerprint}.*{expected.fingerprint}.*coldread pin"):
        identify(pinned, tmp_path)


@pytest.mark.parametrize("right", [True, False])
def test_a_run_reads_only_with_the_model_of_the_pinned_fingerprint(tiny_model: Path, tmp_path: Path, right: bool) -> None:
    digest = fingerprint(tiny_model).fingerprint if right else "0" * 64
    pinned = {"name": "tiny", "engine": "digest", "model": {"folder": str(tiny_model), "fingerprint": digest}}
    experiment = write_experiment(tmp_path, tiny_model, readers=[{"use": {**pinned, "output_cap": 2}}])
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run")]
    ended = coldread(*command, code=0 if right else ModelError.exit_code)
    if not right:
        assert "0" * 64 in ended.stderr
        assert fingerprint(tiny_model).fingerprint in ended.stderr
        assert not (tmp_path / "run" / "reads" / "tiny" / "requests").exists()


SHIPPED = sorted((configs_folder() / "readers").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_reader_is_named_after_its_file_opens_with_a_comment_and_is_pinned(path: Path) -> None:
    shipped = load_yaml(path, Reader)
    assert shipped.name == path.stem
    assert path.read_text().startswith("# ")
    if shipped.name == "qwen3.5-9b":
        with pytest.raises(ModelError, match=r"`coldread pin Qwen/Qwen3\.5-9B --write FILE`"):
            check_pin(shipped)
    else:
        check_pin(shipped)


@pytest.mark.parametrize(
    ("name", "revision"),
    [
        ("qwen3.5-4b", COMMIT),
        ("qwen3.5-4b-paper", COMMIT),
        ("llama-3.1-8b", "0e9e39f249a16976918f6564b8830bc894c89659"),
    ],
)
def test_the_papers_readers_are_pinned_to_its_commits(name: str, revision: str) -> None:
    # Spec, section 7.
    assert load_yaml(configs_folder() / "readers" / f"{name}.yaml", Reader).model.revision == revision
