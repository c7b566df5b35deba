"""SH-Conflict: a model lists the matching candidates, then an explicit policy, or the model again, takes one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from extract.json_answers import TRAILING, is_structured, read_object, read_text
from extract.pipelines import Case, Steps
from extract.pipelines.candidates import extraction, position_of, text_of, usable
from extract.pipelines.policies import Choice, find_policy
from extract.pipelines.records import Candidate, CandidateList
from offline.canonical import encode
from offline.records import Statement
from offline.render import record_line
from readers.calls.caller import Ask, chat
from readers.records import Decoding, Prediction

# Stands for a policy: the model chooses.
LLM = "llm"
SCHEMA = encode(
    {
        "type": "object",
        "properties": {"position": {"type": "integer"}, "value": {"type": "string"}},
        "required": ["position", "value"],
        "additionalProperties": False,
    }
).decode()


@dataclass(frozen=True)
class Method:
    """How candidates are found and chosen."""

    unit: str = "statement"  # what is retrieved
    policy: str = "newest"  # its name, or `llm`
    again: int = 0  # 1 asks for the list a second time


@dataclass(frozen=True)
class Found:
    """The result of one look-up; fault and note as in `Trace`."""

    listed: CandidateList
    choice: Choice | None  # None = no answer
    calls: tuple[str, ...]  # digests of the calls behind it
    fault: str | None
    note: str | UnsetType


def sh_conflict(case: Case, query: str, method: Method, *, chained: bool = False) -> Steps[Found]:
    """Look up one query, for a hop of a chain if `chained`. A blank choice is no answer."""
    listed = yield from extraction(case, query, method.unit, method.again)
    candidates = usable(listed, case.settings)
    calls: tuple[str, ...] = (listed.call,)
    fault, note, choice = listed.fault, listed.note, None
    if candidates and method.policy == LLM:
        prediction = yield choosing(case, query, candidates)
        choice, wrong, noted = read_choice(prediction, candidates, chained=chained)
        calls, fault, note = (*calls, prediction.request), fault or wrong, note or noted
    elif candidates:
        choice = find_policy(method.policy)(candidates)
    return Found(listed, choice if choice and choice.answer.strip() else None, calls, fault, note)


def choosing(case: Case, query: str, candidates: Sequence[Candidate]) -> Ask:
    """The call that lets the model choose: one line a candidate, in the order of the list."""
    settings = case.settings
    lines = [record_line(Statement(c.position, f"{c.entity} (record: {c.text})", c.time)) for c in candidates]
    decoding = Decoding(output_cap=settings.output_cap, schema=SCHEMA if settings.constrained else None)
    return Ask("choose", chat(settings.prompt.choose, {"candidates": "\n".join(lines), "question": query}), decoding)


def read_choice(
    prediction: Prediction, candidates: Sequence[Candidate], *, chained: bool = False
) -> tuple[Choice, str | None, str | UnsetType]:
    """The model's choice, and its answer's fault and note as in `Trace`.

    An unreadable answer is taken as it is, a failed call as none. In a chain, JSON without a value is none either, since it
    would be put into the next hop's question.
    """
    chosen, wrong = read_object(prediction)
    answer, position = text_of(chosen.get("value")), position_of(chosen.get("position"))
    if answer is None:
        said = "" if chained and is_structured(prediction) else read_text(prediction)[0]
        return Choice(said, None), (wrong if wrong != TRAILING else None) or "no value was chosen", UNSET
    if position not in {candidate.position for candidate in candidates}:
        return Choice(answer, None), None, "the position chosen is no candidate's"
    return Choice(answer, position), None, wrong or UNSET
