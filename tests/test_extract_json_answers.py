"""What a model answered as JSON: what is read does not hang on what surrounds it, and reading takes no longer than writing."""

import json
import time
from collections.abc import Callable

import pytest

from extract.json_answers import read_items, read_number, read_object, read_text
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


NUMBERS = {
    '{"same": 3}': 3,
    ' {\n\t"same" :\r 0 } ': 0,
    '{"same": 8}': "8 is none of the numbers that were shown",
    '{"same": -1}': "-1 is none of the numbers that were shown",
    '{"same": \u0663}': NOT_JSON,  # three, in Arabic
    '{"same": 007}': NOT_JSON,
    '{"same": +3}': NOT_JSON,
    '{"same": 3.0}': NOT_JSON,
    '{"same": true}': NOT_JSON,
    '{"same": "3"}': NOT_JSON,
    '{"same": 3, "why": "x"}': NOT_JSON,
    '{"same": 3, "same": 3}': NOT_JSON,
    '{"other": 3}': NOT_JSON,
    '{"same":\xa03}': NOT_JSON,
    '{"same": 3} indeed': NOT_JSON,
    '{"same": ' + "9" * 10_000 + "}": NOT_JSON,
    "[3]": NOT_JSON,
    "": NOT_JSON,
}


@pytest.mark.parametrize("text", NUMBERS, ids=range(len(NUMBERS)))
def test_a_number_is_what_json_takes_for_one(text: str) -> None:
    expected = NUMBERS[text]
    assert read_number(_said(text), "same", 7) == ((expected, None) if isinstance(expected, int) else (None, expected))


# An answer with a gap, and the items that stand whole before it.
GAPS = {
    '{%s"a":[1,2]}': [],
    '{"a"%s:[1,2]}': [],
    '{"a":%s[1,2]}': [],
    '{"a":[%s1,2]}': [],
    '{"a":[1%s,2]}': [1],
    '{"a":[1,%s2]}': [1],
    '{"a":[1,2%s]}': [1, 2],
    '{"a":[1,2]%s}': [1, 2],
}


@pytest.mark.parametrize("gap", GAPS)
def test_inside_an_answer_white_space_is_that_of_json_alone(gap: str) -> None:
    assert read_items(_said(gap.replace("%s", " \n\t\r")), "a") == ([1, 2], None)
    for blank in ("\xa0", "\u2003", "\v", "\f", "\x85", "\u2028"):
        with pytest.raises(json.JSONDecodeError):
            json.loads(gap.replace("%s", blank))
        assert read_items(_said(gap.replace("%s", blank)), "a") == (GAPS[gap], NOT_JSON)
