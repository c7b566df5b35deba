"""Pins of embedding models and rerankers: which files count, and what `coldread pin` makes of them."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakehub import FakeHub, Repository, commit_of, files_of
from tiny import coldread, start_coldread

from offline.config.models import Encoder, Pin, Reranker
from offline.config.yaml import configs_folder, load_yaml
from offline.errors import ConfigurationError, ModelError
from readers.models.pins import check_pin, identify
from readers.pin_file import reader_that_names

COMMIT = commit_of("one")
FILES = {
    "config.json": '{"architectures": ["XLMRobertaModel"]}',
    "modules.json": '[{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]',
    "1_Pooling/config.json": '{"pooling_mode_cls_token": true}',
    "sentence_bert_config.json": '{"max_seq_length": 8192}',
    "tokenizer.json": "{}",
    "onnx/config.json": "another program's",
}


def folder_of(folder: Path, **more: str) -> Path:
    """A model folder in sentence-transformers' form, with these weights."""
    for name, content in {**FILES, **more}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.fixture
def safe(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "safe", **{"model.safetensors": "weights", "pytorch_model.bin": "the same, pickled"})


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "pickled", **{"pytorch_model.bin": "weights"})


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    yield hub
    hub.close()


def test_a_pin_covers_the_module_folders_and_no_other_folder(safe: Path) -> None:
    model = identify(Encoder(name="e", model=Pin(folder=str(safe))), safe)
    covered = {"config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json"}
    assert {file.name for file in model.files} == {*covered, "model.safetensors"}


def test_pickled_weights_count_only_where_the_encoder_asks_for_them(pickled: Path) -> None:
    asked = Encoder(name="e", model=Pin(folder=str(pickled)), weights="pytorch_model.bin")
    assert "pytorch_model.bin" in {file.name for file in identify(asked, pickled).files}


@pytest.mark.parametrize(("which", "weights"), [("safe", "safetensors"), ("pickled", "pytorch_model.bin")])
def test_pin_prints_the_fingerprint_that_an_encoder_of_the_folder_has(
    which: str, weights: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(which)
    found = json.loads(coldread("pin", str(folder), "--json").stdout)
    encoder = Encoder(name="e", model=Pin(folder=str(folder)), weights=weights)  # type: ignore[arg-type]
    assert found["model"]["fingerprint"] == identify(encoder, folder).fingerprint
    assert (found["window"], found["architecture"]) == (8192, "XLMRobertaModel")
    assert any("weights: pytorch_model.bin" in finding for finding in found["findings"]) == (which == "pickled")


def test_pin_of_a_repository_fetches_no_weights_and_gives_the_folders_fingerprint(
    hub: FakeHub, pickled: Path, tmp_path: Path
) -> None:
    hub.repositories["lab/encoder"] = Repository({COMMIT: files_of(pickled)}, {"main": COMMIT})
    process = start_coldread("pin", "lab/encoder", "--json", environment=hub.environment(tmp_path / "home"))
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = json.loads(out)
    assert found["model"]["revision"] == COMMIT
    encoder = Encoder(name="e", model=Pin(folder=str(pickled)), weights="pytorch_model.bin")
    assert found["model"]["fingerprint"] == identify(encoder, pickled).fingerprint
    assert "pytorch_model.bin" not in hub.downloads
    assert "onnx/config.json" not in hub.downloads


@pytest.mark.parametrize("more", ["batch_size: 8 # of a small GPU\n", 'instruction: "Find what answers"\n'])
def test_pin_is_written_into_an_encoders_or_a_rerankers_file(more: str, safe: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"# Mine.\nname: mine\nmodel: {{folder: {safe}}}\n{more}")
    coldread("pin", str(safe), "--write", str(path))
    kind: type[Encoder] | type[Reranker] = Reranker if "instruction" in more else Encoder
    written = load_yaml(path, kind)
    assert written.model.fingerprint == identify(written, safe).fingerprint
    assert path.read_text().startswith("# Mine.")
    assert more in path.read_text()


FILED: list[tuple[str, dict[str, str]]] = [
    # An encoder of which the file says how it pools: without modules.json the folder of a module counts all the same.
    ("pooling: cls\n", {"model.safetensors": "w", "1_Pooling/config.json": "{}"}),
    # Old checkpoints without safetensors, which the file allows.
    ("pooling: mean\nweights: pytorch_model.bin\n", {"pytorch_model.bin": "w"}),
    ("instruction: Find.\nweights: pytorch_model.bin\n", {"pytorch_model.bin": "w"}),
    # Both kinds of weights: the file decides which are read, so both count.
    ("weights: pytorch_model.bin\n", {**FILES, "pytorch_model.bin": "w", "model.safetensors": "w"}),
    # A reader's folder that is sentence-transformers' too.
    ("engine: transformers\n", {**FILES, "model.safetensors": "w"}),
]


@pytest.mark.parametrize(("more", "files"), FILED)
def test_the_pin_in_a_file_covers_what_the_file_makes_of_the_folder(more: str, files: dict[str, str], tmp_path: Path) -> None:
    folder, path = tmp_path / "model", tmp_path / "mine.yaml"
    for name, content in {"config.json": "{}", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    path.write_text(f"name: mine\nmodel: {{folder: {folder}}}\n{more}")
    coldread("pin", str(folder), "--write", str(path))
    written = reader_that_names(str(folder), path)
    assert written.model.fingerprint == identify(written, folder).fingerprint


def test_a_retrieval_models_pin_gives_no_advice_to_readers(tiny_cross_encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nmodel: {{folder: {tiny_cross_encoder}}}\n")
    found = json.loads(coldread("pin", str(tiny_cross_encoder), "--write", str(path), "--json").stdout)
    assert found["findings"] == []


def test_a_served_encoder_and_an_unpinned_one_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"encoder 'e': only a reader can be a served model"):
        check_pin(Encoder(name="e", model=Pin(served="m")))
    with pytest.raises(ModelError, match=r"reranker 'r': a/b at revision 'main' is not pinned"):
        check_pin(Reranker(name="r", model=Pin(repository="a/b", revision="main")))


SHIPPED = [
    (kind, path)
    for kind, folder in ((Encoder, "encoders"), (Reranker, "rerankers"))
    for path in sorted((configs_folder() / folder).glob("*.yaml"))
]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "stem", value.__class__.__name__))
def test_every_shipped_model_of_retrieval_is_named_after_its_file_and_pinned(
    kind: type[Encoder] | type[Reranker], path: Path
) -> None:
    shipped = load_yaml(path, kind)
    assert shipped.name == path.stem
    assert path.read_text().startswith("# ")
    if shipped.name == "qwen3-reranker-4b":
        with pytest.raises(ModelError, match=shlex.quote(r"coldread pin Qwen/Qwen3-Reranker-4B --write FILE").strip("'")):
            check_pin(shipped)
    else:
        check_pin(shipped)


def test_the_qwen_rerankers_template_gives_the_input_that_its_card_prescribes() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    template = load_yaml(configs_folder() / "rerankers" / "qwen3-reranker-4b.yaml", Reranker).template
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    chat = [{"role": "system", "content": "I."}, {"role": "query", "content": "Q?"}, {"role": "document", "content": "D."}]
    # The card's prefix, "<Instruct>: …\n<Query>: …\n<Document>: …", and its suffix, line breaks included.
    assert tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: I.\n<Query>: Q?\n<Document>: D.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
