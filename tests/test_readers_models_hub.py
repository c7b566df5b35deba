"""The hub's real client against a small server: commits, what `coldread pin` prints, and every way to be refused."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakehub import FakeHub, Repository, commit_of, files_of
from tiny import CLOCK_TEMPLATE, STUCK_TEMPLATE, TEMPLATE, coldread, make_folder, start_coldread

from offline.config.models import Pin, Reader
from offline.config.yaml import load_yaml, parse_yaml
from offline.errors import ModelError
from offline.records import Message
from readers.describe import describe
from readers.models.hub import licence_of
from readers.models.pins import fingerprint
from readers.tokens.chat import ChatTokenizer

OLD, NEW = commit_of("old"), commit_of("new")
CHAT = [Message(role="user", content="hi")]


@dataclass(frozen=True)
class World:
    """A hub, and folders that hold what two commits of its model hold: same weights, another chat template."""

    hub: FakeHub
    old: Path
    new: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hub")
    old = make_folder(folder / "old")
    new = Path(shutil.copytree(old, folder / "new"))
    (new / "chat_template.jinja").write_text(TEMPLATE.replace("<|assistant|>", "<|assistant|>!"))
    hub = FakeHub()
    # Beside the model's own files: what makes it no other model, and a folder below it.
    more = {"README.md": b"hello", "pytorch_model.bin": b"pickled", "onnx/config.json": b"{}", ".gitattributes": b""}
    commits = {OLD: {**files_of(old), **more}, NEW: {**files_of(new), **more}}
    branches = {"main": NEW, "v1": OLD}
    hub.repositories = {
        "lab/tiny": Repository(commits, branches, card={"license": "other", "license_name": "lab-1"}),
        "lab/moving": Repository(commits, {"main": OLD}),
        "lab/gated-403": Repository(commits, branches, gated="manual", refusal=(403, "GatedRepo")),
        "lab/gated-401": Repository(commits, branches, gated="auto", refusal=(401, "GatedRepo")),
        "lab/gated-silent": Repository(commits, branches, gated="auto", refusal=(403, "")),
        "lab/pickled": Repository({OLD: {"config.json": b"{}", "pytorch_model.bin": b"pickled"}}, {"main": OLD}),
    }
    yield World(hub, old, new)
    hub.close()


def pin(world: World, home: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """What `coldread pin ... --json` prints, in a process of its own that takes the server for the hub."""
    process = start_coldread("pin", *arguments, "--json", environment=world.hub.environment(home))
    out, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    result: dict[str, Any] = json.loads(out)
    return result


# What a run does with a pinned repository, up to the token ids; the same exit codes as the command line's.
SCRIPT = """
import json, sys
from offline.errors import ColdreadError
from offline.config.models import Pin, Reader
from offline.records import Message
from readers.models.pins import identify, locate
from readers.tokens.chat import ChatTokenizer
reader = Reader(name="r", engine="transformers", model=Pin(repository=sys.argv[1], revision=sys.argv[2]))
try:
    folder = locate(reader)
except ColdreadError as error:
    print(error)
    sys.exit(error.exit_code)
ids = ChatTokenizer.of(reader, folder).encode([Message(role="user", content="hi")])
print(json.dumps({"fingerprint": identify(reader, folder).fingerprint, "ids": ids}))
"""


def locate_in_a_process(
    world: World, home: Path, repository: str, revision: str, **more: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, repository, revision],
        env={**world.hub.environment(home), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_pinned_commit_keeps_its_own_tokenizer_and_template_although_the_branch_moved_on(
    world: World, tmp_path: Path
) -> None:
    repository = world.hub.repositories["lab/moving"]
    before = pin(world, tmp_path, "lab/moving")
    repository.branches["main"] = NEW
    after = pin(world, tmp_path, "lab/moving")
    assert (before["model"]["revision"], after["model"]["revision"]) == (OLD, NEW)
    # What was pinned while main was old, read after it moved, in the very cache that has seen the new commit.
    for found, folder in ((before, world.old), (after, world.new)):
        done = locate_in_a_process(world, tmp_path, "lab/moving", found["model"]["revision"])
        assert done.returncode == 0, done.stderr
        read = json.loads(done.stdout)
        assert read["ids"] == ChatTokenizer(folder).encode(CHAT)
        assert read["fingerprint"] == found["model"]["fingerprint"] == fingerprint(folder).fingerprint
    assert ChatTokenizer(world.old).encode(CHAT) != ChatTokenizer(world.new).encode(CHAT)


def test_pin_resolves_main_to_its_newest_commit_without_downloading_the_weights(world: World, tmp_path: Path) -> None:
    world.hub.downloads.clear()
    found = pin(world, tmp_path, "lab/tiny")
    assert found["model"]["revision"] == NEW
    assert found["model"]["fingerprint"] == fingerprint(world.new).fingerprint
    weights = world.new / "model.safetensors"
    assert {
        "name": weights.name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "size": weights.stat().st_size,
    } in found["files"]
    assert found["weights"] == weights.stat().st_size
    assert sorted(set(world.hub.downloads)) == sorted(p.name for p in world.new.iterdir() if p != weights)
    assert (found["licence"], found["gated"]) == ("other (lab-1)", "none")
    assert (found["architecture"], found["dtype"], found["window"]) == ("LlamaForCausalLM", "float32", 4096)
    assert (found["thinking"], found["clock"], found["bos"], found["stop_ids"]) == ("no switch", False, 1, [1])
    assert found["findings"] == []
    assert parse_yaml(found["line"], dict, "line") == {"model": {k: v for k, v in found["model"].items() if v is not None}}


def test_what_pin_downloaded_is_never_taken_for_the_whole_model(world: World, tmp_path: Path) -> None:
    pin(world, tmp_path, "lab/tiny")
    done = locate_in_a_process(world, tmp_path, "lab/tiny", NEW, HF_HUB_OFFLINE="1")
    assert done.returncode == ModelError.exit_code
    assert "HF_HUB_OFFLINE" in done.stdout


def test_pin_takes_a_tag_and_writes_the_reader_file_with_its_comments(world: World, tmp_path: Path) -> None:
    path = tmp_path / "reader.yaml"
    path.write_text("# mine\nname: r\nengine: transformers\nmodel: {repository: lab/tiny}  # theirs\ndtype: float32\n")
    found = pin(world, tmp_path, "lab/tiny", "--revision", "v1", "--write", str(path))
    assert found["model"]["revision"] == OLD
    assert load_yaml(path, Reader).model == Pin(
        repository="lab/tiny", revision=OLD, fingerprint=fingerprint(world.old).fingerprint
    )
    assert path.read_text() == (
        f"# mine\nname: r\nengine: transformers\nmodel: {{repository: lab/tiny, revision: {OLD}, "
        f"fingerprint: {fingerprint(world.old).fingerprint}}}  # theirs\ndtype: float32\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lab/gated-403"], "ask for access at"),
        (["lab/gated-401"], "ask for access at"),
        (["lab/gated-silent"], "ask for access at"),
        (["lab/nothing"], "no such repository"),
        (["lab/tiny", "--revision", "v9"], "no such branch, tag or commit"),
        (["lab/pickled"], "pytorch_model.bin"),
        (["a/b/c"], "neither a folder"),
        (["./lab/tiny"], "is not there"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_model_error_with_a_cure(
    world: World, tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = pin(world, tmp_path, *arguments, code=ModelError.exit_code)
    assert said in result["error"]
    assert "\n" not in result["error"]


def test_a_run_on_a_gated_repository_is_refused_with_the_cure(world: World, tmp_path: Path) -> None:
    done = locate_in_a_process(world, tmp_path, "lab/gated-403", OLD)
    assert done.returncode == ModelError.exit_code
    assert "reader 'r': lab/gated-403" in done.stdout
    assert "ask for access at" in done.stdout


def test_a_hub_that_cannot_be_reached_is_one_model_error(world: World, tmp_path: Path) -> None:
    dead = FakeHub()
    dead.close()
    result = pin(World(dead, world.old, world.new), tmp_path, "lab/tiny", code=ModelError.exit_code)
    assert "check the network" in result["error"]


# Local folders


@pytest.fixture
def local(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.old, tmp_path / "a model, mine"))


def test_pin_prints_a_line_that_pins_a_local_folder(local: Path) -> None:
    printed = coldread("pin", str(local)).stdout
    line = printed.splitlines()[-1]
    reader = parse_yaml(f"name: r\nengine: transformers\n{line}\n", Reader, "printed")
    assert reader.model == Pin(folder=str(local), fingerprint=fingerprint(local).fingerprint)


def test_a_relative_folder_is_pinned_by_its_whole_path(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(local.parent)
    assert describe(local.name).model.folder == str(local)


@pytest.mark.parametrize(
    ("file", "content", "licence"),
    [
        ("README.md", "---\nlicense: apache-2.0\n---\nhello", "apache-2.0"),
        ("README.md", "---\nlicense: [\n---\n", ""),
        ("README.md", "no front matter", ""),
        ("LICENSE.txt", "words", "LICENSE.txt"),
    ],
)
def test_a_local_folders_licence_is_its_cards_or_the_name_of_its_file(
    local: Path, file: str, content: str, licence: str
) -> None:
    (local / file).write_text(content)
    assert describe(str(local)).licence == licence


def test_a_card_without_a_licence_gives_none() -> None:
    assert licence_of({}) == ""
    assert licence_of({"license": "other", "license_name": "llama3.1"}) == "other (llama3.1)"


def test_a_template_that_ignores_the_switch_is_a_finding_of_pin_and_no_error(local: Path) -> None:
    (local / "chat_template.jinja").write_text(STUCK_TEMPLATE)
    found = describe(str(local))
    assert found.thinking == "ignored"
    assert "ignores enable_thinking" in " ".join(found.findings)
    assert "ignores enable_thinking" in coldread("pin", str(local)).stdout


def test_a_template_that_asks_the_clock_is_a_finding_of_pin(local: Path) -> None:
    (local / "chat_template.jinja").write_text(CLOCK_TEMPLATE)
    found = describe(str(local))
    assert found.clock is True
    assert "date: YYYY-MM-DD" in " ".join(found.findings)


def test_a_template_that_doubles_the_bos_token_is_a_finding_of_pin(local: Path) -> None:
    (local / "chat_template.jinja").write_text("{{ bos_token }}" + TEMPLATE)
    found = describe(str(local))
    assert found.bos == 2
    assert "2 beginning-of-sequence tokens" in " ".join(found.findings)


def test_a_base_models_missing_template_is_a_finding_of_pin(local: Path) -> None:
    (local / "chat_template.jinja").unlink()
    found = describe(str(local))
    assert (found.thinking, found.clock, found.bos) == (None, None, None)
    assert "no chat template" in found.findings[0]
    assert "not tried" in coldread("pin", str(local)).stdout


def test_a_folder_of_pickled_weights_cannot_be_pinned(local: Path) -> None:
    (local / "model.safetensors").rename(local / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \.safetensors weights, only pytorch_model\.bin"):
        describe(str(local))


def test_a_revision_of_a_local_folder_is_refused(local: Path) -> None:
    assert "leave it out" in coldread("pin", str(local), "--revision", "v2", code=3).stderr
