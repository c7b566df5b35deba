"""The relations of an extraction by a model, as people see them and edit them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny import ROWS, coldread, make_folder, write_experiment, write_rows
from tiny_extraction import RULES, bytes_of, extractor, make_run, refuse_engine, statements

from offline.canonical import file_digest

Plugin = Callable[..., Path]


@pytest.fixture
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("wide"), window=32_768)


@pytest.fixture
def made(tmp_path: Path, wide_model: Path, plugin: Plugin) -> Path:
    plugin("return []", RULES)
    run = make_run(tmp_path, wide_model)
    refuse_engine(tmp_path)
    return run


def listed(run: Path) -> dict[str, list[str]]:
    """Relations and their names, as printed."""
    relations = json.loads(coldread("catalogue", str(run), "--json").stdout)["relations"]
    return {relation["relation"]: [name["name"] for name in relation["names"]] for relation in relations}


def written(run: Path, path: Path) -> dict:
    coldread("catalogue", str(run), "--out", str(path))
    return yaml.safe_load(path.read_text())


def test_the_catalogue_is_that_of_the_model_until_a_person_edits_it(made: Path, tmp_path: Path):
    relations = {"home": ["home", "home town"], "river": ["river"]}
    assert listed(made) == relations
    of = file_digest(made / "extraction" / "names.jsonl")
    assert written(made, tmp_path / "mine.yaml") == {"of": of, "relations": relations}
    coldread("catalogue", str(made), "--out", str(tmp_path / "mine.yaml"), code=3)  # it is there


def test_a_second_edit_begins_with_the_first(made: Path, tmp_path: Path, wide_model: Path):
    first = written(made, tmp_path / "first.yaml")
    edit = {"residence": ["home"], "town": ["home town"], "stream": ["river"]}
    (tmp_path / "first.yaml").write_text(yaml.safe_dump({**first, "relations": edit}))
    make_run(tmp_path, wide_model, catalogue="first.yaml")
    after = bytes_of(made / "extraction")
    assert {t["relation"] for s in statements(made) for t in s["triples"]} == set(edit)
    assert listed(made) == edit
    second = written(made, tmp_path / "second.yaml")
    assert second == {"of": first["of"], "relations": edit}
    # Used as it is written, it says what the first said.
    make_run(tmp_path, wide_model, catalogue="second.yaml")
    assert bytes_of(made / "extraction") == after
    second["relations"] = {"residence": ["home", "home town"], "stream": ["river"]}
    (tmp_path / "second.yaml").write_text(yaml.safe_dump(second))
    make_run(tmp_path, wide_model, catalogue="second.yaml")
    assert {t["relation"] for s in statements(made) for t in s["triples"]} == {"residence", "stream"}
    assert listed(made) == second["relations"]


def test_facts_are_those_of_the_extraction_also_where_forms_read_them(tmp_path: Path, wide_model: Path, plugin: Plugin):
    plugin("return []", RULES)
    names = "Abe Bea Cal Dan Eve Fay Gil Hal Ida Jan Kim Lea"
    people = [f"{name} lives in Rome." for name in names.split()]
    rows = [{**ROWS[0], "statements": [*people, "Carl lives in Rome.", "Carl lives in Oslo.", "Rome lies on the river Tiber."]}]
    run = make_run(tmp_path, wide_model, "hybrid", rows)
    by = [json.loads(line)["by"] for line in (run / "extraction" / "drafts.jsonl").read_text().splitlines()]
    counted = [json.loads(line)["facts"] for line in (run / "extraction" / "names.jsonl").read_text().splitlines()]
    assert by.count("form") > 0
    assert sum(counted) == 15 - by.count("form")
    relations = json.loads(coldread("catalogue", str(run), "--json").stdout)["relations"]
    assert {relation["relation"]: relation["facts"] for relation in relations} == {"home": 14, "river": 1}
    assert sum(name["facts"] for relation in relations for name in relation["names"]) == 15
    shown = coldread("catalogue", str(run)).stdout
    assert any(line.split()[:2] == ["home", "home"] and "14" in line.split() for line in shown.splitlines())


def test_facts_of_an_edited_catalogue_are_split_by_name(made: Path, tmp_path: Path, wide_model: Path):
    (tmp_path / "mine.yaml").write_text("relations: {town: [home town]}")
    make_run(tmp_path, wide_model, catalogue="mine.yaml")
    relations = json.loads(coldread("catalogue", str(made), "--json").stdout)["relations"]
    # Ada twice, Bob, Carl twice; two rivers.
    assert {r["relation"]: (r["facts"], [n["facts"] for n in r["names"]]) for r in relations} == {
        "home": (3, [3]),
        "town": (2, [2]),
        "river": (2, [2]),
    }


@pytest.mark.parametrize(
    ("relations", "why"),
    [
        ({"a": ["x"], "b": ["x"]}, "lists 'x' in two places"),
        ({"a": ["Home"], "b": ["home"]}, "lists 'Home' and 'home', spellings of one name"),
        ({"": ["x"]}, "has a relation ''"),
        ({" home": ["x"]}, "has a relation ' home'"),
        ({"--": ["x"]}, "has a relation '--'"),
    ],
)
def test_a_catalogue_that_cannot_be_meant_is_refused_before_anything_is_made(
    relations: dict, why: str, tmp_path: Path, wide_model: Path
):
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump({"relations": relations}))
    experiment = write_experiment(
        tmp_path, wide_model, readers=[], frontend={"kind": "llm"}, extractor=extractor(wide_model, catalogue="bad.yaml")
    )
    for more in ((), ("--dry-run",)):
        command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"), *more]
        assert why in coldread(*command, code=3).stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "relations"),
    [
        ({}, {"residence": ["hmoe"]}),  # no such name
        ({"of": "0" * 64}, {"residence": ["home"]}),  # an edit of something else
        ({}, {"river": ["home"]}),  # would join the river that is not listed
    ],
)
def test_an_edit_that_does_not_fit_the_names_leaves_the_extraction_as_it_was(
    change: dict, relations: dict, made: Path, tmp_path: Path, wide_model: Path
):
    before = bytes_of(made / "extraction")
    edit = {**written(made, tmp_path / "mine.yaml"), **change, "relations": relations}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(edit))
    make_run(tmp_path, wide_model, code=3, catalogue="mine.yaml")
    assert bytes_of(made / "extraction") == before
    make_run(tmp_path, wide_model)  # the way back that the message names
    assert bytes_of(made / "extraction") == before
    # The same in a folder of its own, whose names are found first.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.yaml").write_text(yaml.safe_dump(edit))
    make_run(tmp_path / "other", wide_model, code=3, catalogue="mine.yaml")
    assert not (tmp_path / "other" / "run" / "extraction").exists()


def test_a_grammars_extraction_has_no_catalogue(tmp_path: Path, wide_model: Path):
    experiment = write_experiment(tmp_path, wide_model, readers=[])
    rows = str(write_rows(tmp_path))
    coldread("run", str(experiment), "--data", rows, "--out", str(tmp_path / "run"), "--until", "extract")
    assert "made without a model" in coldread("catalogue", str(tmp_path / "run"), code=10).stderr
