"""CAR: a model splits the question into hops of one relation; each is looked up, and its answer fills in the later ones.

The two papers differ in `settings.missing`. `skip`: a hop without its dependencies is skipped, the others are looked up.
`stop`: the first hop without an answer ends the chain. The last answer found counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from extract.json_answers import TRAILING, read_items
from extract.pipelines import Case, Steps
from extract.pipelines.candidates import text_of
from extract.pipelines.records import Hop
from extract.pipelines.sh_conflict import Found, Method, sh_conflict
from offline.canonical import encode
from readers.calls.caller import Ask, chat
from readers.records import Decoding, Prediction

SCHEMA = encode(
    {
        "type": "object",
        "properties": {"hops": {"type": "array", "items": {"type": "string"}}},
        "required": ["hops"],
        "additionalProperties": False,
    }
).decode()

# The stage of the call that splits a question.
PLANNING = "decompose"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_HOP = re.compile(r"hop_([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Plan:
    """The hops of a question."""

    hops: tuple[str, ...]  # their queries
    placeholders: bool  # words in braces stand for answers; False: they are the question's own
    fault: str | None = None  # why the question itself is the one hop; None if it was split
    note: str | UnsetType = UNSET  # as in `Trace`


@dataclass(frozen=True)
class Chain:
    """The outcome of a question's hops."""

    plan: Plan
    planned_by: str  # digest of the planning call
    hops: tuple[Hop, ...]
    looked_up: tuple[Found, ...]  # results of the hops that were looked up, in order


def car(case: Case, method: Method) -> Steps[Chain]:
    """Plan the hops of a question, then look them up one by one."""
    prediction = yield planning(case)
    plan = read_plan(prediction, case.question.text, case.settings.hops)
    hops: list[Hop] = []
    looked_up: list[Found] = []
    answers: dict[int, str] = {}
    for number, query in enumerate(plan.hops, 1):
        failed = next((hop.number for hop in hops if hop.outcome != "answered"), None)
        if failed is not None and case.settings.missing == "stop":
            hops.append(Hop(number, query, None, None, None, "stopped", f"hop {failed} had no answer"))
            continue
        missing = _missing(query, number, answers) if plan.placeholders else None
        if missing is not None:
            hops.append(Hop(number, query, None, None, None, "skipped", missing))
            continue
        resolved = _PLACEHOLDER.sub(lambda found: answers[_hop(found[1])], query) if plan.placeholders else query
        found = yield from sh_conflict(case, resolved, method, chained=True)
        looked_up.append(found)
        listed = case.keep(found.listed)
        if found.choice is None:
            hops.append(Hop(number, query, resolved, listed, None, "empty"))
        else:
            answers[number] = found.choice.answer
            hops.append(Hop(number, query, resolved, listed, found.choice.answer, "answered", chosen=found.choice.position))
    return Chain(plan, prediction.request, tuple(hops), tuple(looked_up))


def planning(case: Case) -> Ask:
    """The call that splits the question."""
    settings = case.settings
    decoding = Decoding(output_cap=settings.output_cap, schema=SCHEMA if settings.constrained else None)
    return Ask(PLANNING, chat(settings.prompt.decompose, {"question": case.question.text}), decoding)


def read_plan(prediction: Prediction, question: str, most: int) -> Plan:
    """The first `most` planned hops; the question itself as the one hop if no plan can be read."""
    planned, wrong = read_items(prediction, "hops")
    hops = tuple(filter(None, map(text_of, planned)))
    whole = wrong in (None, TRAILING)
    if whole and planned and len(hops) == len(planned) and all(map(str.strip, hops)):
        notes = (wrong, f"{len(hops)} hops were planned, {most} are looked up" if len(hops) > most else None)
        return Plan(hops[:most], True, note="; ".join(filter(None, notes)) or UNSET)
    if whole:
        wrong = "a planned hop is no question" if planned else "no hop was planned"
    return Plan((question,), False, f"{wrong}; the question itself is the one hop")


def _hop(placeholder: str) -> int:
    """The hop number in a placeholder; 0 if there is none."""
    spelled = _HOP.fullmatch(placeholder)
    return int(spelled[1]) if spelled else 0


def _missing(query: str, number: int, answers: Mapping[int, str]) -> str | None:
    """The reason why a hop cannot be looked up; None if all its references are answered."""
    for placeholder in _PLACEHOLDER.findall(query):
        named = _hop(placeholder)
        if named == 0:
            return f"{{{placeholder}}} names no hop"
        if named >= number:
            return f"hop {named} is {'this hop itself' if named == number else 'no earlier hop'}"
        if named not in answers:
            return f"hop {named} has no answer"
    return None
