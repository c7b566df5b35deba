"""JSON in a model's answer: what was asked for, or whatever of it can be read with certainty.

Nothing that a model can write is an error here: each reader gives what it could read, and says in words what was wrong.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from readers.records import Prediction

# What reading JSON can raise; the last one for brackets nested too deeply.
_MALFORMED = (ValueError, UnicodeError, RecursionError)
_DECODER = json.JSONDecoder()
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Every complete JSON object of a text that lies inside no other complete one, in order.

    Where an outer object is cut off, those are the complete ones inside it. Quotes inside a JSON text are escaped, so nothing
    inside a string is taken for an object with content.
    """
    start = text.find("{")
    while start >= 0:
        try:
            _, end = _DECODER.raw_decode(text, start)
            found = msgspec.json.decode(text[start:end], type=dict[str, Any])
        except (msgspec.DecodeError, *_MALFORMED):
            end = start + 1
        else:
            yield found
        start = text.find("{", end)


def integer(value: object) -> int | None:
    """A position that a model wrote: an integer of 64 bits, also as a text or a float that is one exactly; else None."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def not_as_asked(prediction: Prediction, field: str, kind: type) -> list[str]:
    """What is wrong with an answer that should be one JSON object with this field of this kind; empty if it is."""
    try:
        value = msgspec.json.decode(prediction.text.strip())
    except (msgspec.DecodeError, *_MALFORMED):
        value = None
    if isinstance(value, dict) and isinstance(value.get(field), kind):
        return []
    if prediction.finish_reason == "error":
        return [prediction.error or "the call failed"]
    return ["cut off at the output cap" if prediction.finish_reason == "length" else "not the JSON that was asked for"]
