"""Candidate extraction: whatever a model writes is a defined list."""

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from extract.pipelines.candidates import NOT_IN_RECORD, NOT_QUOTED, NOT_SHOWN, quotes, read_candidates, stands_in, usable
from extract.pipelines.records import Candidate, CandidateList
from offline.canonical import digest_of, encode
from offline.config.calls import CallPrompt, PipelinePrompt, PipelineSettings
from offline.entity_keys import entity_key
from offline.records import Statement
from offline.render import record_line
from readers.records import Prediction

SHOWN = {
    3: Statement(3, "The capital of Italy is Rome."),
    5: Statement(5, "The capital of Italy is Turin."),
    8: Statement(8, "Ada moved to {hop_1}."),
}
CALL = CallPrompt("", "")
SETTINGS = PipelineSettings(prompt=PipelinePrompt("p", CALL, CALL, CALL))
NOT_JSON, CUT = "not the JSON that was asked for", "cut off at the output cap"


def _read(text: str, finish: str = "stop", error: str | None = None) -> CandidateList:
    prediction = Prediction(request="c" * 64, output_ids=(), text=text, finish_reason=finish, error=error)  # type: ignore[arg-type]
    listed = read_candidates("Capital of Italy?", SHOWN, 0, prediction)
    # Whatever was read can be stored.
    assert encode(listed)
    assert (listed.query, listed.call, listed.shown) == ("Capital of Italy?", "c" * 64, (3, 5, 8))
    return listed


def _item(position: object, value: object = "Rome", record: object = "r") -> dict[str, object]:
    return {"position": position, "record": record, "value": value}


def _listing(*items: object) -> str:
    return json.dumps({"candidates": items})


def _positions(listed: CandidateList) -> list[int]:
    return [candidate.position for candidate in listed.candidates]


def test_what_is_as_asked_for_is_kept_in_the_order_in_which_it_was_listed() -> None:
    listed = _read(_listing(_item(5, "Turin", "The capital of Italy is Turin."), _item(3, "rome")))
    assert listed.candidates == (
        Candidate(5, "The capital of Italy is Turin.", "Turin"),
        Candidate(3, "r", "rome"),
    )
    assert listed.fault is None
    assert _read('{"candidates": []}').fault is None


def test_a_position_that_was_not_shown_and_a_value_from_nowhere_are_marked_and_dropped_unless_kept() -> None:
    listed = _read(_listing(_item(4), _item(3), _item(5, "Rome"), _item(-1), _item(3, "")))
    assert [candidate.foreign for candidate in listed.candidates] == [NOT_SHOWN, None, NOT_IN_RECORD, NOT_SHOWN, NOT_IN_RECORD]
    assert [candidate.position for candidate in usable(listed, SETTINGS)] == [3]
    keep = PipelineSettings(prompt=SETTINGS.prompt, foreign="keep")
    assert usable(listed, keep) == list(listed.candidates)


@pytest.mark.parametrize(
    ("quoted", "foreign"),
    [
        ("The capital of Italy is Rome.", None),
        ("the capital of ITALY is Rome", None),
        ("[3] The capital of Italy is Rome.", None),
        ("capital of Italy", None),
        ("", None),
        ("The capital of Italy was Rome.", NOT_QUOTED),
        ("The capital of Italy is Rome, the old city.", NOT_QUOTED),
        # Record 5 says it of Turin: a position that was shown and a value that stands there do not make it a quotation.
        ("The capital of Italy is Turin.", NOT_QUOTED),
        ("[5] The capital of Italy is Rome.", NOT_QUOTED),
    ],
)
def test_a_text_that_is_not_what_the_record_says_is_marked(quoted: str, foreign: str | None) -> None:
    listed = _read(_listing(_item(3, "Rome", quoted)))
    assert [candidate.foreign for candidate in listed.candidates] == [foreign]
    assert len(usable(listed, SETTINGS)) == (foreign is None)


def test_a_quotation_may_name_the_time_of_its_record_and_may_leave_it_out() -> None:
    record = Statement(3, "Ada lives in Rome.", "2025-03-01")
    for head in ("", "[3] ", "(2025-03-01) ", "[3] (2025-03-01) "):
        assert quotes(f"{head}Ada lives in Rome.", record)
    assert not quotes("(2025-03-02) Ada lives in Rome.", record)
    assert not quotes("[4] (2025-03-01) Ada lives in Rome.", record)


@pytest.mark.parametrize("between", ["\n", "\\n", " "])
def test_a_line_break_of_a_record_may_be_quoted_as_it_is_or_as_it_was_shown(between: str) -> None:
    record = Statement(3, "Ada lives\nin Rome.", "2025-03-01")
    assert record_line(record) == "[3] (2025-03-01) Ada lives\\nin Rome."
    for head in ("", "[3] ", "[3] (2025-03-01) "):
        assert quotes(f"{head}Ada lives{between}in Rome.", record)
    assert stands_in(f"lives{between}in Rome", record)
    assert not quotes(f"Ada lives{between}in Oslo.", record)
    assert not stands_in(f"lives{between}in Oslo", record)


@pytest.mark.parametrize(
    ("quoted", "is_part"),
    [
        ("Ada moved to Rome … in spring.", True),
        ("Ada moved ... Bob ... spring.", True),
        ("... Bob stayed ...", True),
        ("[3] Ada moved to Ro...", True),
        # Both halves are there, the other way round; one half is not; nothing is left out in fact.
        ("Bob stayed … Ada moved", False),
        ("Ada moved … in autumn.", False),
        ("Ada moved. . Bob", False),
    ],
)
def test_what_an_ellipsis_leaves_out_of_a_long_record_is_passed_over(quoted: str, is_part: bool) -> None:
    record = Statement(3, "Ada moved to Rome, Bob stayed in Oslo, and they met again in spring.")
    assert quotes(quoted, record) is is_part


@given(st.text(min_size=1), st.text("\n\r\u2028 ", max_size=2), st.text(min_size=1), st.none() | st.just("2025-03-01"))
def test_the_line_that_was_shown_and_the_text_behind_it_are_quotations_whatever_stands_there(
    one: str, between: str, two: str, time: str | None
) -> None:
    record = Statement(3, one + between + two, time)
    assert quotes(record_line(record), record)
    assert quotes(record.text, record)


def test_identical_candidates_are_one_and_others_at_the_same_position_stay() -> None:
    listed = _read(_listing(_item(3), _item(3), _item(3, "Italy"), _item(3)))
    assert [(c.position, c.entity) for c in listed.candidates] == [(3, "Rome"), (3, "Italy")]


@pytest.mark.parametrize("position", ["5", " 5 ", 5.0])
def test_a_position_written_as_a_text_or_a_float_is_the_integer_that_it_spells(position: object) -> None:
    assert _positions(_read(_listing(_item(position)))) == [5]


@pytest.mark.parametrize(
    "item",
    [
        _item("[5]"),
        _item("five"),
        _item(5.5),
        _item(True),
        _item(None),
        _item([5]),
        _item("٥"),
        _item(10**30),
        _item("9" * 5_000),
        _item(5, 7),
        _item(5, None),
        _item(5, "Rome", 3),
        {"position": 5},
        {},
        "5: Rome",
        5,
        None,
        [[]],
    ],
)
def test_an_item_of_the_wrong_shape_is_left_out_and_the_fault_says_so(item: object) -> None:
    listed = _read(_listing(_item(3), item))
    assert _positions(listed) == [3]
    assert listed.fault == "1 of 2 items are no candidates"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Rome",
        "null",
        "{}",
        "[]",
        '{"candidates": "Rome"}',
        '{"candidates": {"position": 3}}',
        "{" * 5_000,
        '{"candidates":' * 3_000,
        "[" * 100_000,
        '{"candidates": [',
        "{\u0000}",
        '{"a": "\\ud800"}',
    ],
)
def test_an_answer_without_a_list_is_an_empty_list_with_a_fault(text: str) -> None:
    listed = _read(text)
    assert listed.candidates == ()
    assert listed.fault == NOT_JSON


def test_of_a_list_that_was_cut_off_the_complete_items_are_kept_and_nothing_is_guessed() -> None:
    whole = _listing(_item(3), _item(5, "Turin"), _item(8, "Ada"))
    seen = set()
    for length in range(len(whole)):
        listed = _read(whole[:length], finish="length")
        # Complete are the items whose closing brace is there.
        assert _positions(listed) == [3, 5, 8][: whole[:length].count("}")]
        assert listed.fault == CUT
        seen.add(len(listed.candidates))
    assert seen == {0, 1, 2, 3}
    # At the cap, and complete all the same.
    assert _read(whole, finish="length").fault is None


def test_an_object_inside_a_text_is_no_candidate() -> None:
    inner = json.dumps(_item(5, "Turin"))
    cut = _listing(_item(3), _item(8, "Ada", inner))[:-20]
    assert _positions(_read(cut, finish="length")) == [3]


def test_a_list_in_a_fence_is_as_asked_for_and_words_after_it_are_a_note_and_no_fault() -> None:
    whole = _listing(_item(3), _item(5, "Turin"))
    assert (_positions(_read(f"```json\n{whole}\n```")), _read(f"```json\n{whole}\n```").fault) == ([3, 5], None)
    talking = _read(f"{whole} I hope that this helps.")
    assert (_positions(talking), talking.fault, talking.note) == ([3, 5], None, "text after the JSON")
    # A list to which nothing is to be said stays what it was, byte for byte.
    assert b"note" not in encode(_read(whole))
    # Words before it make it no JSON; nothing is looked for in them.
    assert (_positions(_read(f"Here: {whole}")), _read(f"Here: {whole}").fault) == ([], NOT_JSON)


def test_thousands_of_candidates_are_all_kept() -> None:
    listed = _read(_listing(*(_item(position) for position in range(5_000))))
    assert _positions(listed) == list(range(5_000))
    # Rome stands in record 3 alone of the three that were shown.
    assert [candidate.position for candidate in usable(listed, SETTINGS)] == [3]


def test_a_value_that_no_utf8_can_hold_costs_its_item_alone() -> None:
    text = _listing(_item(3)).replace("]}", ', {"position": 5, "record": "r", "value": "\\ud800"}]}')
    listed = _read(text)
    assert _positions(listed) == [3]
    assert listed.fault == "1 of 2 items are no candidates"


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ('{"position": NaN, "record": "r", "value": "Rome"}', "NaN is no number"),
        ('{"position": 5, "position": 3, "record": "r", "value": "Rome"}', "a key is given twice"),
    ],
)
def test_what_lenient_readers_of_json_let_pass_ends_the_list(item: str, fault: str) -> None:
    listed = _read(_listing(_item(3)).replace("]}", f", {item}]}}"))
    assert (_positions(listed), listed.fault) == ([3], fault)


def test_a_call_that_failed_lists_nothing_and_says_why() -> None:
    listed = _read("", finish="error", error="the server was busy")
    assert (listed.candidates, listed.fault) == ((), "the server was busy")


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_no_text_is_an_error(text: str) -> None:
    _read(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["position", "record", "value", "candidates", "x"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values, st.integers(0, 400))
def test_no_json_is_an_error_wherever_it_is_cut(value: object, length: int) -> None:
    text = json.dumps({"candidates": value})
    _read(text)
    _read(text[:length], finish="length")


@pytest.mark.parametrize(
    ("entity", "text", "time", "stands"),
    [
        ("Rome", "The capital is Rome.", None, True),
        ("ROME", "The capital is “Rome”!", None, True),
        ("Rome's", "The capital is Rome.", None, True),
        ("Rome", "The capital is Oslo.", None, False),
        ("capital Rome", "The capital is Rome.", None, False),
        ("北京", "中国的首都是北京。", None, True),
        ("2026-01-31", "She moved.", "2026-01-31T10:00", True),
        ("2026-01-31", "She moved.", None, False),
        ("2", "Ada caught 12 bass on day 21.", None, False),
        ("2", "Ada caught 12 bass on day 2.", None, True),
        ("12 bass", "Ada caught 12 bass.", None, True),
        ("2 bass", "Ada caught 12 bass.", None, False),
        ("5", "The pole is 1.5 m long.", None, False),
        ("1", "The pole is 1.5 m long.", None, False),
        ("1.5", "The pole is 1.5 m long.", None, True),
        ("1.5 m", "The pole is 1.5 m long.", None, True),
        ("1.5", "It runs version 1.5.2.", None, False),
        ("1,000", "The town has 1,000,000 people.", None, False),
        ("000", "The town has 1,000,000 people.", None, False),
        ("1,000,000", "The town has 1,000,000 people.", None, True),
        ("1 000 000", "The town has 1,000,000 people.", None, True),
        ("5", "The pole is 1.5 m, the other 5.", None, True),
        ("5 5", "Of 1.5 5 5 are left.", None, True),
        ("5", "Ada chose 1, 5 and 7.", None, True),
        ("31", "She moved.", "2026-01-31T10:00", True),
        ("Рим", "Ада живёт в Риме.", None, True),
        ("", "The capital is Rome.", None, False),
        ("  ", "The capital is Rome.", None, False),
        ("★", "The rating is ★.", None, True),
        ("★", "The rating is good.", None, False),
    ],
)
def test_a_value_stands_in_its_record_under_the_normalisation_of_entity_keys(
    entity: str, text: str, time: str | None, stands: bool
) -> None:
    assert stands_in(entity, Statement(1, text, time)) is stands


@given(st.text("0123456789.,ab '’s½İ-", max_size=12), st.text("0123456789.,ab '’s½İ-", max_size=3))
def test_a_value_stands_where_its_key_does_unless_a_number_with_points_or_commas_is_cut(text: str, entity: str) -> None:
    # An oracle of its own: joined numbers are words of letters, in the value as in the record, and all else is as it was.
    key, whole = entity_key(entity), entity_key(text)
    assume(key)
    edge = r"(?:(?<!\d)|(?!\d))"
    as_before = re.search(f"{edge}{re.escape(key)}{edge}", whole) is not None
    joined = [entity_key(number) for number in re.findall(r"\d+(?:[.,]\d+)+", text)]
    if not joined:
        assert stands_in(entity, Statement(1, text)) is as_before
    if stands_in(entity, Statement(1, text)):
        assert as_before
    if joined and key in {word for number in joined for word in number.split()}:
        rest = entity_key(re.sub(r"\d+(?:[.,]\d+)+", "|", text))
        assert stands_in(entity, Statement(1, text)) is (re.search(f"{edge}{re.escape(key)}{edge}", rest) is not None)


def test_the_digest_of_a_list_is_that_of_everything_in_it() -> None:
    one = _read(_listing(_item(3)))
    assert digest_of(one) == digest_of(_read(_listing(_item(3))))
    assert digest_of(one) != digest_of(_read(_listing(_item(3, "Italy"))))
