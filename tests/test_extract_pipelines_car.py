"""CAR: plans that a model can write, and how their hops are looked up."""

import json
import re
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from asking import Scripted, pipelines_experiment, scripted_caller
from hypothesis import given
from hypothesis import strategies as st
from worlds import history, question

from extract.pipelines.car import read_plan
from extract.pipelines.records import Hop, Trace
from extract.pipelines.results import failed
from extract.pipelines.schedule import run_pipelines
from offline.config.experiment import ViewSettings
from readers.records import Decoding, Output, Prediction

# Ada moves from Rome to Paris, and the Seine gets a new mayor, as it were: each hop has an older value.
WORLD = history(
    "Ada lives in Rome.",
    "Rome lies on the Tiber.",
    "Paris lies on the Marne.",
    "Ada lives in Paris.",
    "Paris lies on the Seine.",
    "The Seine flows into the Channel.",
    "The Tiber flows into the Tyrrhenian Sea.",
)
ASKED = "Into what does the river of the home of Ada flow?"
PLAN = ["Where does Ada live?", "On which river does {hop_1} lie?", "Into what does the {hop_2} flow?"]
# What matches each resolved query, worked out by hand.
MATCHES: dict[str, list[tuple[int, str]]] = {
    "Where does Ada live?": [(0, "Rome"), (3, "Paris")],
    "On which river does Paris lie?": [(2, "Marne"), (4, "Seine")],
    "On which river does Rome lie?": [(1, "Tiber")],
    "Into what does the Seine flow?": [(5, "Channel")],
    "Into what does the Tiber flow?": [(6, "Tyrrhenian Sea")],
}


def _listing(items: Sequence[tuple[int, str]]) -> str:
    return json.dumps({"candidates": [{"position": p, "record": "", "value": v} for p, v in items]})


def _asked(text: str) -> str:
    """The question that a chat asks: the last one that it shows."""
    return re.findall(r"Question: (.*)", text)[-1]


def _run(
    plan: object,
    matches: Mapping[str, Sequence[tuple[int, str]]] = MATCHES,
    name: str = "car",
    asked: str = ASKED,
    **settings: object,
) -> tuple[Trace, Scripted]:
    """The trace of one question whose plan is answered with `plan`: a list of hops, or a text as it is."""

    def script(text: str, decoding: Decoding) -> str | Output:
        if "to be split" in text:
            return plan if isinstance(plan, str) else json.dumps({"hops": plan})
        return _listing(matches.get(_asked(text), []))

    caller, source = scripted_caller(script)
    made = run_pipelines([name], [WORLD], [question(asked)], pipelines_experiment(name, **settings), caller)
    return made.traces[0], source


def _outcomes(trace: Trace) -> list[tuple[str, str | None]]:
    return [(hop.outcome, hop.reason or hop.answer) for hop in trace.hops]


def test_each_hop_is_resolved_to_its_newest_value_before_the_next_is_asked() -> None:
    trace, source = _run(PLAN)
    # By hand: Paris (position 3) before Rome, so the Seine (4) before the Marne, so the Channel; over Rome: the Tyrrhenian Sea.
    assert [(hop.resolved, hop.answer, hop.chosen) for hop in trace.hops] == [
        ("Where does Ada live?", "Paris", 3),
        ("On which river does Paris lie?", "Seine", 4),
        ("Into what does the Seine flow?", "Channel", 5),
    ]
    assert (trace.answer, trace.answered_by, trace.chosen, trace.fault) == ("Channel", "policy", 5, None)
    # One plan and three look-ups, a wave each.
    assert len(trace.calls) == 4
    assert [len(wave) for wave in source.waves] == [1, 1, 1, 1]
    assert trace.candidates == trace.hops[-1].candidates


def test_another_policy_takes_the_chain_another_way() -> None:
    trace, _ = _run(PLAN, name="car_oldest")
    assert [hop.answer for hop in trace.hops] == ["Rome", "Tiber", "Tyrrhenian Sea"]
    assert trace.answer == "Tyrrhenian Sea"


def test_a_hop_without_its_dependency_is_skipped_or_ends_the_chain() -> None:
    plan = ["Who is Ada's aunt?", "Where does {hop_1} live?", "Where does Ada live?", "On which river does {hop_3} lie?"]
    skip, _ = _run(plan)
    assert _outcomes(skip) == [
        ("empty", None),
        ("skipped", "hop 1 has no answer"),
        ("answered", "Paris"),
        ("answered", "Seine"),
    ]
    assert skip.answer == "Seine"
    stop, source = _run(plan, missing="stop")
    assert _outcomes(stop) == [("empty", None), *[("stopped", "hop 1 had no answer")] * 3]
    assert (stop.answer, stop.answered_by, len(stop.calls)) == ("no answer", "none", 2)
    assert len(source.waves) == 2


def test_the_last_valid_answer_counts_where_the_chain_breaks() -> None:
    for missing in ("skip", "stop"):
        trace, _ = _run([*PLAN[:2], "Who owns the {hop_2}?", "Where does {hop_3} live?"], missing=missing)
        assert (trace.answer, trace.chosen) == ("Seine", 4)
        assert [hop.outcome for hop in trace.hops[:3]] == ["answered", "answered", "empty"]
        # The list of the last hop that had one is empty, and the answer is not from it.
        assert trace.candidates == trace.hops[2].candidates


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("Where is {hop_2}?", "hop 2 is this hop itself"),
        ("Where is {hop_3}?", "hop 3 is no earlier hop"),
        ("Where is {hop_99}?", "hop 99 is no earlier hop"),
        ("Where is {hop_0}?", "{hop_0} names no hop"),
        ("Where is {hop_01}?", "{hop_01} names no hop"),
        ("Where is {hop_1_answer}?", "{hop_1_answer} names no hop"),
        ("Where is {city}?", "{city} names no hop"),
        ("Where is {hop_1} or {hop_2}?", "hop 2 is this hop itself"),
        ("Where is {hop_9999999999999999999999}?", "{hop_9999999999999999999999} names no hop"),
    ],
)
def test_a_placeholder_that_is_no_earlier_hop_keeps_its_hop_from_being_asked(query: str, reason: str) -> None:
    trace, _ = _run([PLAN[0], query, PLAN[0]])
    assert trace.hops[1] == Hop(2, query, None, None, None, "skipped", reason)
    assert (trace.hops[2].outcome, trace.answer) == ("answered", "Paris")
    stop, _ = _run([PLAN[0], query, PLAN[0]], missing="stop")
    assert [hop.outcome for hop in stop.hops] == ["answered", "skipped", "stopped"]


def test_an_answer_that_contains_a_placeholder_is_text_and_is_not_filled_again() -> None:
    world = {
        "Where does Ada live?": [(7, "{hop_1} and {hop_2}")],
        "Is {hop_1} and {hop_2} by {hop_1} and {hop_2}?": [(7, "{x}")],
    }
    caller, _ = scripted_caller(
        lambda text, decoding: (
            json.dumps({"hops": [PLAN[0], "Is {hop_1} by {hop_1}?", "And {hop_2}?"]})
            if "to be split" in text
            else _listing(world.get(_asked(text), []))
        )
    )
    shown = history(*(s.text for s in WORLD.statements), "Ada lives in {hop_1} and {hop_2} and {x}.")
    made = run_pipelines(["car"], [shown], [question(ASKED)], pipelines_experiment("car"), caller)
    assert [hop.resolved for hop in made.traces[0].hops] == [
        "Where does Ada live?",
        "Is {hop_1} and {hop_2} by {hop_1} and {hop_2}?",
        "And {x}?",
    ]


def test_what_a_call_had_no_room_for_is_counted_once_however_often_hops_ask_it() -> None:
    def script(text: str, decoding: Decoding) -> str:
        if "to be split" in text:
            return json.dumps({"hops": [PLAN[0], PLAN[0], "Who lives in {hop_2}?"]})
        return _listing([(3, "Paris")])

    # A budget of 60 characters keeps the heading and the newest retrieved record.
    tight = pipelines_experiment("car", view_settings=ViewSettings(budget=60))
    made = run_pipelines(["car"], [WORLD], [question(ASKED)], tight, scripted_caller(script)[0])
    (trace,) = made.traces
    assert [hop.outcome for hop in trace.hops] == ["empty", "empty", "skipped"]
    (listed,) = made.candidates
    assert len(trace.calls) == 2
    assert trace.dropped == listed.dropped == 6


def test_ten_hops_are_cut_at_the_limit_and_a_note_says_so() -> None:
    trace, _ = _run([PLAN[0]] * 10)
    assert (len(trace.hops), trace.fault, trace.note) == (8, None, "10 hops were planned, 8 are looked up")
    # All that are looked up are honestly empty: an abstention, and no failure.
    trace, _ = _run(["Who is nobody?"] * 10)
    assert (trace.answered_by, failed(trace), bool(trace.note)) == ("none", False, True)
    assert len(_run([PLAN[0]] * 10, hops=2)[0].hops) == 2
    # The same query is one call, however often it is asked.
    assert len(trace.calls) == 2


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ([], "no hop was planned"),
        ("", "not the JSON that was asked for"),
        ("1. Where does Ada live?", "not the JSON that was asked for"),
        ('{"hops": ["Where does Ada li', "not the JSON that was asked for"),
        ('{"hops": "Where does Ada live?"}', "not the JSON that was asked for"),
        (["Where does Ada live?", 2], "a planned hop is no question"),
        ([{"query": "Where does Ada live?"}], "a planned hop is no question"),
        (["Where does Ada live?", " "], "a planned hop is no question"),
    ],
)
def test_without_a_plan_that_can_be_read_the_question_is_the_one_hop(plan: object, fault: str) -> None:
    asked = "On which river does Paris {hop_1} lie?"
    trace, _ = _run(plan, {asked: [(2, "Marne"), (4, "Seine")]}, asked=asked)
    # Its braces are its own.
    assert [(hop.query, hop.resolved, hop.answer) for hop in trace.hops] == [(asked, asked, "Seine")]
    assert trace.fault == f"{fault}; the question itself is the one hop"


def test_a_plan_in_a_fence_is_read_and_one_with_words_after_it_is_marked() -> None:
    plan = json.dumps({"hops": PLAN})
    assert _run(f"```json\n{plan}\n```")[0].fault is None
    trace, _ = _run(f"{plan}\nThis chain leads to the answer.")
    assert (trace.answer, trace.fault, trace.note) == ("Channel", None, "text after the JSON")
    trace, _ = _run('{"hops": ["Who is nobody?"]} Done.')
    assert (trace.answered_by, failed(trace)) == ("none", False)
    trace, _ = _run('{"hops": ["Who is nobody?"', {})
    assert (trace.answered_by, failed(trace)) == ("none", True)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ('{"position": 3}', None),
        ('```json\n{"position": 3, "value": ["Paris"]}\n```', None),
        ('{"position": 3, "value": "Par', None),
        ("[3]", None),
        ('{"position": 3, "value": ""}', None),
        ('{"position": 3, "value": "Paris"}', "Paris"),
        ("Paris", "Paris"),
    ],
)
def test_json_without_a_value_is_never_put_into_the_next_hop(said: str, answer: str | None) -> None:
    def script(text: str, decoding: Decoding) -> str:
        if "to be split" in text:
            return json.dumps({"hops": PLAN[:2]})
        return said if "Candidates:" in text else _listing(MATCHES.get(_asked(text), []))

    caller, _ = scripted_caller(script)
    made = run_pipelines(["car_llm"], [WORLD], [question(ASKED)], pipelines_experiment("car_llm"), caller)
    first, second = made.traces[0].hops
    assert (first.answer, first.outcome) == (answer, "answered" if answer else "empty")
    assert second.resolved == (answer and f"On which river does {answer} lie?")
    assert (second.outcome == "skipped") is (answer is None)


def test_car_without_an_answer_falls_back_to_the_direct_one() -> None:
    trace, _ = _run(["Who is nobody?"], name="car_fallback")
    assert (trace.answered_by, trace.hops[0].outcome, len(trace.calls)) == ("fallback", "empty", 3)
    assert _run(PLAN, name="car_fallback")[0].answered_by == "policy"


def test_a_chain_of_a_thousand_hops_costs_waves_and_no_stack() -> None:
    plan = ["Where does Ada live?", *(f"Is {{hop_{i}}} {i}?" for i in range(1, 1_500))]

    def script(text: str, decoding: Decoding) -> str:
        if "to be split" in text:
            return json.dumps({"hops": plan})
        return _listing([(3, "Paris")])

    caller, source = scripted_caller(script)
    made = run_pipelines(["car"], [WORLD], [question(ASKED)], pipelines_experiment("car", hops=1_500), caller)
    assert len(made.traces[0].hops) == 1_500
    assert {hop.outcome for hop in made.traces[0].hops} == {"answered"}
    assert len(source.waves) == 1_501


class _EveryOther(dict[str, Sequence[tuple[int, str]]]):
    """Queries of even length find Paris, others nothing."""

    def get(self, query: str, default: object = None) -> Sequence[tuple[int, str]]:  # type: ignore[override]
        return [] if len(query) % 2 else [(3, "Paris")]


def _follow(plan: Sequence[str], missing: str) -> list[tuple[str, str | None]]:
    """Outcome and resolved query of each hop, told hop by hop from the words of the specification."""
    told: list[tuple[str, str | None]] = []
    for number, query in enumerate(plan, 1):
        if missing == "stop" and any(outcome != "answered" for outcome, _ in told):
            told.append(("stopped", None))
            continue
        pieces = re.split(r"(\{\w+\})", query)
        earlier = [f"{{hop_{k}}}" for k in range(1, number) if told[k - 1][0] == "answered"]
        if not all(piece in earlier for piece in pieces[1::2]):
            told.append(("skipped", None))
            continue
        resolved = "".join("Paris" if place % 2 else piece for place, piece in enumerate(pieces))
        told.append(("empty" if len(resolved) % 2 else "answered", resolved))
    return told


words = st.lists(
    st.sampled_from(["a", "bc ", "{hop_1}", "{hop_2}", "{hop_3}", "{hop_x}", "{", "}", "{}"]), min_size=1, max_size=4
)


@given(st.lists(words.map("".join).filter(str.strip), min_size=1, max_size=6), st.sampled_from(["skip", "stop"]))
def test_every_hop_comes_out_as_the_rules_say_step_by_step(plan: list[str], missing: str) -> None:
    trace, _ = _run(plan, _EveryOther(), missing=missing)
    told = _follow(plan, missing)
    assert [(hop.outcome, hop.resolved) for hop in trace.hops] == told
    assert trace.answer == ("Paris" if "answered" in [outcome for outcome, _ in told] else "no answer")
    for hop in trace.hops:
        assert (hop.reason is not None) == (hop.outcome in ("skipped", "stopped"))
        assert (hop.candidates is not None) == (hop.outcome in ("answered", "empty"))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_text_is_an_error_as_a_plan(text: str) -> None:
    plan = read_plan(Prediction(request="", output_ids=(), text=text, finish_reason="stop", error=None), "Who?", 8)
    assert plan.hops
    assert msgspec.json.encode(plan.hops)
