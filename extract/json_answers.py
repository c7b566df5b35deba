"""A model's answer as JSON: the complete items of one list, and the fault of the rest.

An answer may be cut off, fenced or anything else. Nothing is trusted: items are plain JSON values that the caller checks.
"""

import json
import re
from typing import Any

from readers.records import Prediction

# Around the JSON: white space and a fence. White space is matched possessively: a model may write nothing else up to its cap,
# and parts that could share a run of it take time quadratic in its length.
_FENCE, _END = r"\s*+(?:```(?:json)?\s*+)?", r"\s*+(?:```\s*+)?"
# White space within it, as JSON defines it.
_BLANK = r"[ \t\n\r]*+"
_BEFORE, _AFTER = re.compile(rf"{_FENCE}(?=\{{)"), re.compile(_END)
_STRUCTURED = re.compile(rf"{_FENCE}[{{\[]")
_OPENING = re.compile(rf'{_FENCE}\{{{_BLANK}"(\w+)"{_BLANK}:{_BLANK}\[{_BLANK}')
_SEPARATOR = re.compile(rf"{_BLANK},{_BLANK}")
_CLOSING = re.compile(rf"{_BLANK}\]{_BLANK}\}}{_END}")
# Faults: an answer that is no such JSON, and one with text after the whole JSON.
OTHERWISE, TRAILING = "not the JSON that was asked for", "text after the JSON"


class _RefusedError(ValueError):
    """Something that JSON readers accept but must not be: a repeated key, a number that is none."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RefusedError("a key is given twice")
    return found


def _constant(name: str) -> Any:
    raise _RefusedError(f"{name} is no number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)


def failure(prediction: Prediction) -> str | None:
    """The reason why a call gave no answer; None if it gave one."""
    if prediction.finish_reason == "error":
        return prediction.error or "the call failed"
    return None


def read_text(prediction: Prediction) -> tuple[str, str | None]:
    """The whole answer (empty if the call failed, whatever preceded the failure), and the reason of a failure or None."""
    failed = failure(prediction)
    return (prediction.text if failed is None else ""), failed


def read_items(prediction: Prediction, key: str) -> tuple[list[Any], str | None]:
    """The items of `{"KEY": [item, …]}` up to the first incomplete one, and the answer's fault or None."""
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
    """The object that an answer begins with (empty if there is none), and the answer's fault or None."""
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
    return "cut off at the output cap" if prediction.finish_reason == "length" else OTHERWISE


def is_structured(prediction: Prediction) -> bool:
    """True if an answer begins as a JSON object or list, complete or not."""
    return _STRUCTURED.match(prediction.text) is not None


def read_number(prediction: Prediction, key: str, most: int) -> tuple[int | None, str | None]:
    """The number 0..`most` of `{"KEY": number}` or None, and the answer's fault or None."""
    if (failed := failure(prediction)) is not None:
        return None, failed
    value, fault = read_object(prediction)
    number = value.get(key)
    if fault is not None or len(value) != 1 or type(number) is not int:
        return None, OTHERWISE
    return (number, None) if 0 <= number <= most else (None, f"{number} is none of the numbers that were shown")
