"""What a model answered, read as JSON."""

import time
from collections.abc import Callable

import pytest

from extract.answers import read_items, read_number, read_object
from readers.records import Prediction

BLANKS = " " * 100_000
READ: dict[str, Callable[[Prediction], object]] = {
    "items": lambda prediction: read_items(prediction, "records"),
    "object": read_object,
    "number": lambda prediction: read_number(prediction, "same", 3),
}


def said(text: str) -> Prediction:
    return Prediction(request="", output_ids=(), text=text, finish_reason="length", error=None)


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("text", ['{"records":[]}', '{"same":1}', '```json\n{"same":1}\n```'])
def test_a_model_that_writes_blanks_up_to_its_cap_costs_no_more_than_their_number(kind: str, text: str) -> None:
    began = time.perf_counter()
    for answer in (text + BLANKS + "x", BLANKS + text + "x", "```" + BLANKS + "x", text[:-1] + BLANKS, BLANKS):
        READ[kind](said(answer))
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("around", ["{}", " {} \n", "```json\n{}\n```\n", "``` {} ```", "\t```{}```"])
def test_a_fence_and_blanks_around_an_answer_do_not_matter(around: str) -> None:
    assert read_items(said(around.replace("{}", '{ "records" : [ 1 , 2 ] }')), "records") == ([1, 2], None)
    assert read_object(said(around.replace("{}", '{"a": {"b": 1}}'))) == ({"a": {"b": 1}}, None)
    assert read_number(said(around.replace("{}", '{ "same" : 2 }')), "same", 3) == (2, None)
