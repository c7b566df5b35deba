"""What goes wrong with a server: what is tried again, what ends a reader, and where a key must never be seen."""

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from http_double import Asked, Reply, later, said, serve
from openai_engines import BYTES, KEY, chat_engine, question, text

from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError, EngineError
from readers.engines import check_engine


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.parametrize("fault", [Reply(status, {"error": {"message": "busy"}}) for status in (408, 409, 429, 500, 503)])
def test_transport_faults_are_tried_again_and_then_end_the_reader(fault: Reply) -> None:
    with serve(lambda asked, before: fault if before == 0 else said("a")) as double:
        assert text(chat_engine(double, retries=1).generate(BYTES[:1])[0]) == "a"
    with serve(lambda asked, before: fault) as double, pytest.raises(EngineError, match=f"status {fault.status}.*busy"):
        chat_engine(double, retries=1).generate(BYTES[:1])
    assert len(double.asked) == 2


def test_a_connection_that_breaks_off_is_tried_again_and_then_ends_the_reader() -> None:
    with serve(lambda asked, before: Reply(200, None) if before == 0 else said("a")) as double:
        assert text(chat_engine(double, retries=1).generate(BYTES[:1])[0]) == "a"
    with serve(lambda asked, before: Reply(200, None)) as double, pytest.raises(EngineError, match="broke off"):
        chat_engine(double).generate(BYTES[:1])


def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    with serve(lambda asked, before: said("a")) as double:
        gone = double
    with pytest.raises(EngineError, match="could not be reached: Connection refused"):
        chat_engine(gone)


def test_a_server_that_does_not_answer_in_time_ends_the_reader() -> None:
    with (
        serve(lambda asked, before: later(said("a"), 3)) as double,
        pytest.raises(EngineError, match="did not answer in time"),
    ):
        chat_engine(double, timeout_seconds=1).generate(BYTES[:1])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_input_is_a_failed_generation_and_never_tried_again(status: int) -> None:
    refusal = Reply(status, {"error": {"message": "maximum context length is 8", "code": 400}})
    with serve(lambda asked, before: refusal if question(asked) == 1 else said("a")) as double:
        outputs = chat_engine(double, retries=3).generate(BYTES[:3])
    assert [output.finish_reason for output in outputs] == ["stop", "error", "stop"]
    assert "maximum context length is 8" in str(outputs[1].error)
    assert len(double.asked) == 3


def test_inputs_that_are_all_refused_alike_are_a_configuration_error() -> None:
    # As vLLM says it of a template that takes no system message.
    refusal = Reply(400, {"error": {"message": "System role not supported", "type": "BadRequestError", "code": 400}})
    with serve(lambda asked, before: refusal) as double:
        engine = chat_engine(double, retries=3)
        with pytest.raises(ConfigurationError, match="all 2 requests of a batch were refused alike: System role not supported"):
            engine.generate(BYTES[:2])
        # One alone does not tell whether it is the input.
        assert engine.generate(BYTES[:1])[0].finish_reason == "error"
    assert len(double.asked) == 3


def test_inputs_that_are_refused_each_in_other_words_are_failed_generations() -> None:
    def answer(asked: Asked, before: int) -> Reply:
        return Reply(400, {"error": {"message": f"at most 8 tokens, you sent {20 + question(asked)}", "code": 400}})

    with serve(answer) as double:
        outputs = chat_engine(double).generate(BYTES[:3])
    assert [str(output.error)[-2:] for output in outputs] == ["20", "21", "22"]


def test_inputs_that_are_refused_alike_beside_an_answer_are_failed_generations() -> None:
    with serve(lambda asked, before: said("a") if question(asked) == 2 else Reply(400, {"error": "no"})) as double:
        outputs = chat_engine(double).generate(BYTES[:3])
    assert [output.finish_reason for output in outputs] == ["error", "error", "stop"]


@pytest.mark.parametrize(
    ("reply", "cure"),
    [
        (Reply(401, {"error": {"message": "bad key"}}), "OPENAI_API_KEY.*set the right one"),
        (Reply(403, {"error": {"message": "no access"}}), "OPENAI_API_KEY.*use another"),
        (Reply(404, {"error": {"message": "no such model"}}), "base_url"),
        (Reply(400, {"error": {"message": "no temperature", "code": "unsupported_value"}}), "options"),
        (Reply(405, b"Method Not Allowed"), "options"),
    ],
)
def test_a_request_that_no_input_could_mend_is_a_configuration_error(reply: Reply, cure: str) -> None:
    with serve(lambda asked, before: reply) as double, pytest.raises(ConfigurationError, match=cure):
        chat_engine(double, retries=3).generate(BYTES[:1])
    assert len(double.asked) == 1


def test_the_first_fatal_error_cancels_the_rest() -> None:
    slow = threading.Event()

    def answer(asked: Asked, before: int) -> Reply:
        if question(asked) == 1:
            return Reply(401, {"error": {"message": "bad key"}})
        slow.wait(5)
        return said("a")

    with serve(answer) as double:
        began = time.monotonic()
        with pytest.raises(ConfigurationError, match="bad key"):
            chat_engine(double, concurrency=2).generate(BYTES)
        took = time.monotonic() - began
        slow.set()
        time.sleep(0.3)
    assert took < 3
    assert len(double.asked) <= 3, "requests were sent after a fatal error"


def echo(status: int) -> Callable[[Asked, int], Reply]:
    """A server that repeats what it was sent as a key."""
    return lambda asked, before: Reply(status, {"error": {"message": f"wrong: {asked.headers['authorization']}", "code": "x"}})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 429, 500])
def test_a_key_that_the_server_repeats_reaches_no_text(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with serve(echo(status)) as double:
        engine = chat_engine(double)
        if status == 400:
            found = str(engine.generate(BYTES[:1])[0].error)
        else:
            with pytest.raises((ConfigurationError, EngineError)) as caught:
                engine.generate(BYTES[:1])
            found = "".join(traceback.format_exception(caught.value))
    assert double.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "wrong: Bearer [key]" in found
    assert KEY not in found + caplog.text


def test_a_key_in_the_reported_fields_is_replaced() -> None:
    with serve(lambda asked, before: said("a", model=f"m {KEY}", system_fingerprint=KEY)) as double:
        (output,) = chat_engine(double).generate(BYTES[:1])
    assert isinstance(output.reported, dict)
    assert (output.reported["model"], output.reported["system_fingerprint"]) == ("m [key]", "[key]")


@pytest.mark.parametrize("key", [f"{KEY}\n{KEY}", f"{KEY} {KEY}", f"{KEY}\u2026", f"{KEY}\x07"])
def test_a_key_that_no_header_could_carry_is_refused_without_showing_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serve(lambda asked, before: said("a")) as double, pytest.raises(ConfigurationError, match="set it again") as caught:
        chat_engine(double)
    assert KEY not in str(caught.value)


def test_the_key_comes_from_the_variable_that_the_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "sk-other\n")
    with serve(lambda asked, before: said("a")) as double:
        chat_engine(double, api_key_env="OTHER_KEY").generate(BYTES[:1])
    assert double.asked[0].headers["authorization"] == "Bearer sk-other"


def test_a_server_on_this_machine_needs_no_key_and_another_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serve(lambda asked, before: said("a")) as double:
        chat_engine(double).generate(BYTES[:1])
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY holds no key"):
        chat_engine(double, base_url="https://models.invalid/v1")


@pytest.mark.parametrize(
    "url",
    [
        *("http://user:hunter2@127.0.0.1/v1", "https://hunter2@host/v1", "http://host/v1?key=hunter2"),
        *("ftp://host/hunter2", "hunter2", "http://host:hunter2/v1", "http://[hunter2/v1", "http:///hunter2"),
    ],
)
def test_an_address_with_credentials_or_of_another_kind_is_refused_without_showing_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(name="r", engine="openai", model=Pin(served="m"), options={"base_url": url})
    with pytest.raises(ConfigurationError, match="base URL") as caught:
        check_engine(reader)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL") as caught, serve(echo(400)) as double:
        chat_engine(double, base_url="")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"api_key_env": KEY}, {"retries": -1}, {"concurrency": 0}, {"server": "other"}, {"key": "x"}]
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_engine(Reader(name="r", engine="openai", model=Pin(served="m"), options=options))
    assert KEY not in str(caught.value)


def test_a_proxy_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serve(lambda asked, before: said("a")) as double:
        assert text(chat_engine(double).generate(BYTES[:1])[0]) == "a"
