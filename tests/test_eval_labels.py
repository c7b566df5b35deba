"""Labels: read apart, complete, opened under a chained ledger, simulated without the graph."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from tiny import ROWS, coldread, write_experiment, write_rows

from eval.labels import LEDGER, open_labels, read_ledger, simulate
from offline.errors import AlteredError
from offline.loaders.synthetic import Event, Plan, SyntheticData, World, draw_world
from offline.records import History
from offline.run.opened import OpenRun


def loaded(folder: Path, model: Path, rows: list[dict[str, object]], code: int = 0) -> tuple[Path, str]:
    run = folder / "run"
    command = ["run", str(write_experiment(folder, model)), "--data", str(write_rows(folder, rows)), "--out", str(run)]
    return run, coldread(*command, "--until", "load", code=code).stderr


def changed(index: int, **fields: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(json.dumps(ROWS))
    rows[0]["questions"][index].update(fields)  # type: ignore[index]
    return rows


def test_labels_lie_in_their_own_file_and_nowhere_else(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, tiny_model, ROWS)
    holding = [p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file() and b"La Seine" in p.read_bytes()]
    assert holding == ["labels/labels.jsonl"]


@pytest.mark.parametrize("answers", [[], ["A"], ["Paris", "..."], ["  "]])
def test_a_label_that_cannot_be_scored_is_refused_with_its_row(tiny_model: Path, tmp_path: Path, answers: list[str]) -> None:
    run, errors = loaded(tmp_path, tiny_model, changed(1, answers=answers), code=5)
    assert "line 1, question 1" in errors
    assert not (run / "labels").exists()


def test_a_question_without_an_answer_field_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    rows = changed(0)
    del rows[0]["questions"][2]["answers"]  # type: ignore[index]
    _, errors = loaded(tmp_path, tiny_model, rows, code=5)
    assert "ada/2" in errors


def test_answers_of_the_wrong_type_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    _, errors = loaded(tmp_path, tiny_model, changed(0, answers=[1900]), code=4)
    assert "answers" in errors


def write_facts(path: Path, answers: list[object], questions: int = 2) -> Path:
    row = {
        "context": "Facts:\n0. Ada lives in Rome.\n1. Ada lives in Paris.\n",
        "questions": ["Where does Ada live?", "Where is Ada?"][:questions],
        "answers": answers,
        "metadata": {"source": "factconsolidation_sh_6k", "qa_pair_ids": ["a", "b"][:questions]},
    }
    path.write_text(json.dumps([row]))
    return path


def facts_experiment(folder: Path, model: Path) -> Path:
    return write_experiment(folder, model, data={"kind": "factconsolidation"})


def test_counts_of_questions_and_answers_that_differ_name_the_row(tiny_model: Path, tmp_path: Path) -> None:
    data = write_facts(tmp_path / "facts.json", [["Paris"]])
    command = ["run", str(facts_experiment(tmp_path, tiny_model)), "--data", str(data), "--out", str(tmp_path / "run")]
    errors = coldread(*command, code=4).stderr
    assert "row 0 (factconsolidation_sh_6k)" in errors
    assert "2 questions but 1 answers" in errors


def test_several_aliases_and_a_single_string_are_both_answers(tiny_model: Path, tmp_path: Path) -> None:
    data = write_facts(tmp_path / "facts.json", [["Paris", "City of Paris"], "Paris"])
    run = tmp_path / "run"
    command = ["run", str(facts_experiment(tmp_path, tiny_model)), "--data", str(data), "--out", str(run)]
    coldread(*command, "--until", "load")
    golds = [json.loads(line)["golds"] for line in (run / "labels" / "labels.jsonl").read_text().splitlines()]
    assert golds == [["Paris", "City of Paris"], ["Paris"]]


def test_every_opening_is_in_the_ledger_with_the_seals_there_were(scored_run: Path, copied_run: Path) -> None:
    coldread("coverage", str(copied_run))
    coldread("score", str(copied_run))  # up to date: opens nothing
    shutil.rmtree(copied_run / "scores")
    coldread("score", str(copied_run))
    ledger = read_ledger(OpenRun(copied_run))
    assert [(e.number, e.command) for e in ledger] == [(1, "score"), (2, "coverage"), (3, "score")]
    root = json.loads((scored_run / "reads" / "tiny" / "seal.json").read_text())["root"]
    assert [e.seals for e in ledger] == [{"tiny": root}] * 3


def test_a_seal_made_after_an_opening_says_so(tiny_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ["run", str(write_experiment(tmp_path, tiny_model)), "--data", str(write_rows(tmp_path)), "--out", str(run)]
    coldread(*command, "--until", "freeze")
    coldread("coverage", str(run))
    coldread("read", str(run))
    assert json.loads(coldread("score", str(run), "--json").stdout)["seals"]["tiny"]["sealed_blind"] is False
    assert "sealed after labels were opened" in coldread("score", str(run)).stdout


def test_a_seal_made_before_any_opening_is_blind(scored_run: Path, copied_run: Path) -> None:
    assert json.loads(coldread("score", str(copied_run), "--json").stdout)["seals"]["tiny"]["sealed_blind"] is True
    assert "sealed blind" in coldread("score", str(copied_run)).stdout


@pytest.mark.parametrize("damage", ["drop first", "swap", "renumber", "empty"])
def test_a_ledger_that_was_rewritten_is_refused(copied_run: Path, damage: str) -> None:
    run = OpenRun(copied_run)
    for _ in range(2):
        open_labels(run, "coverage")
    path = copied_run / "labels" / LEDGER
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "drop first": lines[1:],
        "swap": [lines[1], lines[0], *lines[2:]],
        "renumber": [line.replace(b'"number":3', b'"number":4') for line in lines],
        "empty": [],
    }[damage]
    path.write_bytes(b"".join(damaged))
    with pytest.raises(AlteredError, match=r"ledger\.jsonl"):
        read_ledger(run)


def test_the_simulation_follows_the_newest_event_of_each_step() -> None:
    # Ada moves from Rome to Paris before the end; Paris's river is stated twice, Rome's once.
    events = (
        Event(0, "Ada", "home", "Rome"),
        Event(1, "Rome", "river", "Tiber"),
        Event(2, "Paris", "river", "Marne"),
        Event(3, "Ada", "home", "Paris"),
        Event(4, "Paris", "river", "Seine"),
    )
    plans = (Plan("w/0", "Ada", ("home",)), Plan("w/1", "Ada", ("home", "river")), Plan("w/2", "Rome", ("river",)))
    assert simulate(World("w", (), events, plans)) == {"w/0": "Paris", "w/1": "Seine", "w/2": "Tiber"}


def test_synthetic_golds_are_what_reading_the_statements_by_eye_gives() -> None:
    # Read back from the written statements with one regular split per form, newest line first.
    world = draw_world(SyntheticData(statements=(300,), questions=24), 0)
    lines = {
        "employer": (" works for ", ""),
        "teacher": (" was taught by ", ""),
        "home": (" lives in ", ""),
        "head_office": (" is in ", "The head office of "),
        "leader": (" is led by ", ""),
        "region": (" lies in the region of ", ""),
        "mayor": (" is ", "The mayor of "),
        "language": (" speak ", "Most people in "),
    }

    def newest(subject: str, relation: str) -> str:
        middle, before = lines[relation]
        for statement in reversed(world.statements):
            head = f"{before}{subject}{middle}"
            if statement.text.startswith(head):
                return statement.text[len(head) : -1]
        raise AssertionError(f"{subject} has no {relation}")

    for plan in world.plans:
        at = plan.start
        for relation in plan.relations:
            at = newest(at, relation)
        assert simulate(world)[plan.question] == at


def test_an_answer_cannot_be_named_upstream_of_eval() -> None:
    # No record of offline/ or readers/ has a field for an answer.
    import offline.records as upstream
    import readers.records as reading

    for module in (upstream, reading):
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, msgspec.Struct):
                assert not {"gold", "golds", "answer", "answers", "label"} & set(thing.__struct_fields__)
    assert "answers" not in History.__struct_fields__
