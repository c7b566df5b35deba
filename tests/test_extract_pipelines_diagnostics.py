"""What is counted about pipelines, against counts made by hand."""

import json

import pytest
from asking import pipelines_experiment, scripted_caller
from worlds import history, question

from extract.pipelines.diagnostics import agreement, by_digest, diagnose, is_contested, sampled
from extract.pipelines.records import Diagnosis
from extract.pipelines.schedule import Assembled, run_pipelines
from offline.config.calls import PipelineSettings
from readers.records import Decoding, Output, StageCounts
from readers.transcript import Transcript

WORLD = history("Ada lives in Rome.", "Bob lives in Oslo.", "Ada lives in Paris.")
ADA, BOB, NOBODY = (question(f"Where does {who} live?", who) for who in ("Ada", "Bob", "Nobody"))
NAMES = ("direct", "direct_sampled", "sh_conflict", "sh_conflict_rerun", "sh_conflict_llm", "sh_conflict_fallback", "car")


def _script(text: str, decoding: Decoding) -> str:
    if "Candidates:" in text:
        return '{"position": 0, "value": "Rome"}'
    if decoding.schema is None:
        return "Rome"
    if "to be split" in text:
        # The first hop of each question is the question; Ada has a second one that fails and a third that waits for it.
        who = text.rsplit("Where does ", 1)[1].split(" ")[0]
        more = ["Who owns {hop_1}?", "Where does {hop_2} live?"] if who == "Ada" else []
        return json.dumps({"hops": [f"Where does {who} live?", *more]})
    matches: list[tuple[int, str]] = []
    if "Question: Where does Ada live?" in text:
        # Asked again, the model forgets the older record. The second Rome is foreign: record 1 does not hold it.
        matches = [(0, "Rome"), (2, "Paris"), (1, "Rome")] if decoding.again == 0 else [(2, "Paris"), (1, "Rome")]
    if "Question: Where does Bob live?" in text:
        matches = [(1, "Oslo")]
    return json.dumps({"candidates": [{"position": p, "record": "", "value": v} for p, v in matches]})


@pytest.fixture(scope="module")
def made() -> tuple[Assembled, Transcript, PipelineSettings]:
    experiment = pipelines_experiment(*NAMES)
    caller, _ = scripted_caller(_script)
    found = run_pipelines(NAMES, [WORLD], [ADA, BOB, NOBODY], experiment, caller)
    assert experiment.pipelines
    return found, caller.transcript, experiment.pipelines


Made = tuple[Assembled, Transcript, PipelineSettings]


def _of(made: Made) -> dict[str, Diagnosis]:
    found, transcript, settings = made
    return {d.pipeline: d for d in diagnose(found.traces, by_digest(found.candidates), transcript, settings)}


def test_a_pipeline_is_counted_as_its_questions_came_out(made: Made) -> None:
    counted = _of(made)
    assert list(counted) == list(NAMES)
    one = counted["sh_conflict"]
    # Ada: Rome and Paris, one foreign; Bob: Oslo; Nobody: nothing.
    assert (one.questions, one.lists, one.candidates, one.foreign, one.empty, one.contested) == (3, 3, 3, 1, 1, 1)
    assert (one.abstained, one.fallbacks, one.faults, one.planned) == (1, 0, 0, 0)
    assert (counted["sh_conflict_fallback"].abstained, counted["sh_conflict_fallback"].fallbacks) == (0, 1)
    assert counted["sh_conflict_rerun"].contested == 0
    assert (counted["direct"].lists, counted["direct"].abstained) == (0, 0)


def test_hops_are_counted_as_planned_and_as_looked_up_with_the_first_that_failed(made: Made) -> None:
    car = _of(made)["car"]
    # Ada: three hops, the second is empty, the third skipped; Bob: one; Nobody: one, empty.
    assert (car.planned, car.unplanned, car.executed, car.first_failed) == (5, 0, 4, {"1": 1, "2": 1})
    assert (car.lists, car.empty, car.abstained, car.contested) == (4, 2, 1, 1)


def test_hops_beyond_the_limit_are_planned_and_an_unreadable_plan_is_none() -> None:
    plans = {
        "Ada": '{"hops": ["Where does Ada live?", "A?", "B?"]}',
        "Bob": '{"hops": ["Where does Bob',
        "Nobody": '{"hops": []}',
    }

    def script(text: str, decoding: Decoding) -> str:
        asked = text.rsplit("Question: ", 1)[1]
        return next(plan for who, plan in plans.items() if who in asked) if "to be split" in text else '{"candidates": []}'

    experiment = pipelines_experiment("sh_conflict", "car", "car_llm", hops=2)
    caller, _ = scripted_caller(script)
    found = run_pipelines(["sh_conflict", "car", "car_llm"], [WORLD], [ADA, BOB, NOBODY], experiment, caller)
    assert experiment.pipelines
    counted = _of((found, caller.transcript, experiment.pipelines))
    # Ada: three planned, two looked up. Bob's plan is cut off and Nobody's is empty: each question is its own one hop.
    for name in ("car", "car_llm"):
        assert [getattr(counted[name], key) for key in ("planned", "unplanned", "executed")] == [3, 2, 4]
        assert (counted[name].noted, counted[name].faults) == (1, 2)
    assert (counted["sh_conflict"].planned, counted["sh_conflict"].unplanned) == (0, 0)


def test_foreign_candidates_make_a_question_contested_only_where_they_are_kept(made: Made) -> None:
    found, _, settings = made
    lists = by_digest(found.candidates)
    rerun = next(t for t in found.traces if t.pipeline == "sh_conflict_rerun" and t.question == "Ada")
    assert not is_contested(rerun, lists, settings)
    keep = PipelineSettings(prompt=settings.prompt, foreign="keep")
    assert is_contested(rerun, lists, keep)


def test_lists_agree_where_every_candidate_does(made: Made) -> None:
    found, transcript, _ = made
    lists = by_digest(found.candidates)
    assert agreement(found.traces, lists, transcript, "sh_conflict", "sh_conflict_rerun") == (2, 3)
    assert agreement(found.traces, lists, transcript, "sh_conflict", "sh_conflict_llm") == (3, 3)
    assert agreement(found.traces, lists, transcript, "sh_conflict", "direct") == (0, 0)
    assert agreement(found.traces, lists, transcript, "sh_conflict", "absent") == (0, 0)


def test_two_lists_that_were_refused_do_not_agree() -> None:
    def script(text: str, decoding: Decoding) -> str | Output:
        failed = Output(ids=(), finish_reason="error", error="too busy")
        return failed if "Question: Where does Ada live?" in text else _script(text, decoding)

    names = ("sh_conflict", "sh_conflict_rerun")
    caller, _ = scripted_caller(script)
    found = run_pipelines(names, [WORLD], [ADA, BOB, NOBODY], pipelines_experiment(*names), caller)
    # Bob's lists are the same, and so are those about nobody, which are empty; there are none about Ada.
    assert agreement(found.traces, by_digest(found.candidates), caller.transcript, *names) == (2, 2)


def test_a_shared_call_counts_for_each_pipeline_and_once_in_the_total(made: Made) -> None:
    _, transcript, _ = made
    counted = _of(made)

    def calls(costs: dict[str, StageCounts]) -> dict[str, int]:
        return {stage: count.calls for stage, count in costs.items()}

    assert calls(counted["sh_conflict"].costs) == {"candidates": 3}
    # Nobody's list is empty, so the model chooses twice.
    assert calls(counted["sh_conflict_llm"].costs) == {"candidates": 3, "choose": 2}
    assert calls(counted["sh_conflict_fallback"].costs) == {"candidates": 3, "direct": 1}
    # The first hop of each question is the question itself; Ada's second is one call more.
    assert calls(counted["car"].costs) == {"decompose": 3, "candidates": 4}
    assert calls(transcript.counts()) == {
        "direct": 3,
        "direct sampled": 3,
        "candidates": 4,
        "candidates again": 3,
        "choose": 2,
        "decompose": 3,
    }
    total, shared = transcript.counts()["candidates"], counted["sh_conflict"].costs["candidates"]
    lengths = [call.length for call in transcript.calls if call.stage == "candidates"]
    assert total.input_tokens == sum(lengths) > shared.input_tokens
    # The scripted model's tokens are bytes: of every list that it gave.
    assert total.output_tokens == sum(
        len(p.text.encode()) for c, p in zip(transcript.calls, transcript.predictions, strict=True) if c.stage == "candidates"
    )


def test_only_what_sampled_is_marked_so(made: Made) -> None:
    found, transcript, _ = made
    assert sampled(found.traces, transcript) == ("direct_sampled",)
