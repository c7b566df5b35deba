"""Many candidates: every claim is read back from the written sentences, with regular expressions made of the shipped forms."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from rank_bm25 import BM25Okapi
from tiny import coldread

from eval.labels import simulate, versions_labels
from eval.metrics.subem import substring_exact_match
from extract.frontends.grammar import compile_forms, parse_statement
from offline.canonical import digest_of
from offline.config.experiment import Experiment
from offline.config.frontend import GrammarForms
from offline.config.yaml import configs_folder, find_config, load_yaml
from offline.errors import ConfigurationError
from offline.loaders import load
from offline.loaders.plain import PlainData
from offline.loaders.raw import RawSource
from offline.loaders.synthetic import Draw, World, draw_name, question_text
from offline.loaders.versions import SHORTEST, VersionsData, draw_versions
from offline.records import Statement, Triple

FORMS = load_yaml(find_config("grammars", "synthetic"), GrammarForms)
SHIPPED = [load_yaml(configs_folder() / "experiments" / f"{name}.yaml", Experiment) for name in ("versions", "versions-dated")]

# relation -> subject and object of a sentence; what a question of that relation says around its subject
READ = {
    name: re.compile(re.escape(form).replace(r"\{subject\}", "(.+)").replace(r"\{object\}", "(.+)"))
    for name, (form,) in FORMS.relations.items()
}
ASKED = {
    "employer": "What is the employer of (.+)\\?",
    "teacher": "Who is the teacher of (.+)\\?",
    "home": "What is the home city of (.+)\\?",
    "head_office": "What is the city of the head office of (.+)\\?",
    "leader": "Who is the leader of (.+)\\?",
    "region": "What is the region of (.+)\\?",
    "mayor": "Who is the mayor of (.+)\\?",
}
# The subjects' other relations, by kind.
KINDS = ({"employer", "teacher", "home"}, {"head_office", "leader"}, {"region", "mayor"})

Key = tuple[str, str]
Stated = list[tuple[int, str]]


def read(statements: Sequence[Statement]) -> dict[Key, Stated]:
    """(position, object) of every key, (subject, relation), in order; fails on a sentence that is read in two ways or none."""
    found: dict[Key, Stated] = defaultdict(list)
    for statement in statements:
        ((relation, match),) = [(name, m) for name, form in READ.items() if (m := form.fullmatch(statement.text))]
        found[match[1], relation].append((statement.position, match[2]))
    return found


def asked(text: str) -> Key:
    """The key that a question asks about."""
    ((relation, match),) = [(name, m) for name, form in ASKED.items() if (m := re.fullmatch(form, text))]
    return match[1], relation


@st.composite
def sections(draw: st.DrawFn, most: int = 9) -> VersionsData:
    versions = draw(st.lists(st.integers(1, most), min_size=1, max_size=4, unique=True))
    questions = draw(st.integers(1, 12))
    return VersionsData(
        seed=draw(st.integers()),
        versions=tuple(versions),
        questions=questions,
        statements=questions * (max(versions) + 4) + draw(st.integers(0, 120)),
        dated=draw(st.booleans()),
    )


SECTIONS = sections()


def questions_of(world: World) -> dict[str, Key]:
    return {plan.question: asked(question_text(plan)) for plan in world.plans}


@example(VersionsData())
@given(SECTIONS)
def test_every_asked_key_is_stated_exactly_v_times_with_as_many_values(data: VersionsData) -> None:
    loaded = load(data, None, None)
    assert [h.id for h in loaded.histories] == [f"versions_{v}" for v in data.versions]
    assert [h.length for h in loaded.histories] == [f"{v} versions" for v in data.versions]
    for v, history in zip(data.versions, loaded.histories, strict=True):
        stated = read(history.statements)
        mine = [question for question in loaded.questions if question.history == history.id]
        assert [(q.id, q.row) for q in mine] == [(f"{history.id}/q{i}", history.id) for i in range(data.questions)]
        assert {(q.hops, q.hop_class) for q in mine} == {(1, "sh")}
        keys = [asked(question.text) for question in mine]
        assert len({subject for subject, _ in keys}) == data.questions
        for key in keys:
            assert len(stated[key]) == len({value for _, value in stated[key]}) == v


@example(VersionsData())
@given(SECTIONS)
def test_the_gold_is_the_newest_value_and_no_older_one_holds_it_or_is_held_by_it(data: VersionsData) -> None:
    golds = {question: golds for question, golds, _ in versions_labels(data, None)}
    judged = 0
    for world in draw_versions(data):
        stated = read(world.statements)
        for question, key in questions_of(world).items():
            *older, newest = [value for _, value in stated[key]]
            assert golds[question] == [newest] == [simulate(world)[question]]
            for value in older:
                assert not substring_exact_match(value, [newest])
                assert not substring_exact_match(newest, [value])
            judged += 1
    assert judged == len(golds) == data.questions * len(data.versions)


@example(VersionsData())
# Drawn without a look at the others, this seed's names hold `Litrilburg` and `Klitrilburg`.
@example(VersionsData(seed=156, versions=(16,), questions=10))
@given(SECTIONS)
def test_no_name_stands_inside_another_so_a_wrong_answer_never_holds_the_right_one(data: VersionsData) -> None:
    for world in draw_versions(data):
        stated = read(world.statements)
        names = {subject for subject, _ in stated} | {value for told in stated.values() for _, value in told}
        assert not [(a, b) for a in names for b in names if a != b and a.casefold() in b.casefold()]


@example(VersionsData())
@given(SECTIONS)
def test_positions_count_from_nought_and_a_history_is_as_long_as_asked_for(data: VersionsData) -> None:
    for world in draw_versions(data):
        assert [statement.position for statement in world.statements] == list(range(data.statements))


@example(VersionsData())
@given(SECTIONS)
def test_other_relations_of_the_subject_and_other_subjects_of_the_relation_distract(data: VersionsData) -> None:
    for world, v in zip(draw_versions(data), data.versions, strict=True):
        stated = read(world.statements)
        for subject, relation in questions_of(world).values():
            (own,) = [kind for kind in KINDS if relation in kind]
            others = [(s, r) for s, r in stated if s == subject and r != relation]
            assert {r for _, r in others} <= own
            assert sum(len(stated[key]) for key in others) == 3
            # Nothing else names the subject, so v + 3 records are all that a search for its name can find.
            assert sum(subject in statement.text for statement in world.statements) == v + 3
            assert any(r == relation and s != subject for s, r in stated)


@example(VersionsData())
@given(SECTIONS)
def test_the_versions_of_all_keys_are_interleaved_over_the_whole_history(data: VersionsData) -> None:
    # With the most versions, between one version of a key and the next but one every other key is stated.
    most = max(data.versions)
    (world,) = [w for w, v in zip(draw_versions(data), data.versions, strict=True) if v == most]
    stated, keys = read(world.statements), list(questions_of(world).values())
    for key in keys:
        places = [position for position, _ in stated[key]]
        for first, last in zip(places, places[2:], strict=False):
            assert all(any(first < p < last for p, _ in stated[other]) for other in keys if other != key)
        # Equal parts of the history hold one each: the j-th lies in the j-th, whose ends are rounded.
        part = data.statements / most
        for number, place in enumerate(places):
            assert part * number - most <= place <= part * (number + 1) + most


@example(VersionsData())
@given(SECTIONS)
def test_histories_differ_only_where_a_version_is_left_out(data: VersionsData) -> None:
    worlds = sorted(zip(data.versions, draw_versions(data), strict=True), key=lambda pair: pair[0])
    for (v, fewer), (w, more) in pairwise(worlds):
        few, many = read(fewer.statements), read(more.statements)
        keys = set(questions_of(fewer).values())
        assert [*questions_of(fewer).values()] == [*questions_of(more).values()]
        dropped = set()
        for key in keys:
            assert set(few[key]) < set(many[key])
            assert few[key][-1] == many[key][-1]
            dropped |= {position for position, _ in set(many[key]) - set(few[key])}
        assert len(dropped) == data.questions * (w - v)
        pairs = list(zip(fewer.statements, more.statements, strict=True))
        assert {a.position for a, b in pairs if a != b} == dropped
        assert [a.time for a, _ in pairs] == [b.time for _, b in pairs]
        # What stands there instead is news in neither history.
        for position in dropped:
            ((instead, ((_, value),)),) = read([fewer.statements[position]]).items()
            assert instead not in keys
            assert {told for _, told in few[instead]} == {told for _, told in many[instead]} == {value}
        assert {key: told[-1][1] for key, told in few.items()} == {key: told[-1][1] for key, told in many.items()}


@example(VersionsData())
@given(SECTIONS)
def test_the_grammar_reads_every_sentence_as_the_fact_that_it_states(data: VersionsData) -> None:
    forms = compile_forms(FORMS)
    for world in draw_versions(data):
        for event, statement in zip(world.events, world.statements, strict=True):
            parsed = parse_statement(statement.text, forms)
            assert parsed.status == "facts"
            assert parsed.triples == (Triple(event.subject, event.relation, event.object),)
            assert event.position == statement.position


@example(VersionsData())
@given(SECTIONS)
def test_dates_go_up_with_the_positions_and_change_nothing_else(data: VersionsData) -> None:
    dated = draw_versions(msgspec.structs.replace(data, dated=True))
    plain = draw_versions(msgspec.structs.replace(data, dated=False))
    for with_dates, without in zip(dated, plain, strict=True):
        times = [datetime.fromisoformat(str(s.time)) for s in with_dates.statements]
        assert all(a < b for a, b in pairwise(times))
        assert tuple(msgspec.structs.replace(s, time=None) for s in with_dates.statements) == without.statements
        assert with_dates.plans == without.plans


def test_dates_are_irregular() -> None:
    (world,) = draw_versions(VersionsData(versions=(16,), dated=True))
    times = [datetime.fromisoformat(str(statement.time)) for statement in world.statements]
    gaps = [(b - a).total_seconds() / 60 for a, b in pairwise(times)]
    assert len(set(gaps)) == 27  # 1 to 9 minutes, hours or days
    assert {1, 9, 60, 9 * 60, 24 * 60, 9 * 24 * 60} <= set(gaps)


@settings(max_examples=10)
@example(VersionsData())
@given(SECTIONS)
def test_the_plain_form_makes_the_same_history_of_the_dated_statements_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, data: VersionsData
) -> None:
    world = draw_versions(msgspec.structs.replace(data, dated=True))[0]
    statements = [{"text": s.text, "time": s.time} for s in world.statements]
    random.Random(3).shuffle(statements)
    row = {"history": world.name, "statements": statements, "questions": [{"id": "0", "text": "Who?"}]}
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text(json.dumps(row))
    assert load(PlainData(), RawSource(path=path), None).histories[0].statements == world.statements


@example(VersionsData())
@given(SECTIONS)
def test_the_same_arguments_give_the_same_stream_and_another_seed_another(data: VersionsData) -> None:
    assert load(data, None, None) == load(data, None, None)
    other = msgspec.structs.replace(data, seed=data.seed + 1)
    assert load(data, None, None).histories != load(other, None, None).histories


@pytest.mark.parametrize(
    ("dated", "digest"),
    [
        (False, "01047a8ffa326146852f63c4a70a4065d047f85ce4784f2afde4b6a12b0bcf53"),
        (True, "3c1889068bdc5aa90bc3291758d53f99b956e50b07518242e14cfb6f583907cd"),
    ],
)
def test_the_stream_is_what_it_was_when_it_was_first_published(dated: bool, digest: str) -> None:
    # Digests of histories and questions, written down when this kind of data was made.
    loaded = load(VersionsData(dated=dated), None, None)
    assert digest_of((loaded.histories, loaded.questions)) == digest


def test_a_stream_with_thousands_of_names_is_what_it_was_when_each_was_compared_with_each() -> None:
    # Written down then; of 2,961 names that are drawn, one is refused.
    loaded = load(VersionsData(versions=(2,), questions=2_000, statements=12_000), None, None)
    assert digest_of((loaded.histories, loaded.questions)) == "786616ee896f7bc4b976fe2342ed016104b1ea4c651e410f906bccce399af103"


@pytest.mark.parametrize("kind", ["person", "company", "city", "region"])
def test_no_name_is_shorter_than_the_parts_that_are_kept(kind: str) -> None:
    draw = Draw("names")
    assert min(len(draw_name(draw, kind)) for _ in range(20_000)) >= SHORTEST


@pytest.mark.parametrize("experiment", SHIPPED, ids=lambda experiment: experiment.name)
def test_the_shipped_experiments_retrieve_every_version_and_ten_records_could_not(experiment: Experiment) -> None:
    # Ranked by rank_bm25 over the statements, newest first among equals, as every retriever here.
    assert isinstance(experiment.data, VersionsData)
    assert experiment.pipelines is not UNSET
    data = experiment.data
    for world, v in zip(draw_versions(data), data.versions, strict=True):
        newest_first = world.statements[::-1]
        index = BM25Okapi([re.findall("[a-z0-9]+", statement.text.lower()) for statement in newest_first])
        stated = read(world.statements)
        for plan in world.plans:
            text = question_text(plan)
            scores = index.get_scores(re.findall("[a-z0-9]+", text.lower()))
            order = sorted(range(len(newest_first)), key=lambda i: -round(scores[i], 9))
            shown = {newest_first[i].position for i in order[: experiment.pipelines.k]}
            assert {position for position, _ in stated[asked(text)]} <= shown
            assert v <= 10 or len(stated[asked(text)]) > 10


def test_the_two_shipped_experiments_differ_in_name_and_dates_alone() -> None:
    plain, dated = SHIPPED
    assert isinstance(plain.data, VersionsData)
    assert not plain.data.dated
    data = msgspec.structs.replace(plain.data, dated=True)
    assert dated == msgspec.structs.replace(plain, name="versions-dated", data=data)
    assert plain.data.versions == (2, 4, 8, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"versions": ()}, "each once"),
        ({"versions": (2, 2)}, "each once"),
        ({"versions": (0, 2)}, "each once"),
        ({"versions": (-1,)}, "each once"),
        ({"questions": 0}, "at least one question"),
        ({"statements": 499}, "25 questions with 16 versions need 500 statements, not 499"),
        ({"statements": -1}, "need 500 statements"),
        ({"versions": (10**12,)}, "need 25000000000100 statements"),
        ({"dated": True, "statements": 1_000_001}, "1000001 dated statements are too many"),
    ],
)
def test_a_section_that_cannot_be_drawn_is_a_configuration_error(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"versions data: .*{message}"):
        load(msgspec.structs.replace(VersionsData(), **changes), None, None)


def test_a_drawn_stream_takes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        "name: small\ndata: {kind: versions, versions: [3], questions: 2, statements: 20}\n"
        "frontend: {kind: grammar, grammar: synthetic}\nviews: [cmc, latest_state]\n"
    )
    run = tmp_path / "run"
    errors = coldread("run", str(path), "--data", str(path), "--out", str(run), code=2).stderr
    assert "versions data takes no --data" in errors


def test_a_run_freezes_the_current_record_of_a_key_with_many_versions(tmp_path: Path) -> None:
    path, run = tmp_path / "small.yaml", tmp_path / "run"
    path.write_text(
        "name: small\ndata: {kind: versions, versions: [2, 5], questions: 7, statements: 80, dated: true}\n"
        "frontend: {kind: grammar, grammar: synthetic}\nviews: [cmc, latest_state]\n"
    )
    coldread("run", str(path), "--out", str(run))
    labels = [json.loads(line) for line in (run / "labels" / "labels.jsonl").read_text().splitlines()]
    data = VersionsData(versions=(2, 5), questions=7, statements=80, dated=True)
    worlds = {world.name: read(world.statements) for world in draw_versions(data)}
    questions = [json.loads(line) for line in (run / "data" / "questions.jsonl").read_text().splitlines()]
    evidence = {e["digest"]: e["text"] for e in map(json.loads, (run / "packets" / "evidence.jsonl").read_text().splitlines())}
    packets = [json.loads(line) for line in (run / "packets" / "cmc.jsonl").read_text().splitlines()]
    assert len(labels) == len(questions) == len(packets) == 14
    for label, question, packet in zip(labels, questions, packets, strict=True):
        stated = worlds[question["history"]][asked(question["text"])]
        assert label == {**label, "question": question["id"], "golds": [stated[-1][1]]}
        shown = [int(n) for n in re.findall(r"(?m)^\[(\d+)\] \(2001-", evidence[packet["evidence"]])]
        assert stated[-1][0] in shown
        assert not {position for position, _ in stated[:-1]} & set(shown)
