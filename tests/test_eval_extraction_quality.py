"""Extractions beside a reference, worked out by hand; what must hold of any is checked on a drawn stream and by brute force."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import GRAMMAR, ROWS, coldread, write_experiment, write_rows
from worlds import RealWorld, experiment, history, question, settings

from eval.extraction.alignment import ERRORS, Alignment, align, in_common, map_relations
from eval.extraction.downstream import CAUSES, downstream
from eval.extraction.quality import OVERWRITTEN, errors, linked_pairs, linking, relations, statuses, triples
from eval.labels import read_ledger
from eval.results import as_json
from extract.frontends import extract
from offline.config.frontend import GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.loaders import load
from offline.loaders.synthetic import SyntheticData
from offline.records import Extraction, History, Question, Relation, StatementExtraction, Triple
from offline.run.opened import OpenRun

Result = dict[str, Any]
# A statement's triples, or its status.
Said = str | list[tuple[str, str, str]]


def made(**said: Said) -> Extraction:
    """An extraction of texts; an underscore stands for a space, and each text ends in a full stop."""
    return of({f"{text.replace('_', ' ')}.": what for text, what in said.items()})


def of(said: dict[str, Said]) -> Extraction:
    """An extraction of these texts."""
    statements = [
        StatementExtraction(text, what, reason="why") if isinstance(what, str) else _facts(text, what)  # type: ignore[arg-type]
        for text, what in said.items()
    ]
    names = sorted({triple.relation for statement in statements for triple in statement.triples})
    return Extraction(tuple(statements), tuple(Relation(name, name) for name in names))


def _facts(text: str, parts: list[tuple[str, str, str]]) -> StatementExtraction:
    for subject, _, target in parts:
        assert {subject in text, target in text} == {True}
    return StatementExtraction(text, "facts", tuple(Triple(*part) for part in parts))


def compared(ours: Extraction, theirs: Extraction, *histories: History) -> Result:
    """All measures of two extractions but what they do to cmc."""
    pairs = in_common(ours, theirs)
    mapping = map_relations(pairs)
    alignment = Alignment(pairs, mapping)
    return {
        "statuses": printed(statuses(pairs)),
        "relations": printed(relations(alignment, mapping)),
        **printed(triples(pairs, mapping)),
        "errors": printed(errors(alignment)),
        "linking": printed(linking(histories, ours, theirs, alignment)),
    }


def printed(result: object) -> Any:
    """A result as `--json` prints it."""
    return json.loads(as_json(result))


def kinds(result: Result) -> dict[str, int]:
    """The error counts that are not zero."""
    return {kind: count for kind, count in result["errors"]["counts"].items() if count}


def shares(cell: Result) -> tuple[float | None, ...]:
    return cell["precision"], cell["recall"], cell["f1"]


def relabelled(extraction: Extraction) -> Extraction:
    """The same under other names, whose order is another one too."""
    names = {relation.name: f"r{99 - number} of {relation.name}" for number, relation in enumerate(extraction.relations)}
    return changed(extraction, lambda triple: msgspec.structs.replace(triple, relation=names[triple.relation]))


def changed(extraction: Extraction, change: Callable[[Triple], Triple]) -> Extraction:
    """The same with every triple changed."""
    statements = tuple(msgspec.structs.replace(s, triples=tuple(map(change, s.triples))) for s in extraction.statements)
    names = sorted({triple.relation for statement in statements for triple in statement.triples})
    return Extraction(statements, tuple(Relation(name, name) for name in names))


# Statuses


def test_statuses_are_a_confusion_of_distinct_texts_with_reasons() -> None:
    fact: Said = [("a", "r", "b")]
    ours = made(a_b=fact, a_to_b="unresolved", a_of_b="unresolved", c="no_fact", only_ours="no_fact")
    theirs = made(a_b=fact, a_to_b=fact, a_of_b=fact, c="unresolved", only_theirs="no_fact")
    assert [tuple(cell.values()) for cell in compared(ours, theirs)["statuses"]] == [
        ("facts", "facts", 1, {}, {}),
        ("no_fact", "unresolved", 1, {"why": 1}, {"why": 1}),
        ("unresolved", "facts", 2, {"why": 2}, {}),
    ]


# Relations


def test_a_relation_is_mapped_to_the_one_that_it_shares_most_pairs_with() -> None:
    # lives: twice home, once born. leads is boss the other way round. odd shares nothing.
    ours = made(
        a_in_x=[("a", "lives", "x")],
        b_in_y=[("b", "lives", "y")],
        c_in_z=[("c", "lives", "z")],
        d_of_e=[("d", "leads", "e")],
        f_of_g=[("f", "odd", "g")],
    )
    theirs = made(
        a_in_x=[("a", "home", "x")],
        b_in_y=[("b", "home", "y")],
        c_in_z=[("c", "born", "z")],
        d_of_e=[("e", "boss", "d")],
        f_of_g="no_fact",
    )
    found = compared(ours, theirs)["relations"]
    assert found["unmapped"] == ["odd"]
    assert found["mapping"] == [
        {"relation": "leads", "reference": "boss", "straight": 0, "exchanged": 1},
        {"relation": "lives", "reference": "home", "straight": 2, "exchanged": 0},
    ]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        # One pair with each: the first name.
        (["a p b", "c o d"], "o"),
        # One pair with each, and one has the name.
        (["a p b", "c q d"], "q"),
        # o has a pair that q lacks, so q would be a part of it; p has none.
        (["a p b", "c o d", "x o y"], "p"),
        # Two straight pairs with p. One straight and one exchanged with o are not two.
        (["a p b", "c p d", "e o f", "h o g"], "p"),
        # Two exchanged ones are more than one straight one.
        (["a o b", "d p c", "f p e"], "p"),
    ],
    ids=["first name", "same name", "the smaller", "directions apart", "exchanged"],
)
def test_what_decides_between_relations(theirs: list[str], expected: str) -> None:
    # q states each of these pairs in the order of the alphabet, but nothing of x and y.
    reference = of({f"{fact}.": [(fact[0], fact[2], fact[4])] for fact in theirs})
    ours = of(
        {f"{fact}.": [(min(fact[0], fact[4]), "q", max(fact[0], fact[4]))] if fact[0] != "x" else "no_fact" for fact in theirs}
    )
    assert map_relations(in_common(ours, reference))["q"].reference == expected


def test_merges_and_splits_name_their_parts_with_facts_and_an_example() -> None:
    ours = made(
        a_in_x=[("a", "at", "x")],
        b_in_y=[("b", "at", "y")],
        c_of_z=[("c", "at", "z")],
        d_in_w=[("d", "lives", "w")],
        e_in_v=[("v", "at", "e")],
    )
    theirs = made(
        a_in_x=[("a", "home", "x")],
        b_in_y=[("b", "home", "y")],
        c_of_z=[("c", "boss", "z")],
        d_in_w=[("d", "home", "w")],
        e_in_v=[("e", "home", "v")],
    )
    found = compared(ours, theirs)["relations"]
    assert found["merges"] == [
        {
            "relation": "at",
            "parts": [
                {"relation": "home", "facts": 3, "example": "a in x."},
                {"relation": "boss", "facts": 1, "example": "c of z."},
            ],
        }
    ]
    assert found["splits"] == [
        {
            "relation": "home",
            "parts": [
                {"relation": "at", "facts": 3, "example": "a in x."},
                {"relation": "lives", "facts": 1, "example": "d in w."},
            ],
        }
    ]


# Errors


WHOLE: Said = [("Ada Lee", "r", "Rome")]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (WHOLE, {}),
        ([("Ada Lee", "s", "Rome")], {"relation": 1}),
        ([("Rome", "r", "Ada Lee")], {"direction": 1}),
        ([("Ada", "r", "Rome")], {"span": 1}),
        ([("Ada Lee", "r", "in Rome")], {"span": 1}),
        ([("Ada", "s", "in Rome")], {"span": 1}),
        ("unresolved", {"unresolved": 1}),
        ("no_fact", {"no_fact": 1}),
        ([("lives", "r", "now")], {"missing": 1, "extra": 1}),
        # Its subject is another part of the statement, so it is another fact.
        ([("lives", "r", "Rome")], {"missing": 1, "extra": 1}),
        ([("Ada Lee", "r", "Rome"), ("Ada Lee", "r", "now")], {"extra": 1}),
        # An equal fact takes its place first: what overlaps it is too much.
        ([("Ada", "r", "Rome"), ("Ada Lee", "r", "Rome")], {"extra": 1}),
        # Punctuation and case are no part of a key.
        ([("Ada Lee", "r", "Rome ")], {}),
    ],
)
def test_every_error_is_of_one_kind(said: Said, expected: dict[str, int]) -> None:
    # Two statements without error say what r and s are.
    both: dict[str, Said] = {"Bo of X.": [("Bo", "r", "X")], "Cy of X.": [("Cy", "s", "X")]}
    text = "Ada Lee lives in Rome now."
    result = compared(of({text: said, **both}), of({text: WHOLE, **both}))
    assert kinds(result) == expected
    assert all(item["text"] == text for item in result["errors"]["items"])
    assert len(result["errors"]["items"]) == sum(expected.values())


def test_the_same_relation_is_preferred_and_each_fact_is_paired_once() -> None:
    both: dict[str, Said] = {"Bo of X.": [("Bo", "r", "X")], "Cy of X.": [("Cy", "s", "X")]}
    text = "Ada Lee lives in old Rome."
    ours = of({text: [("Ada", "s", "Rome"), ("Ada", "r", "Rome")], **both})
    theirs = of({text: [("Ada Lee", "r", "Rome")], **both})
    pairs = in_common(ours, theirs)
    found = align(*pairs[0], map_relations(pairs))
    assert [(a.kind, a.extraction and a.extraction.relation) for a in found] == [("span", "r"), ("extra", "s")]


def test_precision_and_recall_of_triples_pairs_and_keys_by_hand() -> None:
    # Equal; another relation; exchanged; unresolved; one too many. Four facts against four.
    ours = made(
        a_b=[("a", "r", "b")],
        c_d=[("c", "r", "d")],
        s_t=[("s", "q", "t")],
        e_f=[("f", "r", "e")],
        g_h="unresolved",
        a_r_b=[("a", "r", "b"), ("a", "r", "r")],
    )
    theirs = made(
        a_b=[("a", "R", "b")],
        c_d=[("c", "Q", "d")],
        s_t=[("s", "Q", "t")],
        e_f=[("e", "R", "f")],
        g_h=[("g", "R", "h")],
        a_r_b=[("a", "R", "b")],
    )
    result = compared(ours, theirs)
    parts = ("both", "extraction", "reference")
    counts = {name: tuple(result[name][part] for part in parts) for name in ("triples", "pairs", "keys")}
    # Right triples: a b, s t, a r b. Right pairs: c d too. Keys of a r b: one, by both.
    assert counts == {"triples": (3, 6, 6), "pairs": (4, 6, 6), "keys": (3, 5, 6)}
    assert shares(result["triples"]) == (50.0, 50.0, 50.0)
    # 3 of 5, 3 of 6, and 6 of 11.
    assert shares(result["keys"]) == (60.0, 50.0, 54.55)
    assert kinds(result) == {"relation": 1, "direction": 1, "unresolved": 1, "extra": 1}


def test_nothing_has_no_precision() -> None:
    result = compared(made(a_b="no_fact"), made(a_b=[("a", "r", "b")]))
    assert shares(result["triples"]) == (None, 0.0, 0.0)


END = st.sampled_from(["a", "b", "c", "a b", "b c"])
TRIPLES = st.lists(st.tuples(END, st.sampled_from(["p", "q", "r"]), END), max_size=4)
SAID = st.one_of(TRIPLES.map(lambda parts: parts or "no_fact"), st.sampled_from(["unresolved", "no_fact"]))
TEXTS = ("a b c.", "c a b c.", "b c a b.")


@given(st.lists(SAID, min_size=3, max_size=3), st.lists(SAID, min_size=3, max_size=3))
def test_errors_are_what_lacks_to_precision_and_recall(ours: list[Said], theirs: list[Said]) -> None:
    a, b = (of(dict(zip(TEXTS, side, strict=True))) for side in (ours, theirs))
    result = compared(a, b)
    counts, agreed = result["errors"]["counts"], result["triples"]
    paired = counts["relation"] + counts["direction"] + counts["span"]
    assert agreed["extraction"] - agreed["both"] == paired + counts["extra"]
    assert agreed["reference"] - agreed["both"] == paired + counts["missing"] + counts["unresolved"] + counts["no_fact"]


@given(st.lists(SAID, min_size=3, max_size=3))
def test_an_extraction_beside_itself_has_no_finding(said: list[Said]) -> None:
    one = of(dict(zip(TEXTS, said, strict=True)))
    result = compared(one, one, history(*TEXTS, *TEXTS))
    assert kinds(result) == {}
    assert result["relations"]["merges"] == result["relations"]["splits"] == []
    agreed = [result["linking"]["pairs"], *(result[name] for name in ("triples", "pairs", "keys"))]
    assert all(set(shares(cell)) <= {100.0, None} for cell in agreed)


# Same key


KEYS = st.frozensets(st.sampled_from([("a", "r"), ("a", "s"), ("b", "r"), ("c", "r")]), max_size=3)


@given(st.lists(st.tuples(KEYS, KEYS), max_size=25))
def test_pairs_by_groups_are_those_of_enumeration(stated: list[tuple[frozenset[Any], frozenset[Any]]]) -> None:
    linked = [(bool(a & c), bool(b & d)) for (a, b), (c, d) in itertools.combinations(stated, 2)]
    expected = sum(x and y for x, y in linked), sum(x for x, _ in linked), sum(y for _, y in linked)
    assert linked_pairs(stated) == expected


def test_linking_needs_no_names_of_relations() -> None:
    # The reference has a key of three statements (3 pairs) and one of two (1 pair). Ours has the first two of the three
    # (1 pair), and joins the third with the two (3 pairs, of which 1 is right).
    texts = ("a at x.", "a at y.", "a at z.", "a by v.", "a by w.")
    theirs = of({text: [("a", text[2:4], text[5])] for text in texts})
    ours = of({text: [("a", "one" if text in texts[:2] else "two", text[5])] for text in texts})
    linked = printed(linking([history(*texts)], ours, theirs, _alignment(ours, theirs)))["pairs"]
    assert linked == {"both": 2, "extraction": 4, "reference": 4, "precision": 50.0, "recall": 50.0, "f1": 50.0}


def _alignment(ours: Extraction, theirs: Extraction) -> Alignment:
    pairs = in_common(ours, theirs)
    return Alignment(pairs, map_relations(pairs))


def test_pairs_are_those_of_one_history() -> None:
    texts = ("a at x.", "a at y.")
    one = of({text: [("a", "at", text[5])] for text in texts})
    apart = [history(text, name=text) for text in texts]
    assert linking(apart, one, one, _alignment(one, one)).pairs.reference == 0
    # A text that stands twice is two statements, and two histories of it do not meet.
    twice = [history(texts[0], texts[0]), history(texts[0], texts[0], name="other")]
    assert linking(twice, one, one, _alignment(one, one)).pairs.reference == 2


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (["at", "at"], "wins"),
        # Other names, one key all the same.
        (["by", "by"], "wins"),
        (["at", "by"], "contradictory"),
        (["exchanged", "exchanged"], "contradictory"),
        (["at", "unresolved"], "stale"),
        (["no_fact", "at"], "wins"),
        (["no_fact", "unresolved"], "lost"),
    ],
)
def test_an_overwritten_key_by_what_is_current(said: list[str], outcome: str) -> None:
    texts = ("a at x.", "a at y.")
    ours: dict[str, Said] = {}
    for text, what in zip(texts, said, strict=True):
        fact = (text[5], "at", "a") if what == "exchanged" else ("a", what, text[5])
        ours[text] = what if what in ("unresolved", "no_fact") else [fact]
    theirs = of({text: [("a", "at", text[5])] for text in texts})
    found = printed(linking([history(*texts)], of(ours), theirs, _alignment(of(ours), theirs)))["overwritten"]
    assert found == {"keys": 1, **{name: int(name == outcome) for name in OVERWRITTEN}}


def test_a_key_stated_again_with_its_first_value_does_not_contradict_itself() -> None:
    texts = ("a at x.", "a at y.", "a is at x.")
    theirs = of({text: [("a", "at", text[-2])] for text in texts})
    # The last statement has another key; the first, which says the same, is overwritten by y, which is another value.
    ours = of({texts[0]: [("a", "at", "x")], texts[1]: "no_fact", texts[2]: [("a", "by", "x")]})
    found = printed(linking([history(*texts)], ours, theirs, _alignment(ours, theirs)))["overwritten"]
    assert (found["keys"], found["wins"]) == (1, 1)


# Downstream

CHAIN: dict[str, Said] = {
    "Ada leads to Bo.": [("Ada", "next", "Bo")],
    "Bo leads to Cy.": [("Bo", "next", "Cy")],
    "Ada leads to Di.": [("Ada", "next", "Di")],
    "Di leads to Ed.": [("Di", "next", "Ed")],
    "Ed is married to Fay.": [("Ed", "spouse", "Fay")],
    "Ada is married to Gus.": [("Ada", "spouse", "Gus")],
    "Ada Lee is tall.": "no_fact",
}
ASKED = question("Whom does Ada Lee lead to?")


def effect(ours: dict[str, Said], **view_settings: object) -> Result:
    """What an extraction that differs from CHAIN in some statements does to cmc."""
    mine, theirs = of({**CHAIN, **ours}), of(CHAIN)
    with_settings = experiment(view_settings=settings(**view_settings))
    result: Result = printed(
        downstream([history(*CHAIN)], [ASKED], mine, theirs, _alignment(mine, theirs), with_settings, None)
    )
    return result


@pytest.mark.parametrize(
    ("ours", "cause", "position"),
    [
        # cmc is about the records 2, 5, 3 and 4, in this order. An unresolved record is shown, but leads nowhere.
        ({"Di leads to Ed.": "unresolved"}, "unresolved", 3),
        ({"Di leads to Ed.": "no_fact"}, "no_fact", 3),
        ({"Di leads to Ed.": [("leads", "next", "to")]}, "missing", 3),
        ({"Di leads to Ed.": [("Ed", "next", "Di")]}, "direction", 3),
        ({"Ada leads to Di.": [("Ada", "next", "to Di")]}, "span", 2),
        # Record 2 is overwritten by 5, and record 0 is shown in its place.
        ({"Ada leads to Di.": [("Ada", "own", "Di")], "Ada is married to Gus.": [("Ada", "own", "Gus")]}, "split", 2),
        ({"Ada is married to Gus.": [("Ada", "next", "Gus")]}, "merged", 2),
        # The longer subject hides the shorter one.
        ({"Ada Lee is tall.": [("Ada Lee", "is", "tall")]}, "anchor", 2),
    ],
)
def test_the_first_cause_of_a_lacking_record(ours: dict[str, Said], cause: str, position: int) -> None:
    found = effect(ours)
    (lacking,) = found["lacking"]
    assert lacking == {
        "question": "q",
        "hop_class": "all",
        "cause": cause,
        "position": position,
        "text": list(CHAIN)[position],
    }
    cell = found["by_hops"]["all"]
    assert cell["causes"] == {name: int(name == cause) for name in CAUSES}
    assert (cell["reached"], cell["extraction"]["complete"], cell["reference"]["complete"]) == (1, 0, 1)
    assert (cell["extraction"]["cmc_keys"], cell["extraction"]["no_anchor"]) == (4, 0)


def test_a_budget_is_none_of_the_causes() -> None:
    # The heading takes 8 of 40 characters, "[5] Ada is married to Gus." with its line break 27.
    found = effect({}, budget=40)
    assert found["lacking"][0]["cause"] == "other"
    cell = found["by_hops"]["all"]
    assert cell["extraction"] == cell["reference"]
    assert (cell["extraction"]["cmc_keys_shown"], cell["extraction"]["truncated"]) == (1, 1)


def test_an_earlier_value_beside_the_current_one_lacks_nothing_and_is_counted() -> None:
    found = effect({"Ada leads to Di.": [("Ada", "own", "Di")]})
    cell = found["by_hops"]["all"]
    assert (found["lacking"], found["outdated"], cell["outdated"], cell["extraction"]["complete"]) == ([], ["q"], 1, 1)
    # Record 0 leads to Bo, and so to record 1.
    assert (cell["extraction"]["records"], cell["reference"]["records"]) == (6, 4)


def test_without_any_fact_everything_is_shown_as_a_fallback() -> None:
    cell = effect(dict.fromkeys(CHAIN, "no_fact"))["by_hops"]["all"]
    assert (cell["extraction"]["fallbacks"], cell["extraction"]["no_anchor"], cell["extraction"]["records"]) == (1, 1, 7)
    assert (cell["reference"]["fallbacks"], cell["reference"]["no_anchor"]) == (0, 0)
    assert (cell["extraction"]["complete"], cell["outdated"]) == (1, 1)


def test_a_question_that_the_reference_cannot_reach_has_no_cause() -> None:
    one, asked = of(CHAIN), question("Who is nobody?")
    found = printed(downstream([history(*CHAIN)], [asked], one, one, _alignment(one, one), experiment(), None))
    cell = found["by_hops"]["all"]
    assert (cell["reached"], cell["extraction"]["complete"], found["lacking"]) == (0, 0, [])


# A drawn stream


@pytest.fixture(scope="module")
def stream() -> tuple[Sequence[History], Sequence[Question], Extraction]:
    """Two synthetic histories with their questions and what the grammar makes of them."""
    loaded = load(SyntheticData(seed=3, statements=(200, 400), questions=12), None, None)
    grammar = load_yaml(find_config("grammars", "synthetic"), GrammarForms)
    return loaded.histories, loaded.questions, extract(loaded.histories, experiment(grammar=grammar))


@pytest.mark.parametrize("change", [lambda extraction: extraction, relabelled], ids=["itself", "relabelled"])
def test_an_extraction_beside_itself_is_right_in_everything_whatever_its_names(
    stream: tuple[Sequence[History], Sequence[Question], Extraction], change: Callable[[Extraction], Extraction]
) -> None:
    histories, questions, theirs = stream
    ours = change(theirs)
    assert {s.status for s in ours.statements} == {"facts", "unresolved", "no_fact"}
    result = compared(ours, theirs, *histories)
    assert all(cell["extraction"] == cell["reference"] for cell in result["statuses"])
    assert kinds(result) == {}
    assert result["relations"]["merges"] == result["relations"]["splits"] == []
    assert all(shares(result[name]) == (100.0, 100.0, 100.0) for name in ("triples", "pairs", "keys"))
    linked = result["linking"]
    assert shares(linked["pairs"]) == (100.0, 100.0, 100.0)
    assert linked["overwritten"]["keys"] == linked["overwritten"]["wins"] > 50
    found = printed(downstream(histories, questions, ours, theirs, _alignment(ours, theirs), experiment(), None))
    assert (found["questions"], found["lacking"], found["outdated"]) == (24, [], [])
    for cell in found["by_hops"].values():
        assert cell["extraction"] == cell["reference"]
        assert cell["extraction"]["complete"] == cell["reached"] == cell["questions"] > 0


@given(st.sets(st.integers(0, 300)))
def test_as_many_direction_errors_as_statements_are_turned_round(
    stream: tuple[Sequence[History], Sequence[Question], Extraction], chosen: set[int]
) -> None:
    _, _, theirs = stream
    facts = [s.text for s in theirs.statements if s.status == "facts"]
    texts = {facts[number] for number in chosen}
    ours = Extraction(
        tuple(
            msgspec.structs.replace(s, triples=tuple(Triple(t.object, t.relation, t.subject) for t in s.triples))
            if s.text in texts
            else s
            for s in theirs.statements
        ),
        theirs.relations,
    )
    result = compared(ours, theirs)
    assert kinds(result) == ({"direction": len(texts)} if texts else {})
    assert {item["text"] for item in result["errors"]["items"]} == texts
    assert result["triples"]["both"] == len(facts) - len(texts)
    assert result["relations"]["merges"] == result["relations"]["splits"] == []


@pytest.mark.real_data
def test_the_grammar_beside_itself_on_the_real_rows_of_6k(real_world: RealWorld) -> None:
    histories = [h for h in real_world.histories if h.length == "6k"]
    asked = [q for q in real_world.questions if q.history in {h.id for h in histories}]
    texts = {s.text for h in histories for s in h.statements}
    one = Extraction(tuple(s for s in real_world.extraction.statements if s.text in texts), real_world.extraction.relations)
    result = compared(one, one, *histories)
    assert (result["triples"]["both"], kinds(result)) == (455, {})
    linked = result["linking"]
    assert linked["overwritten"]["keys"] == linked["overwritten"]["wins"] == 161
    assert shares(linked["pairs"]) == (100.0, 100.0, 100.0)
    found = printed(downstream(histories, asked, one, one, _alignment(one, one), experiment(), None))
    assert {name: cell["extraction"]["complete"] for name, cell in found["by_hops"].items()} == {
        "mh": 100,
        "sh": 100,
        "all": 200,
    }


# The command

POOR = GRAMMAR.replace('  river: ["{subject} lies on the river {object}."]\n', 'no_fact: ["{any} lies on the river {any}."]\n')


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of the tiny rows whose grammar takes rivers for no fact; `homes.yaml` beside it knows them."""
    return extracted(tmp_path)


def start(folder: Path, until: str, rows: list[dict[str, Any]] | None = None, **changes: object) -> Path:
    """A run of the tiny rows without a reader."""
    file, place = write_experiment(folder, folder, readers=[], **changes), folder / "run"
    data = [] if "data" in changes else ["--data", str(write_rows(folder, rows))]
    coldread("run", str(file), *data, "--out", str(place), "--until", until)
    return place


def extracted(folder: Path, rows: list[dict[str, Any]] | None = None, grammar: str = POOR) -> Path:
    """A run up to its extraction."""
    (folder / "poor.yaml").write_text(grammar)
    return start(folder, "extract", rows, frontend={"kind": "grammar", "grammar": str(folder / "poor.yaml")})


def against(run: Path, reference: str | Path, *options: str) -> Result:
    """What `coldread extract --against --json` prints."""
    result: Result = json.loads(coldread("extract", str(run), "--against", str(reference), "--json", *options).stdout)
    return result


def files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_the_command_compares_with_a_grammar_run_right_then(run: Path) -> None:
    before = files(run)
    result = against(run, f"grammar:{run.parent / 'homes.yaml'}")
    # No label was opened and nothing written.
    assert files(run) == before
    assert read_ledger(OpenRun(run)) == ()
    assert result["texts"] == {"compared": 8, "only_extraction": 0, "only_reference": 0}
    assert result["errors"]["counts"] == {**dict.fromkeys(ERRORS, 0), "no_fact": 2}
    assert (result["agreement"]["triples"]["both"], result["agreement"]["triples"]["reference"]) == (5, 7)
    # ada/0 and ada/1 lack the river of Paris, ada/2 that of Rome; carl/0 is complete and carl/1 reaches nothing.
    cells = result["downstream"]["by_hops"]
    assert {name: (cell["questions"], cell["reached"], cell["extraction"]["complete"]) for name, cell in cells.items()} == {
        "sh": (4, 3, 1),
        "mh": (1, 1, 0),
        "all": (5, 4, 1),
    }
    found = [(item["question"], item["cause"], item["text"]) for item in result["downstream"]["lacking"]]
    paris, rome = "Paris lies on the river Seine.", "Rome lies on the river Tiber."
    assert found == [("ada/0", "no_fact", paris), ("ada/1", "no_fact", paris), ("ada/2", "no_fact", rome)]
    assert "gold_in_evidence" not in cells["mh"]["extraction"]


def test_gold_opens_the_labels_and_the_ledger_says_so(run: Path) -> None:
    before = files(run)
    result = against(run, f"grammar:{run.parent / 'homes.yaml'}", "--gold")
    assert [entry.command for entry in read_ledger(OpenRun(run))] == ["extract --against"]
    assert {path.name for path, content in files(run).items() if before.get(path) != content} == {"ledger.jsonl"}
    cell = result["downstream"]["by_hops"]["mh"]
    # The river of Ada's home.
    assert [cell[side]["gold_in_evidence"] for side in ("extraction", "reference")] == [0, 1]
    assert [cell[side]["gold_as_value"] for side in ("extraction", "reference")] == [0, 1]
    # Homes are shown by both; carl/1 has an answer that nothing holds.
    assert result["downstream"]["by_hops"]["sh"]["extraction"]["gold_as_value"] == 3


def test_the_command_compares_with_another_run_what_both_have(run: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    reference = extracted(other, ROWS[:1], GRAMMAR)
    result = against(run, reference)
    assert result["texts"] == {"compared": 5, "only_extraction": 3, "only_reference": 0}
    assert result["downstream"]["questions_left_out"] == 2
    assert result["downstream"]["by_hops"]["all"]["questions"] == 3
    assert against(reference, run)["texts"] == {"compared": 5, "only_extraction": 0, "only_reference": 3}
    shown = coldread("extract", str(run), "--against", str(reference)).stdout
    assert "not compared: 3 texts that only the extraction has" in shown
    assert "downstream without 2 questions" in shown


def test_a_history_that_is_not_whole_is_compared_without_its_questions(run: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    rows = [{**ROWS[0], "statements": ["Ada lives in Rome.", "Ada lives in Paris."]}]
    result = against(run, extracted(other, rows, GRAMMAR))
    assert result["linking"]["pairs"]["both"] == result["linking"]["overwritten"]["wins"] == 1
    assert result["downstream"] == {"questions_left_out": 5}


def test_references_that_cannot_be_used_are_refused_before_a_label_is_opened(run: Path, tmp_path: Path) -> None:
    def refused(reference: str | Path, code: int) -> str:
        return coldread("extract", str(run), "--against", str(reference), "--gold", code=code).stderr

    for name in ("other", "empty"):
        (tmp_path / name).mkdir()
    stranger = extracted(tmp_path / "other", [{**ROWS[1], "statements": ["It is early."]}])
    assert "give grammar:NAME" in refused("grammar", 3)
    assert "mquake, synthetic" in refused("grammar:nowhere", 3)
    assert "no such folder" in refused(tmp_path / "nowhere", 3)
    assert "is no run" in refused(tmp_path / "empty", 10)
    assert "no statement in common" in refused(stranger, 4)
    assert "--against" in coldread("extract", str(run), "--gold", code=2).stderr
    assert read_ledger(OpenRun(run)) == ()


def test_nothing_is_extracted_anew(tmp_path: Path) -> None:
    run = start(tmp_path, "load")
    assert f"coldread extract {run}" in coldread("extract", str(run), "--against", "grammar:mquake", code=10).stderr
    assert not (run / "extraction").exists()


def test_the_grammar_that_fits_the_data_is_taken(tmp_path: Path) -> None:
    data = {"kind": "synthetic", "statements": [60], "questions": 4}
    frontend = {"kind": "grammar", "grammar": "synthetic"}
    result = against(start(tmp_path, "extract", data=data, frontend=frontend), "grammar")
    assert result["reference"] == "grammar:synthetic"
    assert shares(result["agreement"]["triples"]) == (100.0, 100.0, 100.0)


def test_what_is_printed_fits_a_hundred_columns_steers_no_terminal_and_says_what_the_json_says(tmp_path: Path) -> None:
    places = [f"City{number}\u001b[31m" + "東" * 60 for number in range(12)]
    row = {
        "history": "long",
        "statements": [f"{place} lies on the river Po." for place in places],
        "questions": [{"id": "0", "text": f"Which river is {places[0]} on?", "answers": ["Po"]}],
    }
    run = extracted(tmp_path, [row])
    reference = f"grammar:{tmp_path / 'homes.yaml'}"
    shown = coldread("extract", str(run), "--against", reference, "--gold").stdout
    # The title names folders of any length.
    assert max(sum(2 if c == "東" else 1 for c in line) for line in shown.splitlines()) <= 100
    assert "\u001b" not in shown
    assert "… 4 more errors (--json prints all)" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["triples", "0", "0", "12", "-", "0.00", "0.00"] in rows
    assert [row[-1] for row in rows if row[:1] == ["no_fact"]] == ["12", "12", "0"]
