"""Query-time pipelines: their names, SH-Conflict and its controls, and the scheduler."""

import hashlib
import json
from collections.abc import Callable

import pytest
from asking import Script, Scripted, pipelines_experiment, scripted_caller
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from worlds import PROMPT, history, question, settings, show

from extract.pipelines import find_pipeline
from extract.pipelines.candidates import NOT_IN_RECORD, NOT_SHOWN
from extract.pipelines.compose import Direct, Structured
from extract.pipelines.results import failed as has_failed
from extract.pipelines.schedule import Assembled, run_pipelines
from extract.pipelines.sh_conflict import Method
from offline.canonical import digest_of, encode
from offline.errors import ConfigurationError
from offline.records import History, Message, Statement
from readers.models.served import decode_messages, encode_text
from readers.records import Decoding, Output

WORLD = history(
    "The capital of Italy is Turin.",
    "The capital of France is Paris.",
    "The capital of Italy is Florence.",
    "The capital of Italy is Rome.",
)
ASKED = "What is the capital of Italy?"
TWICE = "a key is given twice"
LISTED = [(0, "Turin"), (2, "Florence"), (3, "Rome")]


def _listing(items: list[tuple[int, str]]) -> str:
    return json.dumps({"candidates": [{"position": p, "record": f"[{p}]", "value": v} for p, v in items]})


def _kind(text: str, decoding: Decoding) -> str:
    """What a chat asks for."""
    if "List all records" in text:
        return "candidates"
    if "Candidates:" in text:
        return "choose"
    return "decompose" if "to be split" in text else "direct"


def _script(**answers: str | Callable[[str, Decoding], str | Output]) -> Script:
    """Answers by kind of call."""

    def script(text: str, decoding: Decoding) -> str | Output:
        answer = answers[_kind(text, decoding)]
        return answer if isinstance(answer, str) else answer(text, decoding)

    return script


def _run(
    *names: str, script: Script, world: History = WORLD, asked: str = ASKED, **changes: object
) -> tuple[Assembled, Scripted]:
    caller, source = scripted_caller(script)
    return run_pipelines(names, [world], [question(asked)], pipelines_experiment(*names, **changes), caller), source


# Names


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("direct", Direct()),
        ("direct_chunk4096", Direct("chunk4096")),
        ("direct_sampled", Direct(sampled=True)),
        ("direct_sampled_chunk512", Direct("chunk512", sampled=True)),
        ("sh_conflict", Structured(Method())),
        ("sh_conflict_chunk4096", Structured(Method("chunk4096"))),
        ("sh_conflict_llm", Structured(Method(policy="llm"))),
        ("sh_conflict_rerun", Structured(Method(again=1))),
        ("sh_conflict_rerun_llm", Structured(Method(policy="llm", again=1))),
        ("sh_conflict_fallback", Structured(Method(), fallback=True)),
        ("sh_conflict_oldest", Structured(Method(policy="oldest"))),
        ("sh_conflict_newest_2_chunk4096", Structured(Method("chunk4096", "newest_2"))),
        ("sh_conflict_asof_17_fallback", Structured(Method(policy="asof_17"), fallback=True)),
        ("sh_conflict_asof_2026-01-31", Structured(Method(policy="asof_2026-01-31"))),
        ("sh_conflict_count", Structured(Method(policy="count"))),
        ("car", Structured(Method(), chain=True)),
        ("car_llm_fallback_chunk4096", Structured(Method("chunk4096", "llm"), chain=True, fallback=True)),
    ],
)
def test_a_name_spells_what_a_pipeline_does(name: str, pipeline: Direct | Structured) -> None:
    assert find_pipeline(name) == pipeline


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sh",
        "direct_llm",
        "direct_fallback",
        "sh_conflict_",
        "sh_conflict_best",
        "sh_conflict_newest_1",
        "sh_conflict_fallback_llm",
        "sh_conflict_chunk",
        "sh_conflict_chunk04096",
        "sh_conflict_chunk4096_llm",
        "car_rerun_rerun",
        "sh_conflict_sampled",
    ],
)
def test_another_name_is_an_unknown_pipeline_and_the_error_says_how_names_are_made(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown pipeline .*direct with _sampled; sh_conflict and car with"):
        find_pipeline(name)


# SH-Conflict and its controls


def test_sh_conflict_takes_the_newest_of_what_the_model_listed() -> None:
    made, source = _run("sh_conflict", script=_script(candidates=_listing(LISTED)))
    (trace,), (listed,) = made.traces, made.candidates
    # By hand: 3 is the largest of 0, 2 and 3.
    assert (trace.answer, trace.answered_by, trace.chosen, trace.fault) == ("Rome", "policy", 3, None)
    assert trace.candidates == digest_of(listed)
    assert trace.calls == (listed.call,)
    assert [(c.position, c.text, c.entity, c.foreign) for c in listed.candidates] == [
        (0, "[0]", "Turin", None),
        (2, "[2]", "Florence", None),
        (3, "[3]", "Rome", None),
    ]
    # Every version is retrieved, and shown in position order.
    assert trace.evidence == (0, 1, 2, 3)
    assert "\n".join(f"[{s.position}] {s.text}" for s in WORLD.statements) in source.waves[0][0]


def test_policies_share_one_candidate_list_and_one_call() -> None:
    names = ("sh_conflict", "sh_conflict_oldest", "sh_conflict_newest_2", "sh_conflict_asof_2", "sh_conflict_count")
    made, source = _run(*names, script=_script(candidates=_listing(LISTED)))
    assert [trace.answer for trace in made.traces] == ["Rome", "Turin", "Florence", "Florence", "3"]
    assert len({trace.candidates for trace in made.traces}) == len(made.candidates) == 1
    assert [len(wave) for wave in source.waves] == [1]


def test_the_model_as_executor_is_given_the_very_candidates_that_the_policy_had() -> None:
    chosen = '{"position": 2, "value": "Florence"}'
    script = _script(candidates=_listing([*LISTED, (1, "Rome"), (9, "Rome")]), choose=chosen)
    made, source = _run("sh_conflict", "sh_conflict_llm", script=script)
    code, llm = made.traces
    assert (code.answer, llm.answer, llm.answered_by, llm.chosen) == ("Rome", "Florence", "model", 2)
    assert code.candidates == llm.candidates
    assert llm.calls[0] == code.calls[0]
    # In the order in which they were listed; what was dropped (a foreign value, a position that was not shown) is not there.
    (asked,) = source.waves[1]
    given = asked.partition("Candidates:\n")[2]
    assert given.split("\n")[:-1] == [
        "[0] Turin (record: [0])",
        "[2] Florence (record: [2])",
        "[3] Rome (record: [3])",
    ]
    assert "[1]" not in asked
    assert "[9]" not in given


@pytest.mark.parametrize(
    ("said", "answer", "chosen", "fault", "note"),
    [
        ('{"position": 3, "value": "Rome"}', "Rome", 3, None, None),
        ('{"position": "3", "value": "Rome"}', "Rome", 3, None, None),
        ('{"position": 1, "value": "Paris"}', "Paris", None, None, "the position chosen is no candidate's"),
        ('{"value": "Rome"}', "Rome", None, None, "the position chosen is no candidate's"),
        ('```json\n{"position": 3, "value": "Rome"}\n```', "Rome", 3, None, None),
        # The choice counts, not what is said about the others: the substring match would find their names too.
        ('{"position": 2, "value": "Florence"}\nRecord 3 says Rome.', "Florence", 2, None, "text after the JSON"),
        ('{"position": 2, "value": "Florence"} {"position": 3, "value": "Rome"}', "Florence", 2, None, "text after the JSON"),
        (
            '{"position": 3, "position": 2, "value": "Rome"}',
            '{"position": 3, "position": 2, "value": "Rome"}',
            None,
            TWICE,
            None,
        ),
        ('{"position": 3, "value": "Ro', '{"position": 3, "value": "Ro', None, "not the JSON that was asked for", None),
        (
            '[{"position": 3, "value": "Rome"}]',
            '[{"position": 3, "value": "Rome"}]',
            None,
            "not the JSON that was asked for",
            None,
        ),
        ('{"position": 3, "value": "\\ud800"}', '{"position": 3, "value": "\\ud800"}', None, "no value was chosen", None),
        ("Rome, as of record 3.", "Rome, as of record 3.", None, "not the JSON that was asked for", None),
        ('{"position": 3, "value": ["Rome"]}', '{"position": 3, "value": ["Rome"]}', None, "no value was chosen", None),
        ('{"position": 3, "value": " "}', "no answer", None, None, None),
        ('{"position": 3, "value": ""} None of them.', "no answer", None, None, "text after the JSON"),
        ('{"position": 3} None of them.', '{"position": 3} None of them.', None, "no value was chosen", None),
        ("", "no answer", None, "not the JSON that was asked for", None),
    ],
)
def test_whatever_the_model_chooses_is_a_defined_answer(
    said: str, answer: str, chosen: int | None, fault: str | None, note: str | None
) -> None:
    made, _ = _run("sh_conflict_llm", script=_script(candidates=_listing(LISTED), choose=said))
    (trace,) = made.traces
    assert (trace.answer, trace.chosen, trace.fault, trace.note or None) == (answer, chosen, fault, note)


@pytest.mark.parametrize(
    ("listed", "failed"),
    [
        (_listing([]), False),
        (_listing([]) + " Done.", False),
        (_listing([(3, "Rome")]) + " Done.", False),
        (_listing([(3, "Rome")])[:-2], True),
        (_listing([(3, "Rome")])[:-1] + ', "more": 1}', True),
        ("There is none.", True),
        ('{"candidates": [{"position": 3}]}', True),
    ],
)
def test_an_abstention_fails_only_where_what_went_wrong_may_have_cost_the_answer(listed: str, failed: bool) -> None:
    # One record at most is listed, so there is no second newest.
    made, _ = _run(
        "sh_conflict_newest_2", "car_newest_2", script=_script(candidates=listed, decompose='{"hops": ["A?"]} Well.')
    )
    assert [(trace.answer, trace.answered_by) for trace in made.traces] == [("no answer", "none")] * 2
    assert [has_failed(trace) for trace in made.traces] == [failed] * 2
    assert [bool(trace.note) for trace in made.traces] == [" Done." in listed, True]


def test_nothing_listed_is_no_answer_without_a_second_call_and_the_fallback_asks_directly() -> None:
    script = _script(candidates=_listing([(1, "Turin")]), direct="Naples")
    made, source = _run("sh_conflict", "sh_conflict_llm", "sh_conflict_fallback", "direct", script=script)
    plain, llm, fallback, direct = made.traces
    assert [(t.answer, t.answered_by) for t in made.traces] == [
        ("no answer", "none"),
        ("no answer", "none"),
        ("Naples", "fallback"),
        ("Naples", "model"),
    ]
    assert plain.calls == llm.calls
    assert fallback.calls == (*plain.calls, *direct.calls)
    # The direct call of the fallback was already made for `direct`.
    assert [len(wave) for wave in source.waves] == [2]


@pytest.mark.parametrize("error", ["aborted", None])
def test_a_call_that_failed_is_no_answer_whatever_it_had_said_by_then(error: str | None) -> None:
    failed = Output(ids=encode_text("Rome"), finish_reason="error", error=error)
    fault = error or "the call failed"
    script = _script(candidates=_listing(LISTED), choose=lambda text, decoding: failed, direct=lambda text, decoding: failed)
    made, _ = _run("direct", "direct_sampled", "sh_conflict_llm", "sh_conflict_llm_fallback", script=script)
    assert [(trace.answer, trace.answered_by) for trace in made.traces] == [
        ("", "model"),
        ("", "model"),
        ("no answer", "none"),
        ("", "fallback"),
    ]
    assert [(trace.fault, has_failed(trace)) for trace in made.traces] == [(fault, True)] * 4


def test_a_list_is_asked_for_again_on_purpose_and_is_another_call() -> None:
    asked: list[int] = []

    def candidates(text: str, decoding: Decoding) -> str:
        asked.append(decoding.again)
        return _listing(LISTED if decoding.again == 0 else LISTED[:2])

    made, _ = _run("sh_conflict", "sh_conflict_rerun", script=_script(candidates=candidates))
    first, second = made.traces
    assert sorted(asked) == [0, 1]
    assert (first.answer, second.answer) == ("Rome", "Florence")
    assert len(made.candidates) == 2


def test_the_direct_answer_is_asked_for_as_a_reader_of_the_same_records_would_be() -> None:
    caller, _ = scripted_caller(_script(direct="Rome"))
    run_pipelines(["direct"], [WORLD], [question(ASKED)], pipelines_experiment("direct", k=2), caller)
    _, evidence = show([s.text for s in WORLD.statements], ASKED, "statement_bm25_k2")
    assert len(evidence.positions) == 2
    (ids,) = caller.transcript.ids
    assert decode_messages(ids) == (
        Message(role="system", content=PROMPT.system),
        Message(role="user", content=f"{evidence.text}\n\nQuestion: {ASKED}"),
    )


def test_one_arm_samples_and_all_others_are_greedy() -> None:
    decodings: dict[str, set[tuple[str, int]]] = {}

    def note(text: str, decoding: Decoding) -> str:
        decodings.setdefault(_kind(text, decoding), set()).add((decoding.temperature, decoding.seed))
        return _listing(LISTED) if decoding.schema and "List all" in text else '{"position": 3, "value": "Rome", "hops": ["x"]}'

    made, _ = _run("direct", "direct_sampled", "sh_conflict_llm", "car", script=note, temperature="0.9", seed=11)
    assert decodings == {
        "direct": {("0", 0), ("0.9", 11)},
        **{kind: {("0", 0)} for kind in ("candidates", "choose", "decompose")},
    }
    assert made.traces[0].calls != made.traces[1].calls


@pytest.mark.parametrize("constrained", [True, False])
def test_structured_answers_are_held_to_a_schema_that_names_what_is_read(constrained: bool) -> None:
    schemas: dict[str, str | None] = {}

    def note(text: str, decoding: Decoding) -> str:
        schemas[_kind(text, decoding)] = decoding.schema
        answers = {"candidates": _listing(LISTED), "choose": '{"position": 3, "value": "Rome"}', "decompose": '{"hops": ["x"]}'}
        return answers[_kind(text, decoding)]

    made, _ = _run("car_llm", script=note, constrained=constrained)
    assert made.traces[0].answer == "Rome"
    if not constrained:
        assert set(schemas.values()) == {None}
        return
    fields = {kind: json.loads(str(schema))["properties"] for kind, schema in schemas.items()}
    assert {kind: list(found) for kind, found in fields.items()} == {
        "candidates": ["candidates"],
        "choose": ["position", "value"],
        "decompose": ["hops"],
    }
    assert list(fields["candidates"]["candidates"]["items"]["properties"]) == ["position", "record", "value"]
    for schema in schemas.values():
        assert encode(json.loads(str(schema))).decode() == schema


def test_chunks_show_their_records_and_a_candidate_is_found_by_its_position_inside_one() -> None:
    texts = [f"Note {i} says that {'x' * 60}." for i in range(8)] + ["The capital of Italy is Rome.", "Bye."]
    script = _script(candidates=_listing([(7, "Rome"), (8, "Rome"), (9, "Rome")]))
    # Two notes of 82 characters, a line break after each, and record 8 with 33: 199 of 200. Record 9 begins another chunk.
    made, _ = _run("sh_conflict_chunk200", script=script, world=history(*texts), k=1)
    (trace,) = made.traces
    assert (trace.answer, trace.chosen) == ("Rome", 8)
    assert trace.evidence == (6, 7, 8)
    assert [candidate.foreign for candidate in made.candidates[0].candidates] == [NOT_IN_RECORD, None, NOT_SHOWN]


def test_dated_records_show_their_time_and_are_chosen_as_of_a_day() -> None:
    dated = History(
        id="world",
        length="2",
        statements=(
            Statement(0, "The capital of Italy is Turin.", "1861-03-17"),
            Statement(1, "The capital of Italy is Rome.", "1871-02-03"),
        ),
    )
    script = _script(candidates=_listing([(0, "Turin"), (1, "Rome")]), choose='{"position": 1, "value": "Rome"}')
    names = ("sh_conflict_asof_1870-12-31", "sh_conflict_asof_1871-02-03", "sh_conflict_asof_1860-01-01", "sh_conflict_llm")
    made, source = _run(*names, script=script, world=dated)
    assert [trace.answer for trace in made.traces] == ["Turin", "Rome", "no answer", "Rome"]
    assert "[0] (1861-03-17) The capital of Italy is Turin." in source.waves[0][0]
    assert "[1] (1871-02-03) Rome (record: [1])" in source.waves[1][0]


def test_what_the_input_cap_has_no_room_for_is_cut_oldest_first_and_counted() -> None:
    script = _script(candidates=_listing(LISTED), direct="Rome")
    names = ("direct", "sh_conflict")
    whole, _ = _run(*names, script=script)
    experiment = pipelines_experiment(*names)

    def run(cap: int) -> tuple[Assembled, list[int]]:
        reader = experiment.readers[0].reader
        caller, _ = scripted_caller(script, type(reader)(**{**_fields(reader), "input_cap": cap}))
        return run_pipelines(names, [WORLD], [question(ASKED)], experiment, caller), [c.length for c in caller.transcript.calls]

    _, (direct, candidates) = run(100_000)
    # One byte too few for the direct call: its oldest record goes, which is more than that byte; the longer one loses as many.
    made, lengths = run(direct - 1)
    assert made.traces[0].evidence == (1, 2, 3)
    assert made.traces[0].dropped == 1
    assert lengths[0] < direct - 1 < direct < candidates
    # No room for the longer call even without a record: it is refused, and that is its answer.
    assert (made.traces[1].evidence, made.traces[1].dropped, made.traces[1].answer) == ((), 4, "no answer")
    assert "there is room for" in str(made.traces[1].fault)
    cut, _ = run(candidates - 1)
    assert (cut.traces[1].evidence, cut.candidates[0].shown, cut.candidates[0].dropped) == ((1, 2, 3), (1, 2, 3), 1)
    assert cut.traces[0] == whole.traces[0]
    # Record 0 was not shown now, so what was listed of it is foreign.
    assert [candidate.foreign is None for candidate in cut.candidates[0].candidates] == [False, True, True]


def _fields(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__struct_fields__}  # type: ignore[attr-defined]


def test_the_evidence_budget_of_views_binds_pipelines_too() -> None:
    caller, _ = scripted_caller(_script(direct="Rome"))
    # The heading has 8 characters, the newest two lines 33 and 37, with a line break before each.
    for budget, shown in ((1_000, (0, 1, 2, 3)), (8 + 34 + 38, (2, 3)), (8 + 34 + 37, (3,)), (8 + 33, ())):
        experiment = pipelines_experiment("direct", view_settings=settings(budget=budget))
        made = run_pipelines(["direct"], [WORLD], [question(ASKED)], experiment, caller)
        assert made.traces[0].evidence == shown, budget
        assert made.traces[0].dropped == 4 - len(shown)


def test_a_failed_call_is_a_failed_answer_and_never_an_error() -> None:
    failed = Output(ids=(), finish_reason="error", error="out of memory")
    script = _script(**dict.fromkeys(("direct", "candidates", "decompose"), lambda text, decoding: failed))
    made, _ = _run("direct", "sh_conflict", "sh_conflict_llm", "sh_conflict_fallback", "car", script=script)
    assert [(t.answer, t.answered_by) for t in made.traces] == [
        ("", "model"),
        ("no answer", "none"),
        ("no answer", "none"),
        ("", "fallback"),
        ("no answer", "none"),
    ]
    assert {str(t.fault).split(";")[0] for t in made.traces} == {"out of memory"}


# The scheduler

QUESTIONS = [
    question("What is the capital of Italy?", "q0"),
    question("What is the capital of France?", "q1", of="other"),
    question("What is the capital of the home of Ada?", "q2"),
    question("What is the capital of Italy?", "q3", of="other"),
    question("Who leads France?", "q4"),
]
OTHER = history("The capital of France is Lyon.", "The capital of France is Paris.", name="other")
NAMES = ("car", "direct", "sh_conflict_llm", "sh_conflict_fallback", "car_fallback", "direct_sampled", "sh_conflict_rerun")


def _noise(seed: int) -> Script:
    """A model that answers anything, the same to the same call: plans, lists, choices, junk."""

    def script(text: str, decoding: Decoding) -> str | Output:
        drawn = hashlib.sha256(encode((seed, text, decoding))).digest()
        options: list[str | Output] = [
            _listing([]),
            _listing([(0, "Turin"), (1, "Paris"), (drawn[1] % 6, "Rome")]),
            _listing([(1, "Paris"), (0, "Lyon")])[: drawn[2]],
            json.dumps({"hops": ["Capital of Italy?", "Leader of {hop_1}?", "{hop_2}", "{hop_9}"][: drawn[3] % 5]}),
            json.dumps({"position": drawn[4] % 4, "value": "Rome {hop_1}"}),
            "Rome",
            Output(ids=(), finish_reason="error", error="busy"),
        ]
        kinds = {"candidates": (0, 1, 1, 1, 2, 5, 6), "choose": (4, 4, 5, 6), "decompose": (3, 3, 3, 5), "direct": (5, 6)}
        chosen = kinds[_kind(text, decoding)]
        return options[chosen[drawn[0] % len(chosen)]]

    return script


@hypothesis_settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_results_do_not_depend_on_how_many_questions_run_at_once(seed: int, width: int) -> None:
    def run(width: int | None) -> tuple[Assembled, set[str], int]:
        caller, source = scripted_caller(_noise(seed))
        made = run_pipelines(NAMES, [WORLD, OTHER], QUESTIONS, pipelines_experiment(*NAMES), caller, width)
        return made, {call.digest for call in caller.transcript.calls}, len(source.waves)

    everything, calls, waves = run(None)
    some, same_calls, more_waves = run(width)
    assert some == everything
    assert same_calls == calls
    assert more_waves >= waves
    # Pipelines as they were named, questions as the data has them; every list that is named is there, once.
    assert [(t.pipeline, t.question) for t in everything.traces] == [(n, q.id) for n in NAMES for q in QUESTIONS]
    named = {n for t in everything.traces for n in (*(h.candidates for h in t.hops), t.candidates) if n is not None}
    stored = [digest_of(listed) for listed in everything.candidates]
    assert sorted(named) == sorted(stored)
    assert {call for t in everything.traces for call in t.calls} == calls


def test_one_question_at_a_time_makes_each_wave_of_one_question() -> None:
    script = _script(candidates=_listing(LISTED), choose='{"position": 3, "value": "Rome"}')

    def waves(width: int | None) -> list[int]:
        caller, source = scripted_caller(script)
        asked = [question(f"What is the capital of Italy, {i}?", f"q{i}") for i in range(5)]
        run_pipelines(["sh_conflict_llm"], [WORLD], asked, pipelines_experiment("sh_conflict_llm"), caller, width)
        return [len(wave) for wave in source.waves]

    assert waves(None) == [5, 5]
    assert waves(1) == [1] * 10
    # A question that is done makes room for the next one at once.
    assert waves(2) == [2, 2, 2, 2, 1, 1]
    with pytest.raises(ConfigurationError, match="width must be at least 1"):
        waves(0)


THEIRS = """
from extract.pipelines.records import Trace
from offline.records import Message
from readers.calls.caller import Ask
from readers.records import Decoding

def shout(case):
    chat = (Message(role="system", content="s"), Message(role="user", content=case.question.text.upper()))
    said = yield Ask("shout", chat, Decoding(output_cap=5))
    return Trace(case.pipeline, case.question.id, said.text, "model", (said.request,), ())

def loud(candidates):
    from extract.pipelines.policies import Choice
    return Choice(candidates[0].entity.upper(), candidates[0].position)

def broken(case):
    yield from shout(case)
    raise KeyError("oops")

def silent(case):
    return None
    yield

def boasting(case):
    yield from shout(case)
    return Trace(case.pipeline, case.question.id, "ha", "model", ("0" * 64,), ())

def pointing(case):
    made = yield from shout(case)
    return Trace(case.pipeline, case.question.id, "ha", "model", made.calls, (), candidates="0" * 64)
"""


def test_pipelines_and_policies_of_other_packages_plug_in_and_are_held_to_their_contract(install: Callable[..., None]) -> None:
    points = {name: f"theirs_code:{name}" for name in ("shout", "broken", "silent", "boasting", "pointing")}
    install("theirs", "coldread.pipelines", points, THEIRS)
    install("policy", "coldread.policies", {"loud": "theirs_code:loud"})
    script: Script = lambda text, decoding: _listing(LISTED) if decoding.schema else "ha"  # noqa: E731
    made, _ = _run("shout", "sh_conflict_loud", script=script)
    assert [trace.answer for trace in made.traces] == ["ha", "TURIN"]
    with pytest.raises(ConfigurationError, match=r"pipeline 'broken', question 'q': KeyError: 'oops'; mend the pipeline"):
        _run("broken", script=lambda text, decoding: "ha")
    with pytest.raises(ConfigurationError, match=r"pipeline 'silent', question 'q': it does not return its own Trace"):
        _run("silent", script=lambda text, decoding: "ha")
    for name in ("boasting", "pointing"):
        with pytest.raises(
            ConfigurationError, match=f"pipeline '{name}', question 'q': its trace names a call that was not made"
        ):
            _run(name, script=lambda text, decoding: "ha")


def test_a_name_of_ours_that_another_package_declares_is_refused(install: Callable[..., None]) -> None:
    install("theirs", "coldread.pipelines", {"sh_conflict_llm": "theirs_code:shout"}, THEIRS)
    with pytest.raises(ConfigurationError, match="also declared by 'theirs_code:shout'"):
        find_pipeline("sh_conflict_llm")
