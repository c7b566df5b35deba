"""Statements to calls and back: the prompt's records, the schema of the answer, and its parsing.

Every statement of a call comes back with a draft, or with the reason why there is none. Instructions hidden in a statement can
at most spoil answers: an entry counts only for the statement of its number, and its spans must occur in that statement.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from extract.frontends.checks import left_to_reader, relation_name, span_fault
from extract.frontends.records import Draft
from extract.json_answers import read_items
from offline.canonical import Record
from offline.config.calls import CallPrompt, ExtractionPrompt, Extractor
from offline.errors import ConfigurationError
from offline.records import Status, Triple
from readers.calls.caller import Ask, Caller, chat
from readers.records import Decoding, Prediction

RECORDS = "records"
# The most facts of one statement, so that a model that repeats itself comes to an end: a schema ends the list there; in a
# freely decoded answer more are a fault.
MOST_FACTS = 8
# Characters kept of a message about an entry's form.
_LONGEST_ERROR = 200


class Fact(Record, frozen=True):
    """A fact as the model wrote it."""

    subject: str
    relation: str
    object: str


class Entry(Record, frozen=True):
    """The model's answer about one record."""

    id: int
    status: Status
    facts: tuple[Fact, ...] = ()


# Line breaks that JSON leaves as they are.
_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}


def json_line(value: Any) -> str:
    """A value as one line of JSON, with text unescaped; nothing in a text can end its line or its string."""
    return json.dumps(value, ensure_ascii=False).translate(_BREAKS)


def record_lines(texts: Sequence[str]) -> str:
    """The records of a call, numbered from 1, one line of JSON each."""
    return "\n".join(json_line({"id": n, "text": text}) for n, text in enumerate(texts, 1))


@lru_cache(maxsize=64)
def schema(count: int) -> str:
    """The JSON Schema of an answer about `count` records: each number once, in order, with facts only where it has any.

    Strings have no length limit: with one, xgrammar 0.2.9 allows neither quotes nor backslashes in them.
    """
    text = {"type": "string"}
    fact = {
        "type": "object",
        "properties": {"subject": text, "relation": text, "object": text},
        "required": ["subject", "relation", "object"],
        "additionalProperties": False,
    }

    def entry(number: int, statuses: list[str], facts: dict[str, Any]) -> dict[str, Any]:
        properties = {"id": {"const": number}, "status": {"enum": statuses}, "facts": {"type": "array", "items": fact, **facts}}
        return {
            "type": "object",
            "properties": properties,
            "required": ["id", "status", "facts"],
            "additionalProperties": False,
        }

    def either(number: int) -> dict[str, Any]:
        stated = entry(number, ["facts"], {"minItems": 1, "maxItems": MOST_FACTS})
        return {"anyOf": [stated, entry(number, ["unresolved", "no_fact"], {"maxItems": 0})]}

    records = {"type": "array", "prefixItems": [either(number) for number in range(1, count + 1)], "items": False}
    whole = {
        "type": "object",
        "properties": {RECORDS: {**records, "minItems": count, "maxItems": count}},
        "required": [RECORDS],
        "additionalProperties": False,
    }
    # Not canonical JSON: properties stand in the order in which the model shall write them.
    return json.dumps(whole, separators=(",", ":"))


def answer_skeleton() -> str:
    """An entry with one fact and a relation's name, subject and object left empty."""
    return json.dumps(
        {"id": 1, "status": "facts", "facts": [{"subject": "", "relation": "relation", "object": ""}]}, separators=(",", ":")
    )


def decoding(extractor: Extractor, count: int) -> Decoding:
    """The decoding of an answer about `count` records: their share of the output cap, and an eighth of the cap more."""
    share = extractor.output_cap * count // extractor.statements
    cap = max(1, min(extractor.output_cap, share + extractor.output_cap // 8))
    return Decoding(output_cap=cap, schema=schema(count) if extractor.constrained else None)


def quarter(extractor: Extractor, caller: Caller) -> int:
    """A quarter of a full call's room, in tokens: the limit for its statements, and for the relation names it shows."""
    return caller.room(decoding(extractor, extractor.statements)) // 4


def ask(extractor: Extractor, stage: Literal["extract", "repair"], texts: Sequence[str], **values: str) -> Ask:
    """The call about these texts; `values` fill the prompt's other slots."""
    prompt: CallPrompt = getattr(extractor.prompt, stage)
    return Ask(stage, chat(prompt, {"records": record_lines(texts), **values}), decoding(extractor, len(texts)))


def check_caps(extractor: Extractor, caller: Caller) -> None:
    """ConfigurationError if no statement could ever be read: no room for the prompt or for an answer with one fact."""
    if (why := caller.refusal(ask(extractor, "extract", [""], relations=json_line([])))) is not None:
        raise ConfigurationError(
            f"extractor: no call about a statement can be made: with none in it, {why}; mend the prompt "
            f"{extractor.prompt.name!r}, raise input_cap, or lower output_cap where the model's window is the limit"
        )
    # The tokens of a server's model are not known here, so its answers cannot be measured.
    least = caller.count(f'{{"{RECORDS}":[{answer_skeleton()}]}}') if caller.settings.unit == "tokens" else 1
    if least > extractor.output_cap:
        raise ConfigurationError(
            f"extractor: output_cap {extractor.output_cap} has no room for any answer: one fact takes {least} tokens, its "
            "subject and object not counted; raise output_cap"
        )


# A draft, or why there is none.
Read = Draft | str


def read_answer(
    prediction: Prediction, texts: Sequence[str], prompt: ExtractionPrompt, by: Literal["model", "repair"]
) -> list[Read]:
    """A draft or fault for each of a call's texts. Entries for other numbers are ignored."""
    items, fault = read_items(prediction, RECORDS)
    entries: dict[int, list[Entry | str]] = {}
    for item in items:
        number = item.get("id") if isinstance(item, dict) else None
        if type(number) is int:
            entries.setdefault(number, []).append(_entry(item))
    found: list[Read] = []
    for number, text in enumerate(texts, 1):
        of_text = entries.get(number, [])
        if not of_text:
            found.append(fault or "the answer does not mention it")
        elif len(of_text) > 1:
            found.append("the answer mentions it more than once")
        else:
            found.append(_draft(of_text[0], text, prompt, by, prediction.request))
    return found


def _entry(item: Any) -> Entry | str:
    try:
        return msgspec.convert(item, Entry)
    except UnicodeEncodeError:
        return "its entry holds what is no character"
    except msgspec.ValidationError as error:
        # The message may quote the answer.
        return f"its entry is not of the form that was asked for: {str(error)[:_LONGEST_ERROR]}"


def _draft(entry: Entry | str, text: str, prompt: ExtractionPrompt, by: Literal["model", "repair"], call: str) -> Read:
    if isinstance(entry, str):
        return entry
    if len(entry.facts) > MOST_FACTS:
        return f"it has {len(entry.facts)} facts, and an answer may give {MOST_FACTS} of one record"
    if (entry.status == "facts") != bool(entry.facts):
        return f"its status is {entry.status!r} with {len(entry.facts)} facts"
    triples = tuple(dict.fromkeys(Triple(f.subject, relation_name(f.relation), f.object) for f in entry.facts))
    for triple in triples:
        if (wrong := span_fault(text, triple)) is not None:
            return wrong
    said = {"facts": None, "unresolved": "the model left it to the reader", "no_fact": "the model found no fact in it"}
    return settle(text, triples, prompt, Draft(text, entry.status, triples, said[entry.status], by, call))


def settle(text: str, triples: Sequence[Triple], prompt: ExtractionPrompt, draft: Draft) -> Draft:
    """The draft, or an unresolved one where code leaves the statement to the reader."""
    reason = left_to_reader(text, triples, prompt)
    return draft if reason is None else Draft(text, "unresolved", (), reason, draft.by, draft.call)
