"""What a model answered, read as JSON: the complete items of one list, and what was wrong with the rest.

A model may be cut off, wrap its answer into a fence, or write anything else. Nothing here trusts it: items are plain JSON
values, and the caller checks them.
"""

import json
import re
from typing import Any

from readers.records import Prediction

_OPENING = re.compile(r'\s*(?:```(?:json)?\s*)?\{\s*"(\w+)"\s*:\s*\[\s*')
# White space is matched possessively where the whole answer must fit: a model may write nothing else up to its cap, and parts
# that try to share a run of it take time that grows with its square.
_BEFORE = re.compile(r"\s*+(?:```(?:json)?\s*+)?(?=\{)")
_STRUCTURED = re.compile(r"\s*+(?:```(?:json)?\s*+)?[{\[]")
_AFTER = re.compile(r"\s*+(?:```\s*+)?")
_NUMBER = re.compile(r'\s*+(?:```(?:json)?\s*+)?\{\s*+"(\w+)"\s*+:\s*+(\d{1,9})\s*+\}\s*+(?:```\s*+)?')
_SEPARATOR = re.compile(r"\s*,\s*")
# What is to be said of a whole answer that something follows.
TRAILING = "text after the JSON"
_CLOSING = re.compile(r"\s*\]\s*\}\s*(?:```)?\s*")


class _RefusedError(ValueError):
    """Something that JSON readers let pass: a key given twice, a number that is none."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RefusedError("a key is given twice")
    return found


def _constant(name: str) -> Any:
    raise _RefusedError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)


def failure(prediction: Prediction) -> str | None:
    """Why a call gave no answer at all; None if it gave one."""
    if prediction.finish_reason == "error":
        return prediction.error or "the call failed"
    return None


def read_text(prediction: Prediction) -> tuple[str, str | None]:
    """The whole answer as it is, empty if the call failed, whatever came before it did; and why it failed, or None."""
    failed = failure(prediction)
    return (prediction.text if failed is None else ""), failed


def read_items(prediction: Prediction, key: str) -> tuple[list[Any], str | None]:
    """The items of `{"KEY": [item, …]}` up to the first that is not complete, and what is wrong with the answer, or None."""
    if (failed := failure(prediction)) is not None:
        return [], failed
    text = prediction.text
    cut = _unreadable(prediction)
    opening = _OPENING.match(text)
    if opening is None or opening[1] != key:
        return [], cut
    items: list[Any] = []
    at = opening.end()
    while not (closing := _CLOSING.match(text, at)):
        if items:
            separator = _SEPARATOR.match(text, at)
            if separator is None:
                return items, cut
            at = separator.end()
        try:
            item, at = _DECODER.raw_decode(text, at)
        except _RefusedError as error:
            return items, str(error)
        except (ValueError, RecursionError):
            return items, cut
        items.append(item)
    return items, None if closing.end() == len(text) else TRAILING


def read_object(prediction: Prediction) -> tuple[dict[str, Any], str | None]:
    """The object that an answer begins with, empty if that is none, and what is wrong with the answer, or None."""
    if (failed := failure(prediction)) is not None:
        return {}, failed
    opening = _BEFORE.match(prediction.text)
    if opening is None:
        return {}, _unreadable(prediction)
    try:
        value, end = _DECODER.raw_decode(prediction.text, opening.end())
    except _RefusedError as error:
        return {}, str(error)
    except (ValueError, RecursionError):
        return {}, _unreadable(prediction)
    return value, None if _AFTER.fullmatch(prediction.text, end) else TRAILING


def _unreadable(prediction: Prediction) -> str:
    return "cut off at the output cap" if prediction.finish_reason == "length" else "not the JSON that was asked for"


def is_structured(prediction: Prediction) -> bool:
    """Whether an answer is JSON, whole or not: it begins as an object or a list does."""
    return _STRUCTURED.match(prediction.text) is not None


def read_number(prediction: Prediction, key: str, most: int) -> tuple[int | None, str | None]:
    """The number 0..`most` of `{"KEY": number}`, or what is wrong with the answer."""
    if (failed := failure(prediction)) is not None:
        return None, failed
    found = _NUMBER.fullmatch(prediction.text)
    if found is None or found[1] != key:
        return None, "not the JSON that was asked for"
    number = int(found[2])
    return (number, None) if number <= most else (None, f"{number} is none of the numbers that were shown")
