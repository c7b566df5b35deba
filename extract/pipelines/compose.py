"""The pipelines of the papers and their controls, by composed names.

    direct[_sampled][_chunkN]
    (sh_conflict|car)[_rerun][_llm|_POLICY][_fallback][_chunkN]

`direct` answers from the retrieved records in one call; `_sampled` does so at the one temperature above 0. `sh_conflict` lists
candidates and applies a policy, by default `newest`; `_llm` lets the model choose from the same list; `_rerun` asks for the
list a second time, as the papers did. `car` does this hop by hop (car.py). `_fallback` gives the direct answer where there is
no other. Single statements are retrieved, or chunks of N characters.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from extract.json_answers import read_text
from extract.pipelines import Case, Pipeline, Shown, Steps
from extract.pipelines.car import car
from extract.pipelines.policies import POLICIES, Choice
from extract.pipelines.records import NO_ANSWER, Trace
from extract.pipelines.sh_conflict import LLM, Found, Method, sh_conflict
from readers.calls.caller import Ask
from readers.records import Decoding, Prediction
from readers.tokens.chat import messages

_UNIT = r"(?:_(?P<unit>chunk[1-9][0-9]{1,6}))?"
_DIRECT = re.compile(rf"direct(?P<sampled>_sampled)?{_UNIT}")
_STRUCTURED = re.compile(
    rf"(?P<chain>sh_conflict|car)(?P<again>_rerun)?(?:_(?P<policy>(?!fallback|chunk[0-9]).+?))?(?P<fallback>_fallback)?{_UNIT}"
)


@dataclass(frozen=True)
class Direct:
    """One call: the reader's own prompt over the retrieved records, as in a view of them."""

    unit: str = "statement"
    sampled: bool = False

    def __call__(self, case: Case) -> Steps[Trace]:
        """The model's text is the answer."""
        shown, prediction = yield from direct(case, self.unit, self.sampled)
        answer, fault = read_text(prediction)
        return Trace(
            pipeline=case.pipeline,
            question=case.question.id,
            answer=answer,
            answered_by="model",
            calls=(prediction.request,),
            evidence=shown.positions,
            dropped=shown.dropped,
            fault=fault,
        )


def direct(case: Case, unit: str, sampled: bool = False) -> Steps[tuple[Shown, Prediction]]:
    """Ask for the answer directly."""
    settings, text = case.settings, case.question.text
    decoding = Decoding(output_cap=settings.answer_cap)
    if sampled:
        decoding = Decoding(output_cap=settings.answer_cap, temperature=settings.temperature, seed=settings.seed)
    stage = "direct sampled" if sampled else "direct"
    shown = case.show(text, unit, lambda evidence: Ask(stage, messages(case.prompt, evidence, text), decoding))
    prediction = yield shown.ask
    return shown, prediction


@dataclass(frozen=True)
class Structured:
    """Candidates by a model, a choice by a policy or the model: for the question itself, or hop by hop (`chain`)."""

    method: Method
    chain: bool = False
    fallback: bool = False

    def __call__(self, case: Case) -> Steps[Trace]:
        """The choice is the answer; for several hops, the last choice made."""
        trace = yield from (_chain(case, self.method) if self.chain else _single(case, self.method))
        if not self.fallback or trace.answered_by != "none":
            return trace
        shown, prediction = yield from direct(case, self.method.unit)
        answer, fault = read_text(prediction)
        return replace(
            trace,
            answer=answer,
            answered_by="fallback",
            calls=(*trace.calls, prediction.request),
            evidence=tuple(sorted({*trace.evidence, *shown.positions})),
            dropped=trace.dropped + shown.dropped,
            fault=trace.fault or fault,
        )


def _single(case: Case, method: Method) -> Steps[Trace]:
    found = yield from sh_conflict(case, case.question.text, method)
    return _trace(case, method, [found], (), found.choice)


def _chain(case: Case, method: Method) -> Steps[Trace]:
    chain = yield from car(case, method)
    last = next((found.choice for found in reversed(chain.looked_up) if found.choice is not None), None)
    trace = _trace(case, method, chain.looked_up, (chain.planned_by,), last)
    return replace(trace, fault=chain.plan.fault or trace.fault, note=chain.plan.note or trace.note, hops=chain.hops)


def _trace(case: Case, method: Method, looked_up: Sequence[Found], before: tuple[str, ...], choice: Choice | None) -> Trace:
    """The trace of look-ups that led to a choice; `before`: the calls made before them."""
    calls = (*before, *(call for found in looked_up for call in found.calls))
    return Trace(
        pipeline=case.pipeline,
        question=case.question.id,
        answer=choice.answer if choice else NO_ANSWER,
        answered_by="none" if choice is None else "model" if method.policy == LLM else "policy",
        calls=tuple(dict.fromkeys(calls)),
        evidence=tuple(sorted({position for found in looked_up for position in found.listed.shown})),
        dropped=sum(listed.dropped for listed in {found.listed.call: found.listed for found in looked_up}.values()),
        chosen=choice.position if choice else None,
        candidates=case.keep(looked_up[-1].listed) if looked_up else None,
        fault=next((found.fault for found in looked_up if found.fault), None),
        note=next((found.note for found in looked_up if found.note), UNSET),
    )


def parse(name: str) -> Pipeline | None:
    """The built-in pipeline that a name spells; None if it spells none."""
    if spelled := _DIRECT.fullmatch(name):
        return Direct(spelled["unit"] or "statement", bool(spelled["sampled"]))
    spelled = _STRUCTURED.fullmatch(name)
    policy = (spelled["policy"] or "newest") if spelled else ""
    if spelled is None or not (policy == LLM or policy in POLICIES):
        return None
    method = Method(spelled["unit"] or "statement", policy, again=1 if spelled["again"] else 0)
    return Structured(method, chain=spelled["chain"] == "car", fallback=bool(spelled["fallback"]))
