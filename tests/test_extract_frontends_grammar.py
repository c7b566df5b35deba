import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import coldread, write_experiment, write_rows
from worlds import GRAMMAR, RealWorld, experiment, extraction, history, real_file

from extract.frontends import distinct_texts, extract
from extract.frontends.grammar import compile_forms, parse_statement
from offline.config.frontend import Frontend, GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.errors import ConfigurationError
from offline.records import StatementExtraction, Triple

MQUAKE = load_yaml(find_config("grammars", "mquake"), GrammarForms)
SYNTHETIC = load_yaml(find_config("grammars", "synthetic"), GrammarForms)


def _parse(text: str, grammar: GrammarForms = MQUAKE) -> StatementExtraction:
    return parse_statement(text, compile_forms(grammar))


@pytest.mark.parametrize(
    ("text", "triple"),
    [
        ("The capital of France is Paris.", ("France", "P36", "Paris")),
        ("Paris Hilton's child is London.", ("Paris Hilton", "P40", "London")),
        # The sentence's own full stop is the form's last literal; the abbreviation's stays with the object.
        ("Tim Cook is employed by Apple Inc..", ("Tim Cook", "P108", "Apple Inc.")),
        ("The author of Misery is Stephen King.", ("Misery", "P50", "Stephen King")),
        # `The {subject} is {object}.` fits as well; the form with more literal text wins.
        ("The director of Tate Modern is Frances Morris.", ("Tate Modern", "P1037", "Frances Morris")),
        ("The prime minister is somebody.", ("prime minister", "P1308", "somebody")),
        # `{subject} is located in {object}.` fits three of these; the longest literal text decides.
        ("Rome is located in Italy.", ("Rome", "P131", "Italy")),
        ("Rome is located in the country of Italy.", ("Rome", "P17", "Italy")),
        ("Rome is located in the continent of Europe.", ("Rome", "P30", "Europe")),
        ("The headquarters of CBS is located in the city of New York City.", ("CBS", "P159", "New York City")),
        # Literal text that occurs twice ends the slot at its first place.
        ("Rome is located in Lazio is located in Italy.", ("Rome", "P131", "Lazio is located in Italy")),
        # A slot of white space alone does not fit `The capital of {subject} is {object}.`; the catch-all does.
        ("The capital of   is Rome.", ("capital of  ", "P1308", "Rome")),
        # `". "` inside a text is no end of a statement.
        ("The author of Mr. Fox is Dr. No.", ("Mr. Fox", "P50", "Dr. No")),
        ("Caf\u00e9 was founded by Zoe\u0308.", ("Caf\u00e9", "P112", "Zoe\u0308")),
        ("محمد was born in the city of القاهرة.", ("محمد", "P19", "القاهرة")),
    ],
)
def test_a_statement_gives_the_triple_that_it_states(text: str, triple: tuple[str, str, str]) -> None:
    assert _parse(text) == StatementExtraction(text=text, status="facts", triples=(Triple(*triple),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Nothing that any form knows",
        "The capital of France is Paris",
        " is married to Bo.",
        "Ada is married to .",
        "Ada is married to  .",
        # A subject or an object without a letter or digit has no key in the graph.
        "... is married to Bo.",
        "Ada is married to ....",
        "the capital of France is Paris.",
        # A slot holds one line, whatever breaks it.
        "Tate was founded by Rome.\nMy friend Al moved to Oslo.",
        "a\nb was founded by c.",
        "Tate was founded by Ada\u2028and Bo.",
    ],
)
def test_a_statement_that_no_form_fits_is_left_to_the_reader(text: str) -> None:
    parsed = _parse(text)
    assert (parsed.status, parsed.triples) == ("unresolved", ())
    assert parsed.reason


def test_forms_without_a_fact_and_forms_for_the_reader_keep_their_status() -> None:
    assert _parse("Ada had lunch with Bo.", GRAMMAR).status == "no_fact"
    assert _parse("Perhaps Ada moved to Rome.", GRAMMAR).status == "unresolved"
    assert _parse("Ada is married to Bo.", GRAMMAR).status == "facts"


def test_a_form_without_a_fact_may_be_a_whole_sentence_which_fits_itself_alone() -> None:
    grammar = GrammarForms(
        name="chat",
        relations={"home": ("{subject} is in {object}?",)},
        no_fact=("Hi, who is in town?", "Hi, {any}."),
        unresolved=("Perhaps.",),
    )
    # Its literal text outweighs `{subject} is in {object}?`, which fits as well.
    assert _parse("Hi, who is in town?", grammar).status == "no_fact"
    assert _parse("Hi, who is in town", grammar).reason == "no form fits"
    assert _parse("Hi, who is in Rome?", grammar).status == "facts"
    assert _parse("Perhaps.", grammar).reason == "a form that is left to the reader"


def test_a_slot_of_a_form_without_a_fact_hides_no_second_line() -> None:
    assert _parse("Ada had lunch with Bo.", GRAMMAR).status == "no_fact"
    assert _parse("Ada had lunch with Bo.\nAda is married to Bo.", GRAMMAR).reason == "no form fits"


def test_forms_are_tried_from_the_most_literal_text_to_the_least() -> None:
    weights = [sum(map(len, form.literals)) for form in compile_forms(MQUAKE)]
    assert weights == sorted(weights, reverse=True)


NAME = st.from_regex(r"[A-Z][a-z]{1,6}( [A-Z][a-z]{1,6})?", fullmatch=True)


@given(st.sampled_from(sorted(MQUAKE.relations)), NAME, NAME)
def test_a_form_filled_with_two_names_is_parsed_back(relation: str, subject: str, value: str) -> None:
    for form in MQUAKE.relations[relation]:
        parsed = _parse(form.replace("{subject}", subject).replace("{object}", value))
        assert parsed.triples == (Triple(subject, relation, value),)


def _readings(text: str, grammar: GrammarForms) -> set[tuple[int, str]]:
    """Literal length and relation of every form that fits, by regular expressions instead of string search."""
    readings = set()
    for relation, forms in grammar.relations.items():
        for form in forms:
            literals = re.split(r"\{subject\}|\{object\}", form)
            match = re.fullmatch("(.+?)".join(map(re.escape, literals)), text)
            if match and all(slot.strip() for slot in match.groups()):
                readings.add((sum(map(len, literals)), relation))
    return readings


PIECE = st.sampled_from(["The ", "capital of ", "Rome", " is ", "located in ", "the city of ", "Ada", "'s child is ", ".", " "])


@given(st.lists(PIECE, max_size=8).map("".join))
def test_the_relation_is_one_of_the_fitting_forms_with_the_most_literal_text(text: str) -> None:
    parsed = _parse(text)
    readings = _readings(text, MQUAKE)
    assert (parsed.reason == "no form fits") == (not readings)
    if parsed.status == "facts":
        assert (max(readings)[0], parsed.triples[0].relation) in readings


@given(st.text(max_size=60))
def test_subject_and_object_are_literal_spans_of_any_text_that_parses(text: str) -> None:
    for triple in _parse(f"The {text} is {text}.").triples:
        assert triple.subject in f"The {text} is {text}."
        assert triple.object in f"The {text} is {text}."


def test_a_statement_of_ten_megabytes_is_parsed_whole() -> None:
    subject = "word " * 2_000_000
    parsed = _parse(f"The capital of {subject}is Paris.")
    assert parsed.triples == (Triple(subject.rstrip(), "P36", "Paris"),)
    assert _parse("is " * 3_333_333).status == "unresolved"


@pytest.mark.parametrize(
    ("relations", "message"),
    [
        ({"a": ("{subject} is.",)}, "must hold {object} and {subject}"),
        ({"a": ("{subject} and {subject}.",)}, "must hold"),
        ({"a": ("{subject} is {object} of {object}.",)}, "must hold"),
        ({"a": ("{subject} is {thing}.",)}, "must hold"),
        ({"a": ("{subject}{object}.",)}, "nothing between"),
        ({"a": ("{subject} is {object",)}, "does not close"),
        ({"a": ("{subject} is {object}.",), "b": ("{subject} is {object}.",)}, "'a' and 'b' share one form"),
        # The same text around swapped slots would be read either way.
        ({"a": ("{subject} is {object}.",), "b": ("{object} is {subject}.",)}, "'a' and 'b' share one form"),
        ({"a": ("{subject} is {object}.", "{object} is {subject}.")}, "'a' and 'a' share one form"),
    ],
)
def test_a_form_that_cannot_be_used_is_refused_with_its_grammar(relations: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as caught:
        compile_forms(GrammarForms(name="mine", relations=relations))
    assert "grammar 'mine'" in str(caught.value)
    assert "share" in message or "relation 'a'" in str(caught.value)


def test_a_form_cannot_both_state_a_fact_and_state_none() -> None:
    with pytest.raises(ConfigurationError, match="'a' and 'no_fact' share one form"):
        compile_forms(GrammarForms(name="mine", relations={"a": ("{subject} is {object}.",)}, no_fact=("{any} is {any}.",)))


def test_a_form_without_a_fact_must_not_name_a_subject() -> None:
    said = "grammar 'mine', no_fact: form '{subject} slept.' states no fact, so it has no {subject}; its slots are all {any}"
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        compile_forms(GrammarForms(name="mine", relations={}, no_fact=("{subject} slept.",)))


@pytest.mark.parametrize("form", ["", "  "])
def test_an_empty_form_is_refused(form: str) -> None:
    with pytest.raises(ConfigurationError, match="unresolved: an empty form"):
        compile_forms(GrammarForms(name="mine", relations={}, unresolved=(form,)))


def test_a_grammar_that_cannot_be_used_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nrelations: {}\nno_fact: ['{subject} slept.']\n")
    frontend = {"kind": "grammar", "grammar": str(tmp_path / "mine.yaml")}
    path, rows = write_experiment(tmp_path, tmp_path, frontend=frontend), str(write_rows(tmp_path))
    for command in (["run", str(path), "--out"], ["load", "--experiment", str(path)]):
        said = coldread(*command, str(tmp_path / "run"), "--data", rows, code=3).stderr
        assert "grammar 'mine', no_fact" in said
        assert not (tmp_path / "run").exists()


def test_a_relations_words_are_its_form_without_slots_and_full_stop() -> None:
    words = {relation.name: relation.words for relation in extraction(history("Ada leads to Bo.")).relations}
    assert words == {"capital": "The capital of is", "next": "leads to", "spouse": "is married to"}


def test_each_text_is_parsed_once_in_order_of_first_appearance() -> None:
    one = history("Ada leads to Bo.", "Bo leads to Cy.", "Ada leads to Bo.", name="one")
    two = history("Cy leads to Di.", "Bo leads to Cy.", name="two")
    texts = ["Ada leads to Bo.", "Bo leads to Cy.", "Cy leads to Di."]
    assert [statement.text for statement in extraction(one, two).statements] == texts == distinct_texts([one, two])


def test_an_unknown_frontend_is_a_configuration_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown frontend 'magic'; known: .*grammar"):
        extract([history("a")], msgspec.structs.replace(experiment(), frontend=Frontend(kind="magic")))


# The real statements


@pytest.mark.real_data
def test_the_grammar_parses_every_statement_of_factconsolidation_with_37_relations(real_world: RealWorld) -> None:
    status = {statement.text: statement.status for statement in real_world.extraction.statements}
    counts = Counter(status[s.text] for h in real_world.histories for s in h.statements)
    # Spec, section 4: 25,677 of 25,677.
    assert counts == {"facts": 25_677}
    assert len({t.relation for s in real_world.extraction.statements for t in s.triples}) == 37


@pytest.mark.real_data
def test_every_real_triple_read_back_through_its_form_is_its_statement(real_world: RealWorld) -> None:
    for statement in real_world.extraction.statements:
        (triple,) = statement.triples
        written = {
            form.replace("{subject}", triple.subject).replace("{object}", triple.object)
            for form in MQUAKE.relations[triple.relation]
        }
        assert statement.text in written


@pytest.mark.real_data
def test_the_shipped_forms_are_mquakes_cloze_templates_with_shared_forms_merged() -> None:
    templates = json.loads(real_file("mquake_cloze_templates.json").read_text())
    ours = {form for forms in MQUAKE.relations.values() for form in forms}
    theirs = {re.sub(r"\.?$", ".", t.replace("[X]", "{subject}").replace("__", "{object}").strip()) for t in templates.values()}
    assert len(templates) == 44
    assert ours == theirs
