import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PROMPT, RealWorld, extraction, history, question, settings

from offline.config.experiment import ViewSettings
from offline.errors import ConfigurationError, DataError
from offline.freeze import Frozen, freeze, memories
from offline.records import Evidence, Packet, Question, Statement

STATEMENTS = ["Ada leads to Bo.", "Bo leads to Cy.", "Ada leads to Di.", "Perhaps Ada moved to Rome."]
VIEWS = ["cmc", "raw_history", "closed_book"]


def _freeze(*texts: str, views: list[str] | None = None, view_settings: ViewSettings | None = None) -> Frozen:
    world = history(*STATEMENTS)
    questions = [question(text, f"q{number}") for number, text in enumerate(texts)]
    return freeze([world], questions, extraction(world), view_settings or settings(), PROMPT, views or VIEWS)


def _canonical(value: Any) -> str:
    """Sha256 of a record's canonical line, by the standard library alone."""
    text = json.dumps(msgspec.to_builtins(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# Packets


def test_a_packet_binds_question_history_prompt_and_evidence_by_their_sha256() -> None:
    (packet,) = _freeze("Where does Ada lead to?").packets["cmc"]
    text = "Records:\n[2] Ada leads to Di.\n[3] Perhaps Ada moved to Rome."
    assert packet == Packet(
        question="q0",
        question_digest=_canonical(question("Where does Ada lead to?", "q0")),
        history_digest=_canonical(history(*STATEMENTS)),
        view="cmc",
        prompt=_canonical(PROMPT),
        evidence=hashlib.sha256(text.encode()).hexdigest(),
        records=2,
        characters=len(text),
        dropped=0,
        truncated=False,
        fallback=None,
    )


def test_an_evidence_text_is_stored_once_whatever_the_number_of_packets_that_show_it() -> None:
    frozen = _freeze("Where does Ada lead to?", "Does Ada lead?", "Who is nobody?")
    stored = [evidence.digest for evidence in frozen.evidence]
    assert len(stored) == len(set(stored))
    # cmc of the first two; the raw history, which the third falls back to; nothing.
    assert [evidence.positions for evidence in frozen.evidence] == [(2, 3), (0, 1, 2, 3), ()]
    assert {packet.evidence for packets in frozen.packets.values() for packet in packets} == set(stored)


def test_an_evidence_is_named_by_the_sha256_of_its_text() -> None:
    for evidence in _freeze("Where does Ada lead to?").evidence:
        assert evidence.digest == hashlib.sha256(evidence.text.encode()).hexdigest()


def test_packets_stand_in_question_order_under_each_view_in_the_order_asked_for() -> None:
    frozen = _freeze("Where does Bo lead to?", "Where does Ada lead to?", views=["raw_history", "cmc"])
    assert list(frozen.packets) == ["raw_history", "cmc"]
    assert [packet.question for packet in frozen.packets["cmc"]] == ["q0", "q1"]


def test_questions_about_two_histories_keep_their_order_and_see_their_own_history_alone() -> None:
    one, two = history("Ada leads to Bo.", name="one"), history("Ada leads to Cy.", name="two")
    questions = [question("Ada?", f"{of}/{number}", of) for number, of in enumerate(["two", "one", "two"])]
    frozen = freeze([one, two], questions, extraction(one, two), settings(), PROMPT, ["cmc"])
    texts = {evidence.digest: evidence.text for evidence in frozen.evidence}
    assert [(p.question, texts[p.evidence]) for p in frozen.packets["cmc"]] == [
        ("two/0", "Records:\n[0] Ada leads to Cy."),
        ("one/1", "Records:\n[0] Ada leads to Bo."),
        ("two/2", "Records:\n[0] Ada leads to Cy."),
    ]


class _Counted(tuple[Question, ...]):
    """Questions that count how often they are gone through."""

    times = 0

    def __iter__(self) -> Iterator[Question]:
        self.times += 1
        return super().__iter__()


def test_every_history_comes_with_its_own_questions_which_are_gone_through_once_for_all_of_them() -> None:
    histories = [history(f"Ada leads to Bo{number}.", name=f"h{number}") for number in range(30)]
    asked = _Counted(question("Ada?", f"q{number}", f"h{number % 29}") for number in range(58))
    found = {
        memory.history.id: [each.id for each in about]
        for memory, about in memories(histories, asked, extraction(*histories), settings(), PROMPT.heading)
    }
    # Of 58 questions about 29 histories in turn, two are about each; nobody asks about the last one.
    assert found == {**{f"h{number}": [f"q{number}", f"q{number + 29}"] for number in range(29)}, "h29": []}
    assert asked.times == 1


def test_a_packet_does_not_depend_on_which_other_questions_and_views_are_frozen() -> None:
    text = "Where does Ada lead to?"
    together = _freeze(text, "Who is nobody?", "Where does Bo lead to?", views=[*VIEWS, "random_disjoint"])
    for view in VIEWS:
        (alone,) = _freeze(text, views=[view]).packets[view]
        assert alone == together.packets[view][0]


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "Where does Bo lead to?"},
        {"id": "another"},
        {"hops": 1},
        {"row": "another"},
    ],
)
def test_a_changed_question_changes_its_packet(changed: dict[str, Any]) -> None:
    world = history(*STATEMENTS)
    asked = question("Where does Ada lead to?")
    packets = [
        freeze([world], [each], extraction(world), settings(), PROMPT, ["raw_history"]).packets["raw_history"][0]
        for each in (asked, msgspec.structs.replace(asked, **changed))
    ]
    assert packets[0].question_digest != packets[1].question_digest


def test_a_changed_prompt_or_statement_changes_every_packet() -> None:
    world = history(*STATEMENTS)
    asked = [question("Where does Ada lead to?")]
    prompts = [PROMPT, msgspec.structs.replace(PROMPT, system="Something else.")]
    by_prompt = [freeze([world], asked, extraction(world), settings(), p, ["closed_book"]).packets for p in prompts]
    assert by_prompt[0] != by_prompt[1]
    longer = history(*STATEMENTS, "Zoe leads to Yan.")
    by_history = [freeze([w], asked, extraction(w), settings(), PROMPT, ["closed_book"]).packets for w in (world, longer)]
    assert by_history[0] != by_history[1]


def test_an_unknown_view_is_refused_before_anything_is_frozen() -> None:
    with pytest.raises(ConfigurationError, match="unknown view 'cmcc'"):
        _freeze("Ada?", views=["cmc", "cmcc"])


def test_a_lone_surrogate_in_a_statement_or_question_is_a_data_error() -> None:
    broken = history("Ada leads to \udc80.")
    with pytest.raises(DataError, match="lone surrogate"):
        freeze([broken], [question("Ada?")], extraction(broken), settings(), PROMPT, ["raw_history"])
    with pytest.raises(DataError, match="lone surrogate"):
        _freeze("Who is \ud800?")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
STATEMENT = st.builds("{} leads to {}.".format, TEXT, TEXT) | TEXT


@given(st.lists(STATEMENT, min_size=1, max_size=6), TEXT, st.integers(1, 120) | st.just(-1))
def test_any_history_freezes_within_its_budget_and_every_count_is_that_of_the_text(
    statements: list[str], text: str, budget: int
) -> None:
    world = history(*statements)
    views = ["cmc", "stale_closure", "prior_refresh", "latest_state", "stale_state", "raw_history", "fact_bm25"]
    views += ["fact_bm25_matched", "random_disjoint", "closed_book", "cmc_h1"]
    frozen = freeze([world], [question(text)], extraction(world), settings(budget=budget), PROMPT, views)
    evidence = {each.digest: each for each in frozen.evidence}
    for view in views:
        (packet,) = frozen.packets[view]
        shown = evidence[packet.evidence]
        lines = shown.text.split("\n") if shown.text else []
        assert lines[:1] == (["Records:"] if shown.positions else [])
        assert [int(line[1:].split("]")[0]) for line in lines[1:]] == list(shown.positions)
        assert list(shown.positions) == sorted(set(shown.positions))
        assert (packet.records, packet.characters) == (len(shown.positions), len(shown.text))
        assert packet.truncated == (packet.dropped > 0)
        assert budget == -1 or packet.characters <= budget


# Two machines

RUN = """
import sys
from pathlib import Path
from extract.step import extract_step
from offline.canonical import encode
from offline.config.yaml import parse_yaml
from offline.config.experiment import Experiment, resolve
from offline.run.opened import OpenRun
from offline.run.writing import freeze_step, load_step

experiment = resolve(parse_yaml(Path("experiment.yaml").read_text(), Experiment, "experiment.yaml"), None, "experiment.yaml")
run = OpenRun(Path("run"))
run.create(experiment)
load_step(run, None)
extract_step(run)
freeze_step(run, len, "characters")
assert "torch" not in sys.modules, "freezing must not load torch"
"""
EXPERIMENT = """
name: both
data: {kind: synthetic, seed: 5, statements: [120, 300], questions: 12}
frontend: {kind: grammar, grammar: synthetic}
views: [cmc, stale_closure, prior_refresh, latest_state, stale_state, raw_history, fact_bm25, fact_bm25_matched,
        random_disjoint, closed_book, cmc_h2]
settings: {budget: 4000, k: 20}
"""


def _run_under(folder: Path, hash_seed: str) -> dict[str, bytes]:
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    repository = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(repository)}
    subprocess.run([sys.executable, "-c", RUN], cwd=folder, env=environment, check=True)
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_two_processes_in_two_folders_under_two_hash_seeds_write_the_same_bytes(tmp_path: Path) -> None:
    one = _run_under(tmp_path / "one", "0")
    two = _run_under(tmp_path / "another" / "two", "1")
    assert list(one) == list(two)
    assert "run/packets/random_disjoint.jsonl" in one
    assert "run/extraction/statements.jsonl" in one
    for name, content in one.items():
        assert content == two[name], name


# The real data


@pytest.mark.real_data
def test_freezing_the_real_6k_questions_twice_gives_the_same_records(real_world: RealWorld) -> None:
    small = next(h for h in real_world.histories if h.length == "6k")
    questions = [q for q in real_world.questions if q.history == small.id]
    views = [*VIEWS, "fact_bm25", "fact_bm25_matched", "random_disjoint"]
    one, two = (freeze([small], questions, real_world.extraction, settings(), PROMPT, views) for _ in range(2))
    assert one == two
    assert len(questions) == 200


def test_records_of_a_packet_and_its_evidence_hold_no_dictionary_that_could_change() -> None:
    frozen = _freeze("Where does Ada lead to?")
    for record in (*frozen.evidence, *frozen.packets["cmc"], Statement(0, "a"), Question("q", "r", "h", "t")):
        assert hash(record) == hash(msgspec.structs.replace(record))
    assert isinstance(frozen.evidence[0], Evidence)
