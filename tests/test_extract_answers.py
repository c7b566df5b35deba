"""What a model answered as JSON: what is read does not hang on what surrounds it, and reading takes no longer than writing."""

import time
from collections.abc import Callable

import pytest

from extract.answers import read_items, read_number, read_object, read_text
from readers.records import FinishReason, Prediction

NOT_JSON = "not the JSON that was asked for"


def _said(text: str, finish: FinishReason = "stop", error: str | None = None) -> Prediction:
    return Prediction(request="", output_ids=(), text=text, finish_reason=finish, error=error)


@pytest.mark.parametrize("around", ["{}", " \n{}\t ", "```json\n{}\n```", "```{}```  ", "\u2003```json {} \n ```\n"])
def test_white_space_and_a_fence_around_an_answer_are_no_part_of_it(around: str) -> None:
    assert read_object(_said(around.replace("{}", '{"a": 1}'))) == ({"a": 1}, None)
    assert read_number(_said(around.replace("{}", '{"a": 1}')), "a", 3) == (1, None)
    assert read_items(_said(around.replace("{}", '{"a": [1]}')), "a") == ([1], None)


@pytest.mark.parametrize("read", [read_object, lambda said: read_number(said, "a", 3), lambda said: read_items(said, "a")])
@pytest.mark.parametrize("text", ['{"a": 1}%sx', '{"a": [1]%sx', "%sx", "```json%sx", '{"a": 1}%s```%sx'])
def test_an_answer_padded_without_end_is_read_at_once(read: Callable[[Prediction], object], text: str) -> None:
    # Every way to share the padding between two patterns would be five thousand million ways: minutes.
    began = time.process_time()
    read(_said(text.replace("%s", " " * 100_000)))
    assert time.process_time() - began < 2


def test_a_failed_call_gives_no_text() -> None:
    assert read_text(_said("Rome")) == ("Rome", None)
    assert read_text(_said("Rom", "length")) == ("Rom", None)
    assert read_text(_said("Rome", "error", "aborted")) == ("", "aborted")
    assert read_text(_said("Rome", "error")) == ("", "the call failed")
    assert read_object(_said("[]")) == ({}, NOT_JSON)


@pytest.mark.parametrize("after", ["x", " and so on", "\n```\nwhich is so", "{}", '{"a": 2}', "```x", "}"])
def test_words_after_an_answer_are_a_fault_that_costs_nothing(after: str) -> None:
    assert read_object(_said('{"a": {"b": 1}}' + after)) == ({"a": {"b": 1}}, "text after the JSON")
    assert read_items(_said('{"a": [1]}' + after), "a") == ([1], "text after the JSON")
