"""The transformers engine against a naive greedy loop, and what must not reach a greedy reader."""

import math
from pathlib import Path

import pytest
import torch
from tiny import make_model

from offline.errors import ConfigurationError, ModelError
from offline.models import Pin, Reader
from readers.engines import EngineStart, find_engine
from readers.engines.transformers import TransformersEngine, _first_of_ties
from readers.pins import fingerprint
from readers.requests import make_settings
from readers.tokens import ChatTokenizer

PROMPTS = [
    [0, 3, 80, 81, 82, 1, 4],
    [0, 3, 90, 1, 4],
    [0, 2, 70, 71, 72, 73, 74, 75, 76, 1, 3, 99, 1, 4],
    [0, 3, 120, 121, 1, 4],
]


def engine(folder: Path, **changes: object) -> TransformersEngine:
    settings: dict[str, object] = {"name": "t", "engine": "transformers", "model": Pin(folder="x"), "output_cap": 20}
    reader = Reader(**{**settings, **changes})  # type: ignore[arg-type]
    frozen = make_settings(reader, fingerprint(folder), ChatTokenizer(folder))
    return TransformersEngine(EngineStart(settings=frozen, model_folder=str(folder), longest=64))


def naive_greedy(folder: Path, ids: list[int], cap: int, stop: set[int]) -> list[int]:
    """The whole forward pass again for every token, no cache, no batch, largest logit, first of equals."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    out: list[int] = []
    while len(out) < cap and not (out and out[-1] in stop):
        with torch.no_grad():
            logits = model(torch.tensor([ids + out])).logits[0, -1].tolist()
        out.append(logits.index(max(logits)))
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("engine") / "model")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_engine_gives_the_naive_greedy_ids_at_any_batch_size(model: Path, size: int) -> None:
    found = [o.ids for at in range(0, 4, size) for o in engine(model).generate(PROMPTS[at : at + size])]
    assert found == [tuple(naive_greedy(model, ids, 20, {1})) for ids in PROMPTS]


def test_log_probabilities_are_those_of_the_next_token(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        logits = loaded(torch.tensor([PROMPTS[2]])).logits[0, -1].tolist()
    total = sum(math.exp(value) for value in logits)
    found = engine(model).logprobs(PROMPTS[2], range(len(logits)))
    assert found == pytest.approx([math.log(math.exp(value) / total) for value in logits], abs=1e-4)


def test_generation_config_cannot_smuggle_sampling_or_penalties_into_greedy(model: Path, tmp_path: Path) -> None:
    smuggled = {"do_sample": True, "temperature": 1.7, "top_k": 3, "repetition_penalty": 1.9, "no_repeat_ngram_size": 2}
    other = make_model(tmp_path / "model", generation=smuggled)
    assert [o.ids for o in engine(other).generate(PROMPTS)] == [o.ids for o in engine(model).generate(PROMPTS)]


def test_a_repetition_penalty_would_have_changed_these_outputs(model: Path) -> None:
    # So that the test above can fail: greedy ids here repeat, which a penalty of 1.9 forbids.
    outputs = engine(model).generate(PROMPTS)
    assert any(len(set(o.ids)) < len(o.ids) for o in outputs)


def test_a_minimum_length_of_the_model_is_not_obeyed(model: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "model", generation={"min_new_tokens": 20, "eos_token_id": 1})
    first = engine(model).generate(PROMPTS[:1])[0].ids[2]
    for folder in (model, other):
        made = engine(folder)
        made._settings = made._settings.__class__(**{**_fields(made._settings), "stop_ids": (first,)})
        made._generation.eos_token_id = [first]
        output = made.generate(PROMPTS[:1])[0]
        assert output.ids[-1] == first
        assert output.finish_reason == "stop"


def _fields(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}  # type: ignore[attr-defined]


def test_an_output_at_the_cap_says_length(model: Path) -> None:
    output = engine(model, output_cap=3).generate(PROMPTS[:1])[0]
    assert (len(output.ids), output.finish_reason) == (3, "length")


def test_ties_between_logits_go_to_the_first() -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0, 2.0], [5.0, 5.0, 5.0, 5.0], [-1.0, -3.0, -1.0, -2.0]])
    kept = _first_of_ties(torch)(None, scores)
    assert kept.argmax(dim=-1).tolist() == [1, 0, 0]
    assert (kept > float("-inf")).sum(dim=-1).tolist() == [1, 1, 1]


def test_the_environment_names_versions_device_and_dtype_and_no_path(model: Path) -> None:
    environment = engine(model).environment()
    assert {"engine", "torch", "transformers", "python", "device", "dtype", "attention", "threads"} == set(environment)
    assert environment["dtype"] == "float32"
    assert not any("/" in value for value in environment.values())


def test_a_folder_without_safetensors_is_refused(model: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    with pytest.raises(ModelError, match="safetensors"):
        engine(tmp_path)


def test_broken_weights_are_one_clear_error(model: Path, tmp_path: Path) -> None:
    for path in model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="cannot be loaded"):
        engine(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_is_a_configuration_error(model: Path) -> None:
    with pytest.raises(ConfigurationError, match="CUDA"):
        engine(model, device="cuda")


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="recorded, transformers"):
        find_engine("telepathy")
