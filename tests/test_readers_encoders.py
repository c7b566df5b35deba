"""Retrieval models: their vectors and scores equal plain transformers', and what is not such a model is refused."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny import alive, children, coldread, write_experiment, write_rows
from tiny_retrieval import CHAT_TEMPLATE, PAIR_TEMPLATE, make_causal_reranker, make_cross_encoder, make_encoder

from offline.config.models import Encoder, Pin, Reranker
from offline.config.yaml import configs_folder, load_yaml
from offline.errors import ConfigurationError, EngineError, ModelError
from readers.encoders.embedding import EmbeddingModel
from readers.encoders.process import model_process
from readers.encoders.reranking import RerankingModel
from readers.models.pins import check_pin, fingerprint, identify, locate, patterns_of

TEXTS = ["Ada lives in Rome.", "yes", "Where does Ada live? " * 9, "Zoë wohnt in Köln 🏠", "no"]
PAIRS = [("Where does Ada live?", "Ada lives in Rome."), ("Who?", "Nobody. " * 20), ("yes", "no"), ("Wo?", "In Köln.")]


def encoder(folder: Path, **settings: object) -> Encoder:
    return Encoder(name="e", model=Pin(folder=str(folder)), device="cpu", **settings)


def reranker(folder: Path, **settings: object) -> Reranker:
    return Reranker(name="r", model=Pin(folder=str(folder)), device="cpu", **settings)


def embedding(folder: Path, **settings: object) -> EmbeddingModel:
    return EmbeddingModel(encoder(folder, **settings), str(folder))


def reranking(folder: Path, **settings: object) -> RerankingModel:
    return RerankingModel(reranker(folder, **settings), str(folder))


Pool = Callable[[NDArray[np.float32]], NDArray[np.float32]]
POOLS: dict[str, Pool] = {
    "cls": lambda states: states[0],
    "mean": lambda states: states.mean(axis=0),
    "lasttoken": lambda states: states[-1],
}


def plain_vectors(folder: Path, texts: Sequence[str], limit: int = 256, pooling: str = "cls") -> NDArray[np.float32]:
    """The oracle: one text at a time, the states of its tokens pooled and divided by their length."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    pooled = []
    for text in texts:
        with torch.no_grad():
            given = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
            pooled.append(POOLS[pooling](model(**given).last_hidden_state[0].numpy()))
    vectors = np.array(pooled)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_vectors_are_the_normalised_cls_states_of_plain_transformers(tiny_encoder: Path) -> None:
    made = embedding(tiny_encoder).encode("passage", TEXTS, 2)
    assert made.dtype == np.float32
    assert made.shape == (5, 32)
    np.testing.assert_allclose(made, plain_vectors(tiny_encoder, TEXTS), atol=1e-5)


def test_pickled_weights_give_the_vectors_of_safetensors(tiny_encoder: Path, tmp_path: Path) -> None:
    pickled = make_encoder(tmp_path / "pickled", pickled=True)
    made = embedding(pickled, weights="pytorch_model.bin").encode("passage", TEXTS, 2)
    assert made.tobytes() == embedding(tiny_encoder).encode("passage", TEXTS, 2).tobytes()


@pytest.mark.parametrize(
    ("own", "settings", "query", "passage"),
    [
        ({}, {}, "", ""),
        ({"query": "ask: ", "document": "say: "}, {}, "ask: ", "say: "),
        ({"query": "ask: ", "passage": "tell: "}, {}, "ask: ", "tell: "),
        ({"query": "ask: ", "document": "say: "}, {"query_prompt": "find: "}, "find: ", "say: "),
        ({"query": "ask: ", "document": "say: "}, {"query_prompt": "", "passage_prompt": ""}, "", ""),
    ],
)
def test_a_prompt_that_is_given_precedes_a_text_and_else_the_models_own(
    tmp_path: Path, own: dict[str, str], settings: dict[str, str], query: str, passage: str
) -> None:
    folder = make_encoder(tmp_path / "prompted", prompts=own)
    model = embedding(folder, **settings)
    for role, prompt in (("query", query), ("passage", passage)):
        expected = plain_vectors(folder, [prompt + text for text in TEXTS])
        np.testing.assert_allclose(model.encode(role, TEXTS, 3), expected, atol=1e-5)
        assert model.describe()[f"{role}_prompt"] == prompt


@pytest.mark.parametrize("pooling", POOLS)
def test_pooling_is_as_configured_for_a_folder_that_does_not_say_it(tiny_cross_encoder: Path, pooling: str) -> None:
    made = embedding(tiny_cross_encoder, pooling=pooling).encode("passage", TEXTS, 2)
    np.testing.assert_allclose(made, plain_vectors(tiny_cross_encoder, TEXTS, pooling=pooling), atol=1e-5)


def test_a_chat_template_in_an_encoders_folder_leaves_its_texts_as_they_are(tmp_path: Path) -> None:
    folder = make_causal_reranker(tmp_path / "chat", template=CHAT_TEMPLATE)
    made = embedding(folder, pooling="lasttoken").encode("passage", TEXTS, 2)
    np.testing.assert_allclose(made, plain_vectors(folder, TEXTS, pooling="lasttoken"), atol=1e-5)


@pytest.mark.parametrize(("settings", "window"), [({}, 256), ({"max_tokens": 40}, 40), ({"max_tokens": 8192}, 256)])
def test_a_text_beyond_the_window_is_cut_and_counted(tiny_encoder: Path, settings: dict[str, int], window: int) -> None:
    model = embedding(tiny_encoder, **settings)
    assert model.describe()["window"] == str(window)
    # A byte is a token, and the tokenizer adds two.
    texts = ["x" * (window - 2), "x" * (window - 1), "x" * 300]
    assert [model.cut("passage", [text]) for text in texts] == [0, 1, 1]
    np.testing.assert_allclose(model.encode("passage", texts, 3), plain_vectors(tiny_encoder, texts, window), atol=1e-5)
    assert model.room() == window - 2


def test_a_prompt_counts_as_part_of_the_window(tiny_encoder: Path) -> None:
    model = embedding(tiny_encoder, max_tokens=40, passage_prompt="say: ")
    assert model.room() == 40 - 2 - 5
    assert [model.cut("passage", ["x" * length]) for length in (33, 34)] == [0, 1]
    with pytest.raises(ConfigurationError, match="no room in a window of 40 tokens"):
        embedding(tiny_encoder, max_tokens=40, passage_prompt="x" * 38)


def test_a_text_is_counted_in_tokens_and_cut_into_pieces_that_are_the_whole_text(tiny_encoder: Path) -> None:
    model = embedding(tiny_encoder)
    # `yes` is one token, ö two.
    assert model.count(["", "ab", "yes", "ö"]) == [0, 2, 1, 2]
    text = "yes no " * 5 + "Köln 🏠"
    spans = model.spans(text, 4)
    assert "".join(text[begin:end] for begin, end in spans) == text
    assert max(model.count([text[begin:end] for begin, end in spans])) <= 4
    assert model.spans("", 4) == [(0, 0)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_vectors_have_length_one_in_whatever_dtype_they_are_computed(tiny_encoder: Path, dtype: str) -> None:
    model = embedding(tiny_encoder, dtype=dtype)
    assert model.describe()["dtype"] == dtype
    lengths = np.linalg.norm(model.encode("passage", [f"text {i}" for i in range(40)], 8), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-6)


def test_scores_of_a_sequence_classifier_are_its_logits(tiny_cross_encoder: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(tiny_cross_encoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_cross_encoder)
    with torch.no_grad():
        expected = [float(model(**tokenizer(*pair, return_tensors="pt")).logits[0, 0]) for pair in PAIRS]
    scores, full = reranking(tiny_cross_encoder).score(PAIRS, 2)
    assert scores.dtype == np.float32
    assert full == 0
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def log_odds(folder: Path, prompts: Sequence[Sequence[int]]) -> list[float]:
    """The oracle of a causal reranker: logit of `yes` less logit of `no` after these ids, one prompt at a time."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
    with torch.no_grad():
        logits = [model(input_ids=torch.tensor([list(ids)])).logits[0, -1] for ids in prompts]
    return [float(after[yes] - after[no]) for after in logits]


def rendered(folder: Path, pairs: Sequence[tuple[str, str]], instruction: str) -> list[list[int]]:
    """Ids of tiny_retrieval.PAIR_TEMPLATE, put together by hand."""
    from transformers import AutoTokenizer

    texts = [f"<s>{instruction}|{query}|{document}</s>" for query, document in pairs]
    found: list[list[int]] = AutoTokenizer.from_pretrained(folder)(texts, add_special_tokens=False)["input_ids"]
    return found


@pytest.mark.parametrize(("settings", "instruction"), [({}, "Judge."), ({"instruction": "Is it told?"}, "Is it told?")])
def test_scores_of_a_causal_model_are_the_log_odds_of_yes_after_its_template(
    tiny_causal_reranker: Path, settings: dict[str, str], instruction: str
) -> None:
    scores, full = reranking(tiny_causal_reranker, **settings).score(PAIRS, 2)
    expected = log_odds(tiny_causal_reranker, rendered(tiny_causal_reranker, PAIRS, instruction))
    assert full == 0
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("own", [None, CHAT_TEMPLATE])
def test_a_template_of_the_configuration_takes_the_place_of_the_models_own(
    tiny_causal_reranker: Path, tmp_path: Path, own: str | None
) -> None:
    folder = make_causal_reranker(tmp_path / "other", template=own)
    scores, _ = reranking(folder, template=PAIR_TEMPLATE).score(PAIRS, 2)
    assert scores.tobytes() == reranking(tiny_causal_reranker).score(PAIRS, 2)[0].tobytes()


def test_a_pair_beyond_the_window_is_counted_and_a_template_keeps_its_end(tiny_causal_reranker: Path) -> None:
    pairs = [*PAIRS, ("Who?", "x" * 300)]
    scores, full = reranking(tiny_causal_reranker, max_tokens=60).score(pairs, 2)
    ids = rendered(tiny_causal_reranker, pairs, "Judge.")
    assert [len(each) for each in ids] == [48, 174, 12, 22, 314]
    assert full == 2
    # The template ends in </s>, whose id is 2: after it stands the answer.
    cut = [each if len(each) <= 60 else [*each[:59], 2] for each in ids]
    np.testing.assert_allclose(scores, log_odds(tiny_causal_reranker, cut), atol=1e-5)


def test_a_pair_that_fills_the_window_of_a_sequence_classifier_is_counted(tiny_cross_encoder: Path) -> None:
    # With the four ids that the tokenizer adds, 39, 40 and 306 of 40.
    pairs = [("ab", "x" * 33), ("ab", "x" * 34), ("ab", "x" * 300)]
    assert reranking(tiny_cross_encoder, max_tokens=40).score(pairs, 2)[1] == 2


Broken = Callable[[Path], None]


def without(name: str) -> Broken:
    return lambda folder: (folder / name).unlink()


def rewritten(name: str, content: str) -> Broken:
    return lambda folder: (folder / name).write_text(content) and None


def moved_pooling(folder: Path) -> None:
    (folder / "1_Pooling").rename(folder / "pooling")
    (folder / "modules.json").write_text((folder / "modules.json").read_text().replace("1_Pooling", "pooling"))


def pickled_module(folder: Path) -> None:
    """A module whose weights are a pickle, of which the fingerprint of a safetensors model knows nothing."""
    (folder / "3_Dense").mkdir()
    (folder / "3_Dense" / "config.json").write_text("{}")
    (folder / "3_Dense" / "pytorch_model.bin").write_bytes(b"code")
    modules = json.loads((folder / "modules.json").read_text())
    dense = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
    (folder / "modules.json").write_text(json.dumps([*modules, dense]))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without("modules.json"), r"has no modules\.json.*set `pooling: cls`"),
        (rewritten("modules.json", "[{"), r"modules\.json cannot be read.*restore"),
        (rewritten("modules.json", '[{"path": 1}]'), r"modules\.json cannot be read.*restore"),
        (rewritten("modules.json", "[]"), "cannot be loaded"),
        (without("1_Pooling/config.json"), r"1_Pooling/config\.json is missing.*Pooling.*restore it, or set `pooling`"),
        (rewritten("1_Pooling/config.json", "{"), "cannot be loaded"),
        (moved_pooling, "'pooling', which no fingerprint covers.*1_Pooling"),
        (pickled_module, r"3_Dense/pytorch_model\.bin.*weights: pytorch_model\.bin"),
        (without("model.safetensors"), r"cannot be loaded.*no file named model\.safetensors"),
        (rewritten("model.safetensors", "no weights"), "cannot be loaded"),
        (without("tokenizer.json"), "cannot be loaded"),
    ],
)
def test_an_embedding_model_that_is_not_whole_is_one_error_with_the_cure(
    tiny_encoder: Path, tmp_path: Path, spoil: Broken, words: str
) -> None:
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "spoiled"))
    spoil(folder)
    with pytest.raises(ModelError, match=words) as raised:
        embedding(folder)
    assert str(folder) in str(raised.value) or "modules.json" in str(raised.value)
    assert "encoder 'e'" in str(raised.value)


def test_pickled_weights_are_read_only_where_the_configuration_names_them(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "pickled", pickled=True)
    with pytest.raises(ModelError, match=r"no file named model\.safetensors"):
        embedding(folder)


def test_code_in_pickled_weights_is_not_run(tmp_path: Path) -> None:
    import torch

    folder, target = make_encoder(tmp_path / "pickled", pickled=True), tmp_path / "ran"

    class Code:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(target),)

    torch.save({"embeddings.word_embeddings.weight": Code()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        embedding(folder, weights="pytorch_model.bin")
    assert not target.exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: make_cross_encoder(folder, labels=2), "gives one score, this model gives 2"),
        (make_encoder, "is no reranker but XLMRobertaModel"),
        (lambda folder: make_causal_reranker(folder, template=None), "no chat template.*give `template`"),
        (
            lambda folder: make_causal_reranker(folder, template=CHAT_TEMPLATE),
            "cannot carry a 'query'/'document' pair.*give `template`",
        ),
        (lambda folder: make_causal_reranker(folder, template="{{ raise_exception('no') }}"), "raised.*give `template`"),
        (lambda folder: make_causal_reranker(folder, words=False), "no tokens `yes` and `no`"),
    ],
    ids=["two labels", "an encoder", "no template", "no roles", "a template that raises", "no words"],
)
def test_a_model_that_cannot_rerank_is_refused_before_it_scores(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(ModelError, match=words) as raised:
        reranking(make(tmp_path / "model"))
    assert "reranker 'r'" in str(raised.value)


def test_a_device_that_is_not_there_is_one_error(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="'cuda' is not there"):
        EmbeddingModel(Encoder("e", Pin(), device="cuda"), str(tiny_encoder))
    assert EmbeddingModel(Encoder("e", Pin(), device="auto"), str(tiny_encoder)).describe()["device"].startswith("cpu ")


def test_any_changed_byte_of_a_modules_file_changes_an_encoders_fingerprint(tiny_encoder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "copy"))
    patterns = patterns_of(encoder(folder))
    before = fingerprint(folder, patterns)
    assert "1_Pooling/config.json" in [file.name for file in before.files]
    for name in ("1_Pooling/config.json", "modules.json", "sentence_bert_config.json", "model.safetensors"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert fingerprint(folder, patterns) != before
        (folder / name).write_bytes(content)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    assert fingerprint(folder, patterns) == before


def test_pickled_weights_are_part_of_the_fingerprint_where_they_are_read(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "pickled", pickled=True)
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"weights")
    names = {
        weights: {file.name for file in identify(encoder(folder, weights=weights), folder).files}
        for weights in ("safetensors", "pytorch_model.bin")
    }
    assert names["pytorch_model.bin"] - names["safetensors"] == {"pytorch_model.bin", "2_Dense/pytorch_model.bin"}


def test_a_pin_of_a_retrieval_model_is_refused_as_a_readers_is(tiny_encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"encoder 'e': BAAI/bge-m3 at revision 'main' is not pinned.*40-digit commit.*encoder's file$"
    ):
        check_pin(Encoder("e", Pin(repository="BAAI/bge-m3", revision="main")))
    with pytest.raises(ConfigurationError, match="reranker 'r': only a reader can be a served model"):
        check_pin(Reranker("r", Pin(served="x")))
    with pytest.raises(ModelError, match=r"encoder 'e': model folder .*nowhere is not there"):
        locate(encoder(tmp_path / "nowhere"))
    found = identify(encoder(tiny_encoder), tiny_encoder).fingerprint
    identify(Encoder("e", Pin(folder=str(tiny_encoder), fingerprint=found)), tiny_encoder)
    with pytest.raises(ModelError, match=f"encoder 'e'.*{found}.*{'0' * 64}.*restore the folder.*`coldread pin "):
        identify(Encoder("e", Pin(folder=str(tiny_encoder), fingerprint="0" * 64)), tiny_encoder)


def test_an_embedded_encoder_that_is_missing_says_how_to_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDREAD_MODELS", str(tmp_path))
    shipped = load_yaml(configs_folder() / "encoders" / "minilm.yaml", Encoder)
    with pytest.raises(ModelError, match=r"python -m readers\.embedded all-minilm-l6-v2"):
        locate(shipped)


@pytest.mark.parametrize("path", sorted((configs_folder() / "encoders").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_encoder_is_named_after_its_file_opens_with_a_comment_and_is_pinned(path: Path) -> None:
    shipped = load_yaml(path, Encoder)
    assert shipped.name == path.stem
    assert path.read_text().startswith("# ")
    check_pin(shipped)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("encoder", "modules.json", ("has no modules.json", "set `pooling: cls`")),
        ("encoder", "1_Pooling/config.json", ("1_Pooling/config.json is missing", "restore it")),
        ("encoder", "config.json", ("holds no config.json", "check `model` in its configuration")),
        ("reranker", "model.safetensors", ("reranker 'tiny'", "cannot be loaded", "model.safetensors")),
    ],
)
def test_a_run_whose_retrieval_model_is_not_whole_ends_with_one_line_and_leaves_nothing_half_made(
    tiny_model: Path, tiny_encoder: Path, tiny_cross_encoder: Path, tmp_path: Path, kind: str, name: str, words: Sequence[str]
) -> None:
    folder = Path(shutil.copytree({"encoder": tiny_encoder, "reranker": tiny_cross_encoder}[kind], tmp_path / "spoiled"))
    (folder / name).unlink()
    retrieval = {kind: {"name": "tiny", "model": {"folder": str(folder)}}}
    view = {"encoder": "fact_dense", "reranker": "fact_bm25_rerank"}[kind]
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc", view], retrieval=retrieval)
    run = tmp_path / "run"
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(run), "--until", "encode"]
    message = coldread(*command, code=ModelError.exit_code).stderr
    (line,) = [line for line in message.splitlines() if line.startswith("error: ")]
    assert all(word in line for word in words)
    assert str(folder) in line
    assert sorted(path.name for path in run.iterdir()) == ["data", "experiment.yaml", "extraction", "labels"]


class UnsendableError(Exception):
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
            raise UnsendableError("two", "words")
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
        ("unsendable", EngineError, "encoder 'e': UnsendableError: two words"),
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
from pathlib import Path
from readers.encoders.process import model_process
if __name__ == "__main__":
    with model_process(Path, "/", whose="encoder 'e'") as call:
        call("is_dir")
        input()
"""


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_models_process_ends_with_its_parent_even_if_that_is_killed_before_the_process_is_up(
    tmp_path: Path, seconds: float
) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with subprocess.Popen([sys.executable, "-P", str(tmp_path / "waits.py")], stdin=subprocess.PIPE) as parent:
        # The other one is multiprocessing's tracker of resources.
        while len(started := children(parent.pid)) < 2 and parent.poll() is None:
            time.sleep(0.002)
        time.sleep(seconds)
        parent.kill()
    assert len(started) == 2
    assert not any(map(alive, started))
