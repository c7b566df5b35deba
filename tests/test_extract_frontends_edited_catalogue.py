"""A catalogue edited by a person: what each name's relation is, and which edits are refused."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from extract.frontends.edited_catalogue import check_edit, check_spellings, relations_of
from extract.frontends.records import CatalogueName
from offline.config.calls import EditedCatalogue
from offline.errors import ConfigurationError

DIGEST = "d" * 64


def names_of(**into: str | None) -> tuple[CatalogueName, ...]:
    return tuple(CatalogueName(name.replace("_", " "), 1, (), to) for name, to in into.items())


FOUND = names_of(home=None, home_town="home", river=None, stream="river")


def check(edited: EditedCatalogue, names: tuple[CatalogueName, ...]) -> None:
    check_spellings(edited, "here")
    check_edit(edited, names, DIGEST, "here")


@pytest.mark.parametrize(
    ("relations", "expected"),
    [
        ({}, ["home", "home", "river", "river"]),
        ({"residence": ["home"]}, ["residence", "residence", "river", "river"]),  # what was mapped to it goes with it
        ({"birthplace": ["Home_Town "]}, ["home", "birthplace", "river", "river"]),
        ({"river": ["home"], "home": ["river"]}, ["river", "river", "home", "home"]),
        ({"water": ["river"], "brook": ["stream"]}, ["home", "home", "water", "brook"]),
    ],
)
def test_a_name_goes_where_the_edit_puts_it_or_what_it_was_mapped_to(relations: dict, expected: list[str]):
    edited = EditedCatalogue(relations)
    check(edited, FOUND)
    assert list(relations_of(FOUND, edited).values()) == expected


BY_HAND, OF_THESE = "", DIGEST


@pytest.mark.parametrize(
    ("of", "relations", "why"),
    [
        (OF_THESE, {"a": ["hmoe"]}, r"lists 'hmoe', which this extraction did not find; did you mean 'home'\?"),
        (OF_THESE, {"residence": ["zebra"]}, "lists 'zebra', which .* remove it, or"),
        ("e" * 64, {"residence": ["home"]}, r"is an edit of other names \(eeeeeeeeeeee…\) .* found \(dddddddddddd…\)"),
        *(
            (of, relations, why)
            for of in (BY_HAND, OF_THESE)
            for relations, why in (
                ({"a": ["Home"], "b": ["home"]}, "lists 'Home' and 'home', spellings of one name, in two places"),
                ({"a": ["home", "home"]}, "lists 'home' in two places"),
                ({"a": ["home town"], "b": ["home_town"]}, "lists 'home town' and 'home_town', spellings of one name"),
                ({"Place": ["home"], "place": ["river"]}, "has relations 'Place' and 'place', spelled alike"),
                ({"river": ["home"]}, "has a relation 'river', but does not list the name 'river'"),
                ({"River": ["home town"]}, "has a relation 'River', but does not list the name 'river'"),
                ({"Home": ["home town"]}, "has a relation 'Home', but does not list the name 'home'"),
            )
        ),
    ],
)
def test_an_edit_that_cannot_be_meant_is_refused(of: str, relations: dict, why: str):
    edited = EditedCatalogue(relations, of)
    with pytest.raises(ConfigurationError, match=f"^here {why}"):
        check(edited, FOUND)


def test_an_edit_by_hand_may_list_names_of_other_runs():
    edited = EditedCatalogue({"residence": ("home", "abode"), "river": ("rivulet",)})
    check(edited, FOUND)
    assert list(relations_of(FOUND, edited).values()) == ["residence", "residence", "river", "river"]


WORDS = ("home", "home town", "river", "stream", "seat")


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[CatalogueName, ...]:
    """Names, each mapped to itself or to one before it that stands for itself, as extraction maps them."""
    names: list[CatalogueName] = []
    for word in draw(st.permutations(WORDS)):
        roots = [name.name for name in names if name.into is None]
        names.append(CatalogueName(word, 1, (), draw(st.sampled_from([None, *roots]))))
    return tuple(names)


@st.composite
def edits(draw: st.DrawFn) -> EditedCatalogue:
    """Some of the names, spelled in one way or another, put under some relations."""
    relations: dict[str, list[str]] = {}
    for word in draw(st.lists(st.sampled_from([*WORDS, "abode"]), unique=True)):
        relation = draw(st.sampled_from([*WORDS, "River", "place", "other"]))
        relations.setdefault(relation, []).append(draw(st.sampled_from([word, word.title(), word.replace(" ", "_")])))
    return EditedCatalogue({relation: tuple(names) for relation, names in relations.items()})


def accepted(edited: EditedCatalogue, names: tuple[CatalogueName, ...]) -> bool:
    try:
        check(edited, names)
    except ConfigurationError:
        return False
    return True


@given(catalogues(), edits())
def test_names_share_a_relation_only_if_the_model_or_the_person_put_them_together(names, edited):
    assume(accepted(edited, names))
    into = {name.name: name.into or name.name for name in names}
    listed = {name.replace("_", " ").lower(): to for to, under in edited.relations.items() for name in under}
    by_person = {name: listed.get(name, listed.get(into[name])) for name in into}
    relation = relations_of(names, edited)
    for one in into:
        for other in into:
            if relation[one].lower() == relation[other].lower():
                assert into[one] == into[other] or by_person[one] == by_person[other] is not None


@given(catalogues(), edits())
def test_a_catalogue_that_is_written_out_after_an_edit_says_the_same_again(names, edited):
    assume(accepted(edited, names))
    relation = relations_of(names, edited)
    grouped = {to: tuple(name for name in relation if relation[name] == to) for to in relation.values()}
    again = EditedCatalogue(grouped, of=DIGEST)
    assert accepted(again, names)
    assert relations_of(names, again) == relation
