"""Answers of servers in the cache of calls: used again only where the server says that it is the very same one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_double import Asked, Double, Reply, ids, said, serve

from offline.config.models import Pin, Reader
from offline.errors import EngineError
from offline.observer import Task
from offline.records import Message
from readers.calls.caller import Ask
from readers.calls.engine_source import Live, live_caller
from readers.models.pins import locate
from readers.process.guard import Forbidden
from readers.records import Decoding

KEY = "sk-double-0123456789"
MODEL = {"id": "m", "created": 1, "root": "/checkpoints/a", "parent": None}
NAME_ALONE = {"/v1/models": {"data": [{"id": "m"}]}}
# What a server of vLLM says of itself.
VLLM = {
    "/version": {"version": "0.32"},
    "/v1/models": {"data": [MODEL]},
    "/metrics": Reply(200, b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.75e+09\nother 2\n"),
}


def listed(**changes: Any) -> dict[str, Any]:
    return {"/v1/models": {"data": [{**MODEL, **changes}]}}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def ask(double: Double, texts: Sequence[str] = ("one", "two"), **changes: Any) -> tuple[list[str], Live]:
    """What this server's model answers to the texts, in batches of one, and the source, which counts."""
    plain = Reader(name="r", engine="openai", model=Pin(served="m"), output_cap=4, batch_size=1, options={"retries": 0})
    reader = msgspec.structs.replace(plain, **changes)
    chats = [(Message(role="system", content="s"), Message(role="user", content=text)) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", double.url)
        with live_caller(reader, locate(reader), Forbidden(folders=()), Task()) as (caller, live):
            answers = caller.ask([Ask(stage="s", chat=chat, decoding=Decoding(output_cap=4)) for chat in chats])
    return [answer.text for answer in answers], live


def in_the_cache() -> dict[str, bytes]:
    folder = Path(os.environ["COLDREAD_CALLS"])
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "pages",
    [
        NAME_ALONE,
        {"/v1/models": Reply(404, {})},
        listed(owned_by="somebody"),
        {**VLLM, "/metrics": Reply(404, {})},
        {**VLLM, "/metrics": Reply(500, b"process_start_time_seconds 1")},
        {**VLLM, "/metrics": Reply(200, b"other 2\n")},
        {**VLLM, "/version": Reply(404, {})},
        {**VLLM, **NAME_ALONE},
    ],
    ids=["a name", "no list", "another kind", "no metrics", "broken metrics", "no start", "no version", "no root"],
)
def test_a_server_that_does_not_say_enough_to_be_known_again_is_always_asked(pages: dict[str, Any]) -> None:
    port = 0
    for answer in ("of checkpoint A", "of checkpoint B"):
        # The same address and the same words of itself, with another model behind them.
        with serve(lambda asked, before, answer=answer: said(answer), port, **pages) as double:
            port = double.port
            texts, live = ask(double)
            assert (texts, live.generated, live.cached, len(double.asked)) == ([answer] * 2, 2, 0, 2)
    assert in_the_cache() == {}


def test_a_server_process_that_still_runs_is_asked_nothing_twice() -> None:
    with serve(lambda asked, before: said(f"answer {before}"), **VLLM) as double:
        texts, live = ask(double)
        # What vLLM gives for a model's creation is the time of the request.
        double.pages.update(listed(created=2))
        again, kept = ask(double)
        assert (again, kept.cached, kept.generated, len(double.asked)) == (texts, 2, 0, 2)
        assert (kept.resolved(), kept.seconds) == (live.resolved(), live.seconds)


@pytest.mark.parametrize(
    "other",
    [
        listed(root="/checkpoints/b"),
        listed(parent="base"),
        {"/version": {"version": "0.33"}},
        {"/metrics": Reply(200, b"process_start_time_seconds 1.75000001e+09\n")},
    ],
    ids=["root", "parent", "version", "start"],
)
def test_another_process_model_or_version_is_asked_and_the_first_ones_answers_stay(other: dict[str, Any]) -> None:
    with serve(lambda asked, before: said(f"answer {before}"), **VLLM) as double:
        first, _ = ask(double)
        double.pages.update(other)
        second, live = ask(double)
        assert (live.cached, {*first} & {*second}) == (0, set())
        double.pages.update(VLLM)
        assert ask(double)[0] == first
        assert len(double.asked) == 4


def test_another_address_is_asked_and_neither_it_nor_a_secret_is_kept() -> None:
    for answer in ("here", "there"):
        with serve(lambda asked, before, answer=answer: said(answer), **VLLM) as double:
            texts, live = ask(double)
            assert (texts, live.cached) == ([answer] * 2, 0)
    kept = in_the_cache()
    assert len(kept) == 4
    for secret in (KEY, "127.0.0.1", str(double.port), "/checkpoints", "1.75e+09"):
        assert not any(secret.encode() in content for content in kept.values())


@pytest.mark.parametrize(
    ("pages", "why", "cached"),
    [
        (VLLM, "finished batches are kept, the same command resumes after them", 1),
        (NAME_ALONE, "no answer was kept, since the server does not say enough", 0),
    ],
    ids=["vLLM", "a name"],
)
def test_calls_that_broke_off_resume_where_the_server_is_known_again(pages: dict[str, Any], why: str, cached: int) -> None:
    def answer(asked: Asked, before: int) -> Reply:
        return Reply(500, {"error": {"message": "broken"}}) if before == 1 else said(f"answer {before}")

    with serve(answer, **pages) as double:
        with pytest.raises(EngineError, match=why):
            ask(double)
        live = ask(double)[1]
    assert (live.cached, live.generated) == (cached, 2 - cached)


def test_token_ids_made_by_a_pinned_tokenizer_do_not_say_what_the_server_serves(tiny_model: Path) -> None:
    # Nobody compared the hashed files with the server's.
    changes = {"model": Pin(folder=str(tiny_model)), "options": {"model": "m", "retries": 0}}
    with serve(lambda asked, before: ids([70 + before, 1]), **NAME_ALONE) as double:
        assert [ask(double, **changes)[1].cached for _ in range(2)] == [0, 0]
        double.pages.update(VLLM)
        assert [ask(double, **changes)[1].cached for _ in range(2)] == [0, 2]
        assert len(double.asked) == 6
