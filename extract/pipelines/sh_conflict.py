"""SH-Conflict: a model lists the matching candidates, then an explicit policy, or the model once more, takes one of them."""

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

# In the place of a policy's name: the model chooses.
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
    """How candidates are found and chosen: what is retrieved, a policy (or `llm`), whether the list is asked for again."""

    unit: str = "statement"
    policy: str = "newest"
    again: int = 0


@dataclass(frozen=True)
class Found:
    """What one look-up came to: its list, its choice (None: no answer), the calls that it rests on; the rest as in `Trace`."""

    listed: CandidateList
    choice: Choice | None
    calls: tuple[str, ...]
    fault: str | None
    note: str | UnsetType


def sh_conflict(case: Case, query: str, method: Method, *, chained: bool = False) -> Steps[Found]:
    """Look one query up, for a hop of a chain if `chained`. A choice without a word is no answer."""
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
    """The call that lets the model choose: one line a candidate, in the order in which they were listed."""
    settings = case.settings
    lines = [record_line(Statement(c.position, f"{c.entity} (record: {c.text})", c.time)) for c in candidates]
    decoding = Decoding(output_cap=settings.output_cap, schema=SCHEMA if settings.constrained else None)
    return Ask("choose", chat(settings.prompt.choose, {"candidates": "\n".join(lines), "question": query}), decoding)


def read_choice(
    prediction: Prediction, candidates: Sequence[Candidate], *, chained: bool = False
) -> tuple[Choice, str | None, str | UnsetType]:
    """What a model chose, and the fault and the note of its answer, as in `Trace`.

    What cannot be read is taken as it is, a failed call as none. In a chain JSON without a value is none either: it would be
    put into the next hop's question.
    """
    chosen, wrong = read_object(prediction)
    answer, position = text_of(chosen.get("value")), position_of(chosen.get("position"))
    if answer is None:
        said = "" if chained and is_structured(prediction) else read_text(prediction)[0]
        return Choice(said, None), (wrong if wrong != TRAILING else None) or "no value was chosen", UNSET
    if position not in {candidate.position for candidate in candidates}:
        return Choice(answer, None), None, "the position chosen is no candidate's"
    return Choice(answer, position), None, wrong or UNSET
