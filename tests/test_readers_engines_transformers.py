"""The transformers engine against a naive greedy loop, and what must not reach a greedy reader."""

import hashlib
import json
import math
import string
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import make_model, naive_greedy

from offline.canonical import encode
from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, ModelError
from readers.engines import EngineStart, find_engine, seed_of
from readers.engines.transformers import TransformersEngine, _first_of_ties, _sampled
from readers.models.pins import fingerprint
from readers.records import Decoding, Output
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer

pytestmark = pytest.mark.torch

PROMPTS = [
    [0, 3, 80, 81, 82, 1, 4],
    [0, 3, 90, 1, 4],
    [0, 2, 70, 71, 72, 73, 74, 75, 76, 1, 3, 99, 1, 4],
    [0, 3, 120, 121, 1, 4],
]


def engine_start(folder: Path, **changes: object) -> EngineStart:
    settings: dict[str, object] = {"name": "t", "engine": "transformers", "model": Pin(folder="x"), "output_cap": 20}
    reader = Reader(**{**settings, **changes})  # type: ignore[arg-type]
    frozen = make_settings(reader, fingerprint(folder), ChatTokenizer(folder))
    return EngineStart(settings=frozen, model_folder=str(folder), longest=64)


def engine(folder: Path, **changes: object) -> TransformersEngine:
    return TransformersEngine(engine_start(folder, **changes))


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


def structured(folder: Path, **changes: object) -> TransformersEngine:
    """The same engine, started so that it can hold answers to schemas."""
    start = engine_start(folder, **changes)
    return TransformersEngine(msgspec.structs.replace(start, structured=True))


def schema(value: object) -> str:
    return encode(value).decode()


PAIR = schema(
    {
        "type": "array",
        "prefixItems": [
            {
                "type": "object",
                "properties": {"id": {"const": i}, "kind": {"enum": ["up", "down"]}},
                "required": ["id", "kind"],
                "additionalProperties": False,
            }
            for i in (7, 3)
        ],
        "items": False,
        "minItems": 2,
        "maxItems": 2,
    }
)


def text_of(folder: Path, output: Output) -> str:
    return ChatTokenizer(folder).decode(output.ids)


def test_an_answer_held_to_a_schema_obeys_it_and_ends_with_a_stop_id(model: Path) -> None:
    # Random weights want nothing of the kind: every token is the grammar's doing, and the only choice is up or down.
    kinds = ("up", "down")
    possible = {f'[{{"id":7,"kind":"{one}"}},{{"id":3,"kind":"{two}"}}]' for one in kinds for two in kinds}
    # The library puts a space behind some commas.
    for output in structured(model).complete(PROMPTS, Decoding(output_cap=80, schema=PAIR)):
        assert text_of(model, output).replace(", ", ",") in possible
        assert (output.ids[-1], output.finish_reason) == (1, "stop")


def test_a_held_answer_that_meets_the_cap_says_length(model: Path) -> None:
    (output,) = structured(model).complete(PROMPTS[:1], Decoding(output_cap=5, schema=PAIR))
    assert (text_of(model, output), output.finish_reason) == ('[{"id', "length")


def test_rows_of_a_batch_are_held_each_to_its_own_place_in_the_schema(model: Path) -> None:
    # Strings of free length: rows end at different steps, and each is what it is alone.
    decoding = Decoding(output_cap=40, schema=schema({"type": "string", "pattern": "^[a-z]{0,30}$"}))
    made = structured(model).complete(PROMPTS, decoding)
    assert made == [structured(model).complete([ids], decoding)[0] for ids in PROMPTS]
    assert all(isinstance(json.loads(text_of(model, output)), str) for output in made)


def naive_held(folder: Path, ids: list[int], words: list[bytes], cap: int) -> list[int]:
    """At each step the largest logit among the bytes that a word of the list goes on with; the stop id after a whole word."""
    from transformers import AutoModelForCausalLM

    tokens = {byte: token for token, byte in token_bytes(folder).items()}
    model, out, said = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), list[int](), b""
    while len(out) < cap and not (out and out[-1] == 1):
        with torch.no_grad():
            logits = model(torch.tensor([ids + out])).logits[0, -1].tolist()
        allowed = {tokens[word[len(said)]] for word in words if word.startswith(said) and len(word) > len(said)}
        out.append(max(sorted(allowed | ({1} if said in words else set())), key=lambda token: logits[token]))
        said += bytes([token_bytes(folder)[out[-1]]]) if out[-1] != 1 else b""
    return out


def token_bytes(folder: Path) -> dict[int, int]:
    """The byte that each token of the tiny tokenizer stands for."""
    tokenizer = ChatTokenizer(folder)
    return {tokenizer._tokenizer.encode(chr(b), add_special_tokens=False)[0]: b for b in range(32, 127)}


def test_the_mask_leaves_the_largest_logit_of_what_is_allowed(model: Path) -> None:
    words = [first + rest for first in string.ascii_letters for rest in ("", "b", "bc", "cd", "z")]
    expected = [naive_held(model, ids, [b'"%s"' % word.encode() for word in words], 9) for ids in PROMPTS]
    made = structured(model).complete(PROMPTS, Decoding(output_cap=9, schema=schema({"enum": words})))
    assert [list(output.ids) for output in made] == expected
    assert len({tuple(ids) for ids in expected}) > 1, "the prompts want different words"


def test_free_decoding_is_greedy_with_a_cap_of_its_own(model: Path) -> None:
    made = structured(model)
    assert made.complete(PROMPTS, Decoding(output_cap=20)) == engine(model).generate(PROMPTS)
    assert [o.ids for o in made.complete(PROMPTS, Decoding(output_cap=6))] == [o.ids[:6] for o in made.generate(PROMPTS)]
    assert made.generate(PROMPTS) == engine(model).generate(PROMPTS), "a call's cap does not stay"


def test_a_sample_repeats_with_its_seed_whatever_shares_its_batch(model: Path) -> None:
    made = engine(model)

    def sampled(batch: list[list[int]], seed: int) -> list[tuple[int, ...]]:
        return [o.ids for o in made.complete(batch, Decoding(output_cap=12, temperature="1.0", seed=seed))]

    together = sampled(PROMPTS, 5)
    assert together == sampled(PROMPTS, 5) == [ids for prompt in PROMPTS for ids in sampled([prompt], 5)]
    assert sampled([*PROMPTS[::-1], PROMPTS[2]], 5) == [*together[::-1], together[2]]
    assert together != sampled(PROMPTS, 6)
    assert together != [o.ids[:12] for o in made.generate(PROMPTS)]


@pytest.mark.parametrize("temperature", ["0.5", "2"])
def test_samples_are_as_frequent_as_the_softmax_at_that_temperature_says(model: Path, temperature: str) -> None:
    made, count = engine(model), 400
    logits = torch.tensor(made.logprobs(PROMPTS[0], range(262)))
    expected = torch.softmax(logits / float(temperature), dim=-1)
    found = torch.zeros(262)
    for seed in range(count):
        (output,) = made.complete(PROMPTS[:1], Decoding(output_cap=1, temperature=temperature, seed=seed))
        found[output.ids[0]] += 1 / count
    likely = expected > 0.01
    assert likely.sum() > 1
    assert (found - expected)[likely].abs().max() < 0.1, "four standard errors"


def test_different_inputs_draw_independently_so_that_a_share_of_many_is_the_probability(model: Path) -> None:
    # One seed for all would be one noise for all: with distributions as close as these, nearly all would draw the same token.
    made, decoding = engine(model), Decoding(output_cap=1, temperature="2", seed=7)
    inputs = [[0, 3, 80 + i % 20, 100 + i // 20, 1, 4] for i in range(300)]
    drawn = [o.ids[0] for at in range(0, 300, 50) for o in made.complete(inputs[at : at + 50], decoding)]
    expected = torch.stack([torch.softmax(torch.tensor(made.logprobs(ids, range(262))) / 2, dim=-1) for ids in inputs])
    for low in range(0, 262, 60):
        of_each = expected[:, low : low + 60].sum(dim=-1)
        deviation = math.sqrt(float((of_each * (1 - of_each)).sum()))
        assert deviation > 3, "there is something to draw"
        assert abs(sum(low <= token < low + 60 for token in drawn) - float(of_each.sum())) < 4 * deviation


@given(st.integers(0, (1 << 63) - 1), st.sampled_from([0.25, 0.5, 0.9]))
def test_of_a_token_as_likely_as_that_a_batch_of_many_inputs_draws_that_share(seed: int, likely: float) -> None:
    decoding, temperature, count = Decoding(output_cap=1, temperature="0.7", seed=seed), 0.7, 500
    scores = torch.tensor([math.log(likely), math.log(1 - likely)]).repeat(count, 1) * temperature
    seeds = [seed_of(decoding, [5, i]) for i in range(count)]
    share = float((_sampled(torch, "cpu", temperature, seeds)(None, scores).argmax(-1) == 0).double().mean())
    # Six standard errors: many seeds are tried.
    assert abs(share - likely) < 6 * math.sqrt(likely * (1 - likely) / count)


@given(st.integers(0, (1 << 63) - 1), st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=9))
def test_an_inputs_seed_is_63_bits_of_the_sha256_of_seed_and_ids(seed: int, ids: list[int]) -> None:
    spelled = f"[{seed},[{','.join(map(str, ids))}]]".encode()
    expected = int.from_bytes(hashlib.sha256(spelled).digest()[:8], "big") // 2
    assert seed_of(Decoding(output_cap=1, temperature="1", seed=seed), ids) == expected < 1 << 63


def test_a_schema_that_is_none_is_a_configuration_error_with_the_schema_in_it(model: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot hold answers to this JSON Schema.*constrained: false.*nonsense"):
        structured(model).complete(PROMPTS[:1], Decoding(output_cap=5, schema=schema({"type": "nonsense"})))


def test_without_xgrammar_the_extra_is_named_and_reading_needs_none(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'coldread\[structured\]'"):
        structured(model)
    assert "structured_outputs" not in engine(model).environment()


def test_the_environment_names_what_holds_answers_to_schemas(model: Path) -> None:
    assert structured(model).environment()["structured_outputs"] == f"xgrammar {version('xgrammar')}"
