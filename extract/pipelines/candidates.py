"""Candidate extraction: a model lists every record that matches a query, and chooses none."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec import UNSET

from extract.json_answers import TRAILING, read_items
from extract.pipelines import Case, Steps
from extract.pipelines.records import Candidate, CandidateList
from offline.canonical import encode
from offline.config.calls import PipelineSettings
from offline.entity_keys import entity_key
from offline.records import Statement
from offline.render import one_line
from readers.calls.caller import Ask, chat
from readers.records import Decoding, Prediction

# In alphabetical order, as canonical JSON keeps the names and a model held to the schema writes them.
_CANDIDATE = {
    "type": "object",
    "properties": {"position": {"type": "integer"}, "record": {"type": "string"}, "value": {"type": "string"}},
    "required": ["position", "record", "value"],
    "additionalProperties": False,
}
SCHEMA = encode(
    {
        "type": "object",
        "properties": {"candidates": {"type": "array", "items": _CANDIDATE}},
        "required": ["candidates"],
        "additionalProperties": False,
    }
).decode()

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ELLIPSIS = re.compile(r"…|\.{3,}")
# A place that is not inside a number.
_NOT_IN_NUMBER = r"(?:(?<!\d)|(?!\d))"
# A point or comma within a number, for which a key has a blank.
_JOINT = re.compile(r"(?<=\d)[.,](?=\d)")

NOT_SHOWN, NOT_IN_RECORD = "the position was not shown", "the value does not stand in the record"
NOT_QUOTED = "the text is not what the record says"


def extraction(case: Case, query: str, unit: str, again: int) -> Steps[CandidateList]:
    """Retrieve for a query and ask for every matching record; the list, kept for the run."""
    settings = case.settings
    decoding = Decoding(output_cap=settings.output_cap, schema=SCHEMA if settings.constrained else None, again=again)
    stage = "candidates again" if again else "candidates"

    def ask(evidence: str) -> Ask:
        return Ask(stage, chat(settings.prompt.candidates, {"evidence": evidence, "question": query}), decoding)

    shown = case.show(query, unit, ask)
    prediction = yield shown.ask
    records = {position: case.records.statement(position) for position in shown.positions}
    listed = read_candidates(query, records, shown.dropped, prediction)
    case.keep(listed)
    return listed


def read_candidates(query: str, records: Mapping[int, Statement], dropped: int, prediction: Prediction) -> CandidateList:
    """The candidate list in an answer of any form; `records` are those that were shown.

    Duplicates are merged. A malformed answer keeps its complete items, and `fault` or `note` says what is wrong.
    """
    items, wrong = read_items(prediction, "candidates")
    read = [_candidate(item, records) for item in items]
    unread = sum(candidate is None for candidate in read)
    faults = (None if wrong == TRAILING else wrong, f"{unread} of {len(items)} items are no candidates" if unread else None)
    return CandidateList(
        query=query,
        call=prediction.request,
        shown=tuple(records),
        dropped=dropped,
        candidates=tuple(dict.fromkeys(candidate for candidate in read if candidate is not None)),
        fault="; ".join(filter(None, faults)) or None,
        note=TRAILING if wrong == TRAILING else UNSET,
    )


def position_of(value: object) -> int | None:
    """The position that a model wrote: a 64-bit integer, also as a string or as a float equal to one; else None."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def text_of(value: object) -> str | None:
    """The text that a model wrote; None if it is none or holds a lone surrogate, which cannot be stored."""
    return value if isinstance(value, str) and not _SURROGATE.search(value) else None


def _candidate(item: Any, records: Mapping[int, Statement]) -> Candidate | None:
    """One item; None unless it holds a position, a text and a value."""
    if not isinstance(item, dict):
        return None
    position, text, entity = position_of(item.get("position")), text_of(item.get("record")), text_of(item.get("value"))
    if position is None or text is None or entity is None:
        return None
    record = records.get(position)
    if record is None:
        return Candidate(position=position, text=text, entity=entity, foreign=NOT_SHOWN)
    foreign = NOT_IN_RECORD if not stands_in(entity, record) else None if quotes(text, record) else NOT_QUOTED
    return Candidate(position=position, text=text, entity=entity, time=record.time, foreign=foreign)


def stands_in(entity: str, record: Statement) -> bool:
    """True if a value occurs in a record or its time, normalised as entity keys (spec §3, not the scorer's normalisation).

    It may be part of a word, as names are inflected, but not of a number: 2 is not in 12, 1.2 or 2,000. A value without a
    letter or digit must occur as written; an empty one never does.
    """
    texts = _spelled(record.text if record.time is None else f"{record.time} {record.text}")
    key, written = entity_key(entity), entity.strip()
    if not key:
        return bool(written) and any(written in text for text in texts)
    # The lookahead also finds overlapping places.
    place = re.compile(f"{_NOT_IN_NUMBER}(?={re.escape(key)}{_NOT_IN_NUMBER})")
    return any(_whole_numbers(text, found.start(), len(key)) for text in texts for found in place.finditer(entity_key(text)))


def _whole_numbers(text: str, start: int, length: int) -> bool:
    """True if a stretch of a text's key neither begins nor ends inside a number with points or commas."""
    ends = accumulate((len(entity_key(part)) + 1 for part in _JOINT.split(text)), initial=-1)
    joints = set(list(ends)[1:-1])
    return not {start - 1, start + length} & joints


def quotes(text: str, record: Statement) -> bool:
    """True if a text's entity key is part of the record's (an empty one is); ellipses skip parts, the time may be omitted."""
    heads = [f"{record.position}"] if record.time is None else [f"{record.position}", f"{record.position} {record.time}"]
    parts = [entity_key(part) for part in _ELLIPSIS.split(text)]
    return any(_in_order(parts, entity_key(f"{head} {said}")) for head in heads for said in _spelled(record.text))


def _spelled(text: str) -> set[str]:
    """A record's text as in its source and as shown to the model, whose answer may follow either."""
    return {text, one_line(text)}


def _in_order(parts: Sequence[str], whole: str) -> bool:
    """True if a text holds all of these parts, one after another."""
    at = 0
    for part in parts:
        found = whole.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def usable(listed: CandidateList, settings: PipelineSettings) -> list[Candidate]:
    """The candidates that a policy sees."""
    return [candidate for candidate in listed.candidates if candidate.foreign is None or settings.foreign == "keep"]


def usable_positions(listed: CandidateList, settings: PipelineSettings) -> set[int]:
    """The positions of the candidates that a policy sees."""
    return {candidate.position for candidate in usable(listed, settings)}
