"""The OpenAI-compatible engine against a double on this machine: what is sent, and what is kept of an answer."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from http_double import Reply, ids, later, said, serve
from openai_engines import BYTES, KEY, chat_engine, id_engine, question, text

from offline.canonical import encode
from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, EngineError
from readers.engines import check_engine
from readers.records import Decoding


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_a_request_of_token_ids_says_everything_that_makes_it_greedy() -> None:
    with serve(lambda asked, before: ids([5, 9])) as double:
        id_engine(double, seed=3).generate([(7, 8)])
    assert double.asked[0].path == "/v1/completions"
    assert double.asked[0].body == {
        **{"model": "m", "prompt": [7, 8], "max_tokens": 4, "n": 1, "seed": 3},
        **{"temperature": 0, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0},
        **{"top_k": -1, "min_p": 0, "repetition_penalty": 1, "min_tokens": 0},
        **{"stop_token_ids": [1, 9], "ignore_eos": True, "add_special_tokens": False, "skip_special_tokens": False},
        "return_token_ids": True,
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"max_tokens": 4, "top_k": -1, "min_p": 0, "repetition_penalty": 1, "min_tokens": 0}),
        ({"server": "openai"}, {"max_completion_tokens": 4}),
    ],
)
def test_a_request_of_messages_says_it_in_the_words_of_its_server(options: dict[str, Any], expected: dict[str, Any]) -> None:
    with serve(lambda asked, before: said("a")) as double:
        chat_engine(double, **options).generate(BYTES[:1])
    assert double.asked[0].path == "/v1/chat/completions"
    assert double.asked[0].body == {
        **{"model": "m", "n": 1, "seed": 0, "temperature": 0, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q0"}],
        **expected,
    }


SCHEMA = {"properties": {"b": {"const": 1}}, "required": ["b"], "type": "object"}
HELD = Decoding(output_cap=3, schema=encode(SCHEMA).decode())
SAMPLED = Decoding(output_cap=3, temperature="0.7", seed=11)


def made_of(seed: int, ids: Sequence[int]) -> int:
    """The seed of one input."""
    return int.from_bytes(hashlib.sha256(f"[{seed},[{','.join(map(str, ids))}]]".encode()).digest()[:8], "big") // 2


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        (Decoding(output_cap=4), {}),
        (Decoding(output_cap=3), {"max_tokens": 3}),
        (SAMPLED, {"max_tokens": 3, "temperature": 0.7, "seed": made_of(11, (7, 8))}),
        (HELD, {"max_tokens": 3, "structured_outputs": {"json": SCHEMA}}),
    ],
    ids=["as-read", "cap", "sampled", "held"],
)
def test_a_call_of_token_ids_is_a_read_but_for_cap_sampling_and_schema(decoding: Decoding, expected: dict[str, Any]) -> None:
    with serve(lambda asked, before: ids([5] * asked.body["max_tokens"])) as double:
        engine = id_engine(double, seed=3)
        (output,), _ = engine.complete([(7, 8)], decoding), engine.generate([(7, 8)])
    call, read = double.asked
    assert call.body == read.body | expected
    assert output.finish_reason == "length", "the call's cap counts, not the reader's"


@pytest.mark.parametrize(("server", "cap"), [("vllm", "max_tokens"), ("openai", "max_completion_tokens")])
def test_a_call_of_messages_is_a_read_but_for_the_same_in_openais_words(server: str, cap: str) -> None:
    with serve(lambda asked, before: said("{}")) as double:
        engine = chat_engine(double, server=server)
        for decoding in (SAMPLED, HELD):
            engine.complete(BYTES[:1], decoding)
        engine.generate(BYTES[:1])
    sampled, held, read = (asked.body for asked in double.asked)
    json_schema = {"name": "answer", "strict": True, "schema": SCHEMA}
    assert sampled == read | {cap: 3, "temperature": 0.7, "seed": made_of(11, BYTES[0])}
    assert held == read | {cap: 3, "response_format": {"type": "json_schema", "json_schema": json_schema}}


def test_every_request_of_a_batch_samples_with_a_seed_of_its_own() -> None:
    with serve(lambda asked, before: ids([5, 5, 5])) as double:
        id_engine(double).complete([(7, 8), (9,), (7, 8)], SAMPLED)
    sent = {tuple(asked.body["prompt"]): asked.body["seed"] for asked in double.asked}
    assert sent == {prompt: made_of(11, prompt) for prompt in ((7, 8), (9,))}
    assert len(set(sent.values())) == 2


def test_a_schema_that_the_server_refuses_is_a_configuration_error() -> None:
    refusal = Reply(400, {"error": {"message": "no prefixItems", "code": "invalid_json_schema"}})
    with (
        serve(lambda asked, before: refusal) as double,
        pytest.raises(ConfigurationError, match="no prefixItems"),
    ):
        chat_engine(double, server="openai").complete(BYTES[:1], HELD)


@pytest.mark.parametrize("thinking", [False, True])
def test_the_thinking_switch_is_sent_where_it_is_asked_for(thinking: bool) -> None:
    with serve(lambda asked, before: said("a")) as double:
        chat_engine(double, thinking=thinking, thinking_switch=True).generate(BYTES[:1])
    assert double.asked[0].body["chat_template_kwargs"] == {"enable_thinking": thinking}


def test_thinking_that_could_not_reach_the_server_is_refused() -> None:
    with serve(lambda asked, before: said("a")) as double, pytest.raises(ConfigurationError, match="thinking_switch"):
        chat_engine(double, thinking=True)


def test_outputs_keep_the_order_of_their_inputs_and_no_more_than_concurrency_are_on_their_way() -> None:
    with serve(lambda asked, before: later(said(f"a{question(asked)}"), 0.02 * (10 - question(asked)))) as double:
        outputs = chat_engine(double, concurrency=3).generate(BYTES)
    assert [text(output) for output in outputs] == [f"a{i}" for i in range(10)]
    assert double.busiest == 3


def test_what_a_response_reports_is_kept_even_where_it_is_not_what_was_asked_for() -> None:
    with serve(lambda asked, before: said("a", model="m-2026", system_fingerprint="fp_1")) as double:
        (output,) = chat_engine(double).generate(BYTES[:1])
    reported = {"model": "m-2026", "system_fingerprint": "fp_1", "prompt_tokens": "7", "completion_tokens": "3"}
    assert output.reported == reported


@pytest.mark.parametrize(
    ("tokens", "reason"), [([9], "stop"), ([5, 5, 5, 1], "stop"), ([5, 5, 5, 5], "length")], ids=["stop", "at-cap", "length"]
)
def test_an_output_of_token_ids_says_stop_only_where_it_ends_in_a_stop_id(tokens: list[int], reason: str) -> None:
    # The server's own word for it is the opposite.
    with serve(lambda asked, before: ids(tokens, "stop" if reason == "length" else "length")) as double:
        (output,) = id_engine(double).generate([(7,)])
    assert (output.ids, output.finish_reason) == (tuple(tokens), reason)


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_answer_is_an_answer(content: str | None) -> None:
    with serve(lambda asked, before: said(content)) as double:
        (output,) = chat_engine(double, retries=3).generate(BYTES[:1])
    assert (output.ids, output.finish_reason, len(double.asked)) == ((), "stop", 1)


def test_a_withheld_answer_is_a_failed_generation_and_not_asked_for_again() -> None:
    with serve(lambda asked, before: said("part", "content_filter")) as double:
        (output,) = chat_engine(double, retries=3).generate(BYTES[:1])
    assert (output.ids, output.finish_reason, len(double.asked)) == ((), "error", 1)


@pytest.mark.parametrize("reason", ["tool_calls", None, "half \ud83d", f"own {KEY}"])
def test_an_answer_that_ended_for_another_reason_is_a_failed_generation_that_says_it(reason: Any) -> None:
    # It would come again at every resume, so an error would keep the reader from its seal.
    with serve(lambda asked, before: said("part", reason)) as double:
        (output,) = chat_engine(double, retries=3).generate(BYTES[:1])
    assert (output.ids, output.finish_reason, len(double.asked)) == ((), "error", 1)
    shown = str(reason or "none given").replace(KEY, "[key]").replace("\ud83d", "?")
    assert output.error == f"the server ended the answer for another reason than stop or length: {shown}"


BROKEN = [
    (said("a", choices=[]), "0 choices"),
    (said("a", choices=said("b").body["choices"] * 2), "2 choices"),
    (Reply(200, {"model": "m"}), "choices"),
    (Reply(200, b"<html>hello</html>"), "another shape"),
    (Reply(200, b""), "another shape"),
    (said(["parts"]), "another shape"),
    (said("a", choices=[{"index": 0, "finish_reason": "tool_calls"}]), "without a message"),
]


@pytest.mark.parametrize(("reply", "message"), BROKEN)
def test_a_chat_response_that_breaks_the_contract_is_an_engine_error(reply: Reply, message: str) -> None:
    with serve(lambda asked, before: reply) as double, pytest.raises(EngineError, match=message):
        chat_engine(double, retries=2).generate(BYTES[:1])
    assert len(double.asked) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (ids(None), "no token ids"),
        (ids([9], prompt_token_ids=[0, 7]), "other input ids"),
        (ids([5, 5]), "after 2 of 4 tokens"),
        (ids([]), "after 0 of 4 tokens"),
    ],
)
def test_a_response_without_the_ids_asked_for_is_an_engine_error(reply: Reply, message: str) -> None:
    with serve(lambda asked, before: reply) as double, pytest.raises(EngineError, match=message):
        id_engine(double).generate([(7,)])


def test_the_environment_tells_client_server_and_model_and_no_place() -> None:
    pages = {
        "/v1/models": {"data": [{"id": "m", "root": "/secret/place", "max_model_len": 64}]},
        "/version": {"version": "0.32.0"},
    }
    with serve(lambda asked, before: said("a"), **pages) as double:
        environment = id_engine(double).environment()
    assert environment.pop("openai").count(".") == 2
    assert environment == {
        **{"engine": "openai", "input": "token ids", "server": "vllm 0.32.0", "model": "m", "max_model_len": "64"},
        "weights": "not verified, the server reports m",
    }


@pytest.mark.parametrize("page", [Reply(404, {}), Reply(401, {}), Reply(200, b"<html>"), Reply(200, {"v": 1})])
def test_a_server_without_a_version_leaves_it_out(page: Reply) -> None:
    with serve(lambda asked, before: said("a"), **{"/version": page}) as double:
        assert "server" not in chat_engine(double).environment()


def test_a_model_that_the_server_does_not_list_is_named_beside_those_it_does() -> None:
    pages = {"/v1/models": {"data": [{"id": "other"}]}}
    with serve(lambda asked, before: said("a"), **pages) as double:
        with pytest.raises(ConfigurationError, match="no model 'm' but other"):
            chat_engine(double)
        # An API may know models that it does not list.
        assert chat_engine(double, server="openai").environment()["weights"] == "not verified"


def test_a_window_that_would_cut_answers_short_is_found_before_anything_is_generated() -> None:
    # The longest input has 10 tokens, and 4 may follow.
    for window, refused in ((13, True), (14, False)):
        with serve(
            lambda asked, before: ids([9]), **{"/v1/models": {"data": [{"id": "m", "max_model_len": window}]}}
        ) as double:
            if refused:
                with pytest.raises(ConfigurationError, match="input_cap: 9"):
                    id_engine(double)
            else:
                id_engine(double)


def test_token_ids_need_the_name_of_the_model_and_a_server_that_takes_them() -> None:
    with serve(lambda asked, before: ids([9])) as double:
        with pytest.raises(ConfigurationError, match="`model`"):
            id_engine(double, model="")
        with pytest.raises(ConfigurationError, match="server: vllm"):
            id_engine(double, server="openai")
        with pytest.raises(ConfigurationError, match="leave one out"):
            chat_engine(double, model="other")


def test_logprobs_are_those_of_the_tokens_asked_for() -> None:
    top = {"top_logprobs": [{"token_id:5": -0.5, "token_id:7": -2.25}]}
    with serve(lambda asked, before: ids([5], "length", logprobs=top)) as double:
        engine = id_engine(double)
        assert engine.logprobs((3,), (7, 5)) == [-2.25, -0.5]
        assert engine.logprobs((3,), (7, 6)) is None
    assert (double.asked[0].body["max_tokens"], double.asked[0].body["logprob_token_ids"]) == (1, [7, 5])
    with serve(lambda asked, before: Reply(400, {"error": {"message": "no logprobs"}})) as double:
        assert id_engine(double).logprobs((3,), (5,)) is None
        assert chat_engine(double).logprobs((3,), (5,)) is None


def test_the_prefix_cache_is_forgotten_only_where_the_server_offers_it() -> None:
    with serve(lambda asked, before: Reply(200, {})) as double:
        assert not hasattr(id_engine(double), "forget")
    with serve(lambda asked, before: Reply(200, b""), **{"/reset_prefix_cache": Reply(405, {})}) as double:
        engine = id_engine(double)
        assert double.asked == []
        engine.forget()
    assert [asked.path for asked in double.asked] == ["/reset_prefix_cache"]


BUSY = Reply(200, {"success": False})


@pytest.mark.parametrize(
    ("answers", "resets"),
    [
        ([Reply(200, {"success": True})], 1),
        ([BUSY, BUSY, Reply(200, {"success": True})], 3),
        ([BUSY, Reply(200, {})], 2),
        ([Reply(200, b"OK")], 1),
        ([Reply(200, [])], 1),
    ],
)
def test_a_prefix_cache_that_is_held_is_reset_again_until_the_server_is_done(answers: list[Reply], resets: int) -> None:
    with serve(lambda asked, before: answers[before], **{"/reset_prefix_cache": Reply(405, {})}) as double:
        id_engine(double).forget()
    assert len(double.asked) == resets


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (BUSY, "could not empty its prefix cache; other requests hold it"),
        (
            Reply(422, {"error": {"message": "which device?"}}),
            "refused to empty its prefix cache with status 422: which device",
        ),
    ],
)
def test_a_prefix_cache_that_stays_full_ends_the_reader(answer: Reply, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("readers.engines.openai_server._PAUSES", (0, 0))
    with (
        serve(lambda asked, before: answer, **{"/reset_prefix_cache": Reply(405, {})}) as double,
        pytest.raises(EngineError, match=message),
    ):
        id_engine(double).forget()


@pytest.mark.parametrize("changes", [{"device": "cuda:1"}, {"attention": "eager"}])
def test_a_device_or_an_attention_that_no_server_is_told_is_refused(changes: dict[str, str]) -> None:
    reader = Reader(name="r", engine="openai", model=Pin(served="m"), **changes)  # type: ignore[arg-type]
    (given,) = [f"{name}: {value}" for name, value in changes.items()]
    with pytest.raises(ConfigurationError, match=f"cannot choose {given}; the server does"):
        check_engine(reader)
    # A run that was begun without that check, or by hand.
    with serve(lambda asked, before: said("a")) as double, pytest.raises(ConfigurationError, match=f"cannot choose {given}"):
        chat_engine(double, changes=changes)
