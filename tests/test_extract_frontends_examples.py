"""Examples in calls: what has no room is shown shorter, never left out of a call that could be made."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scripted import READER, answer, entry, records_of, scripted

from extract.frontends.catalogue import Catalogue
from extract.frontends.examples import excerpt, first_with_room
from extract.frontends.llm import hybrid, llm
from extract.frontends.records import Draft
from offline.config.calls import ExtractionPrompt, Extractor
from offline.config.yaml import find_config, load_yaml
from offline.records import Message, Triple
from readers.calls.caller import Ask, Caller
from readers.records import Decoding

PROMPT = load_yaml(find_config("prompts", "extract"), ExtractionPrompt)
NAMES = ["home", "home place", "domicile", "residence", "dwelling", "abode", "seat", "lodging", "quarters"]
PADDING = " This was noted down in the margin of a long letter about other things."


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (None, "In the year of the flood Ada went to live in Rome, they say."),
        (40, "In the year of the flood Ada went to live in Rome, they say."),
        (11, "… the flood Ada went to live in Rome, they say."),
        (5, "…lood Ada went…e in Rome, the…"),
        (0, "…Ada…Rome…"),
    ],
)
def test_an_excerpt_keeps_the_ends_and_what_stands_around_them(width: int | None, expected: str) -> None:
    text = "In the year of the flood Ada went to live in Rome, they say."
    assert excerpt(text, ("Ada", "Rome"), width) == excerpt(text, ("Rome", "Ada"), width) == expected


@given(st.text("ab \u0301\n", min_size=1, max_size=40), st.integers(0, 12), st.data())
def test_an_excerpt_of_anything_holds_both_ends_and_nothing_that_is_not_in_the_text(
    text: str, width: int, data: st.DataObject
) -> None:
    ends = []
    for _ in range(2):
        start = data.draw(st.integers(0, len(text) - 1))
        ends.append(text[start : data.draw(st.integers(start + 1, len(text)))])
    shown = excerpt(text, ends, width)
    parts = [part for part in shown.split("…") if part]
    assert all(any(end in part for part in parts) for end in ends)
    # Parts follow one another in the text, none twice.
    at = 0
    for part in parts:
        at = text.index(part, at) + len(part)
    assert ("…" in shown) == (shown != text)
    assert excerpt(text, ends, len(text)) == text


def test_the_first_variant_with_room_for_all_its_calls_is_taken_else_the_last() -> None:
    def ask(size: int) -> Ask:
        return Ask(
            "align", (Message(role="system", content=""), Message(role="user", content="x" * size)), Decoding(output_cap=4)
        )

    caller = scripted(lambda stage, chat: "", replace(READER, input_cap=300))
    variants = [
        ("both", (ask(10), ask(1_000))),
        ("neither", (ask(900), ask(900))),
        ("fits", (ask(9), ask(8))),
        ("too", (ask(1),)),
    ]
    assert first_with_room(caller, iter(variants)) == variants[2]
    assert first_with_room(caller, iter(variants[:2])) == variants[1]
    # What was tried and left is no call.
    caller.ask(variants[2][1])
    assert [call.refused for call in caller.transcript.calls] == [None, None]


def draft(n: int, name: str, padding: str = "") -> Draft:
    """A statement whose ends stand in the middle of it."""
    text = f"{padding}The {name} of Name{n} is City{n}.{padding}"
    return Draft(text, "facts", (Triple(f"Name{n}", name, f"City{n}"),), None, "model", None)


def compared(drafts: Sequence[Draft], room: int) -> tuple[list[str], Catalogue, Caller]:
    """What the model is shown when these drafts' names are new, call by call; it finds none alike. Bytes of room are tokens."""
    shown = []

    def script(stage: str, chat: Sequence[Message]) -> str:
        shown.append(chat[-1].content)
        return '{"same": 0}'

    reader = replace(READER, input_cap=room)
    caller = scripted(script, reader)
    catalogue = Catalogue(Extractor(reader=reader, prompt=PROMPT), caller)
    catalogue.add(drafts)
    return shown, catalogue, caller


def told(message: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The new name with its examples, and the known ones with theirs, of one call."""
    new, _, known = message.removeprefix("New relation:\n").partition("\nKnown relations:\n")
    lines = [line.partition(": ")[2] for line in known.splitlines()]
    assert lines.count("none of these") == 1
    return json.loads(new), [json.loads(line) for line in lines if line != "none of these"]


def test_where_all_fits_a_call_is_byte_for_byte_what_it_always_was() -> None:
    # Answers in caches and sealed runs hang on it: three examples of the new name, one of each known one, nothing cut.
    drafts = [
        draft(n, name, PADDING) for n, name in enumerate(["home", "domicile", "domicile", "home", "domicile", "domicile"])
    ]
    shown, _, _ = compared(drafts, 100_000)

    def example(n: int) -> str:
        return json.dumps({"text": drafts[n].text, "subject": f"Name{n}", "object": f"City{n}"})

    new = f'{{"relation": "domicile", "examples": [{example(1)}, {example(2)}, {example(4)}]}}'
    home = f'{{"relation": "home", "examples": [{example(0)}]}}'
    assert shown == [
        f"New relation:\n{new}\nKnown relations:\n0: none of these\n1: {home}",
        f"New relation:\n{new}\nKnown relations:\n0: {home}\n1: none of these",
    ]


def test_with_less_room_examples_go_first_then_they_are_cut_and_known_names_go_last() -> None:
    drafts = [draft(n, name, PADDING * 22) for n, name in enumerate([*NAMES, NAMES[-1], NAMES[-1]])]
    assert min(len(d.text) for d in drafts) > 3_000
    steps: list[tuple[int, int, int]] = []
    for room in (45_000, 36_000, 32_000, 28_000, 12_000, 8_000, 4_000, 3_000, 2_400, 1_800, 1_400):
        shown, catalogue, caller = compared(drafts, room)
        assert all(p.finish_reason == "stop" for p in caller.transcript.predictions)
        (new, known), (again, turned) = map(told, shown[-2:])
        # Both calls show the same, and the catalogue says which names that were.
        assert (new, sorted(map(str, known))) == (again, sorted(map(str, turned)))
        assert new["relation"] == NAMES[-1]
        assert catalogue.names()[-1].shown == tuple(each["relation"] for each in known)
        examples = [example for each in (new, *known) for example in each["examples"]]
        whole = {d.text for d in drafts}
        for example in examples:
            assert example["subject"] in example["text"]
            assert example["object"] in example["text"]
            assert example["text"] in whole or "…" in example["text"]
            assert " of Name" in example["text"]
        steps.append((len(new["examples"]), len(known), max(len(example["text"]) for example in examples)))
        assert {len(each["examples"]) for each in known} == {1}
    names, lengths = len(NAMES) - 1, [length for _, _, length in steps]
    assert [count for count, _, _ in steps[:3]] == [3, 2, 1], steps
    assert {count for count, _, _ in steps[3:]} == {1}
    assert lengths == sorted(lengths, reverse=True)
    fewer = [known for _, known, _ in steps if known < names]
    assert len(fewer) > 1
    assert [known for _, known, _ in steps] == [names] * (len(steps) - len(fewer)) + sorted(fewer, reverse=True)
    # Only when nothing more can be cut.
    assert {length for _, known, length in steps if known < names} == {min(lengths)}


def test_names_of_long_statements_are_mapped_as_those_of_short_ones_are() -> None:
    """The model knows that all but `seat` mean what `home` means, and sees it where it is shown."""
    into = []
    for padding in ("", PADDING * 22):
        texts = {draft(n, name, padding).text: draft(n, name).triples[0] for n, name in enumerate(NAMES * 2)}

        def script(stage: str, chat: Sequence[Message], texts: dict[str, Triple] = texts) -> str:
            if stage != "align":
                triples = [(n, texts[text]) for n, text in records_of(chat)]
                return answer(*(entry(n, (t.subject, t.relation, t.object)) for n, t in triples))
            wanted = "none of these" if told(chat[-1].content)[0]["relation"] == "seat" else '"relation": "home",'
            places = [
                number for number, line in enumerate(chat[-1].content.partition("Known")[2].splitlines()[1:]) if wanted in line
            ]
            return json.dumps({"same": places[0] if places else 99})

        reader = replace(READER, input_cap=8_192)
        caller = scripted(script, reader)
        extracted = llm(list(texts), Extractor(reader=reader, prompt=PROMPT, statements=4, wave=1, constrained=False), caller)
        into.append({name.name: name.into for name in extracted.names})
        assert {name.fault for name in extracted.names} == {None}
    assert into[0] == into[1] == {name: None if name in ("home", "seat") else "home" for name in NAMES}


def test_ends_that_alone_fill_a_call_leave_the_names_apart_and_say_why() -> None:
    endless = "x" * 5_000
    drafts = [
        Draft(f"{endless} {name} {endless}y", "facts", (Triple(endless, name, f"{endless}y"),), None, "model", None)
        for name in ("home", "domicile")
    ]
    shown, catalogue, _ = compared(drafts, 8_192)
    assert shown == []
    assert "there is room for" in (catalogue.names()[1].fault or "")


def test_a_review_shows_as_much_as_it_has_room_for() -> None:
    """Statements of 1,447 characters, a token each, read in two ways: six records and two examples take about 12,000."""
    padding = PADDING * 10
    texts = [f"{padding}The home of Name{n} is City{n}.{padding}" for n in range(12)]
    shown: list[list[str]] = []

    def script(stage: str, chat: Sequence[Message]) -> str:
        if stage == "review":
            records, _, readings = chat[-1].content.removeprefix("Records:\n").partition("\nReadings:\n")
            shown.append(records.splitlines())
            return json.dumps({"reading": next(n for n, line in enumerate(readings.splitlines()) if '"home"' in line)})
        ends = [(number, int(text.partition("Name")[2].partition(" ")[0])) for number, text in records_of(chat)]
        facts = [(number, (f"Name{n}", "seat" if n == 1 else "home", f"City{n}")) for number, n in ends]
        return answer(*(entry(number, fact) for number, fact in facts))

    for room, records, whole in ((14_000, 6, True), (10_500, 4, True), (6_000, 1, True), (4_600, 1, False)):
        shown.clear()
        reader = replace(READER, input_cap=room)
        extractor = Extractor(reader=reader, prompt=PROMPT, statements=1, wave=8, align=False, input_cap=room)
        extracted = hybrid(texts, extractor, scripted(script, reader))
        assert [len(each) for each in shown] == [records, records]
        assert {json.loads(line) in texts for each in shown for line in each} == {whole}
        assert all("Name" in line and "City" in line for each in shown for line in each)
        assert [(form.relation, form.readings) for form in extracted.forms] == [("home", 2)]
