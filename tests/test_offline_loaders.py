import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import RealWorld

from offline.canonical import digest_of
from offline.config.frontend import GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.errors import ConfigurationError, DataError, StorageError
from offline.loaders import Loaded, load
from offline.loaders.factconsolidation import FactConsolidationData, parse_context
from offline.loaders.plain import PlainData
from offline.loaders.raw import RawSource
from offline.loaders.synthetic import SyntheticData, World, draw_world, question_text
from offline.records import History, Question, Statement

CONTEXT = "Here is a list of facts:\n0. Ada leads to Bo.\n1. Bo leads to Cy.\n"


def _row(source: str | None = "small_sh_6k", context: str = CONTEXT, questions: tuple[str, ...] = ("Who?", "What?")) -> Any:
    return {
        "context": context,
        "questions": list(questions),
        "answers": [["gold"] for _ in questions],
        "metadata": {"source": source, "qa_pair_ids": [f"{source}_no{i}" for i in range(len(questions))]},
    }


def _write_json(path: Path, rows: list[Any]) -> Path:
    file = path / "rows.json"
    file.write_text(json.dumps(rows))
    return file


def _write_jsonl(path: Path, rows: list[Any]) -> Path:
    file = path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def _write_parquet(path: Path, rows: list[Any]) -> Path:
    import pyarrow
    import pyarrow.parquet

    file = path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


def _write_gzip(path: Path, rows: list[Any]) -> Path:
    file = path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(_write_jsonl(path, rows).read_bytes()))
    return file


WRITERS = pytest.mark.parametrize(
    "write", [_write_json, _write_jsonl, _write_gzip, _write_parquet], ids=["json", "jsonl", "gzip", "parquet"]
)
Write = Callable[[Path, list[Any]], Path]


def _load(path: Path, rows: list[Any], limit: int | None = None, names: tuple[str, ...] = ()) -> Loaded:
    return load(FactConsolidationData(rows=names), RawSource(path=_write_json(path, rows)), limit)


def _load_plain(path: Path, *rows: Any, limit: int | None = None) -> Loaded:
    return load(PlainData(), RawSource(path=_write_jsonl(path, list(rows))), limit)


# Raw rows


@WRITERS
def test_every_file_form_gives_the_same_histories_and_questions(tmp_path: Path, write: Write) -> None:
    rows = [_row(), _row("small_mh_6k", questions=("Where?",)), _row("other_sh_1k", CONTEXT + "7. Émile — “x”.\n")]
    loaded = load(FactConsolidationData(), RawSource(path=write(tmp_path, rows)), None)
    assert loaded.histories == (
        History("small_6k", "6k", (Statement(0, "Ada leads to Bo."), Statement(1, "Bo leads to Cy."))),
        History(
            "other_1k",
            "1k",
            (Statement(0, "Ada leads to Bo."), Statement(1, "Bo leads to Cy."), Statement(7, "Émile — “x”.")),
        ),
    )
    assert loaded.questions == (
        Question("small_sh_6k_no0", "small_sh_6k", "small_6k", "Who?", "sh"),
        Question("small_sh_6k_no1", "small_sh_6k", "small_6k", "What?", "sh"),
        Question("small_mh_6k_no0", "small_mh_6k", "small_6k", "Where?", "mh"),
        Question("other_sh_1k_no0", "other_sh_1k", "other_1k", "Who?", "sh"),
        Question("other_sh_1k_no1", "other_sh_1k", "other_1k", "What?", "sh"),
    )


@WRITERS
def test_a_row_shows_the_columns_that_were_asked_for_and_no_other(tmp_path: Path, write: Write) -> None:
    (row,) = RawSource(path=write(tmp_path, [_row()])).rows({"questions": list[str], "absent": str})
    assert row.values == {"questions": ["Who?", "What?"], "absent": None}
    with pytest.raises(DataError, match="'absent' is missing"):
        row.need("absent")


def test_the_answer_column_is_never_parsed(tmp_path: Path) -> None:
    # Neither a list of lists nor anything else that the answers' own reader would take.
    rows = [{**_row(), "answers": {"of": ["another", {"shape": 1.5}]}}]
    assert len(_load(tmp_path, rows).questions) == 2


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_text_comes_through_json_lines_unchanged(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = _write_jsonl(tmp_path_factory.mktemp("rows"), [{"texts": texts}, {"texts": texts[::-1]}])
    read = [row.values["texts"] for row in RawSource(path=path).rows({"texts": list[str]})]
    assert read == [texts, texts[::-1]]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("rows.json", b""),
        ("rows.json", b"{}"),
        ("rows.json", b"[{]"),
        ("rows.json", b"[1]"),
        ("rows.json", b"\xff\xfe[\x00]\x00"),
        ("rows.json", b"[" * 100_000),
        ("rows.json", b'[{"context": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]"),
        ("rows.jsonl", b'{"context": 1}\n'),
        ("rows.jsonl", b'{"context": "a", "questions": "b"}\n'),
        ("rows.jsonl", b'{"context": "\\ud800"}\n'),
        ("rows.jsonl", b"nonsense\n"),
        ("rows.parquet", b"PAR1 is how it begins, but nothing follows"),
        ("rows.parquet", b""),
        ("rows.jsonl.gz", gzip.compress(b"{}")[:-9]),
        ("rows.csv", b"context,questions\n"),
        ("rows", b"[]"),
    ],
)
def test_a_file_that_holds_no_rows_of_the_documented_shape_is_one_data_error_that_names_it(
    tmp_path: Path, name: str, data: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError, match=re.escape(str(path))):
        load(FactConsolidationData(), RawSource(path=path), None)


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.parquet"])
def test_a_file_that_is_not_there_is_a_storage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match=name):
        load(FactConsolidationData(), RawSource(path=tmp_path / name), None)


def test_a_lone_surrogate_in_a_source_is_a_data_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        _load(tmp_path, [_row(context=CONTEXT + "2. a \ud800 b.\n")])


def test_blank_lines_between_rows_are_skipped_and_lines_are_counted_with_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n" + json.dumps(_row()) + "\n\nbroken\n")
    with pytest.raises(DataError, match="line 4"):
        load(FactConsolidationData(), RawSource(path=path), None)


def test_a_file_is_identified_by_its_size_and_sha256_whatever_its_name(tmp_path: Path) -> None:
    # FIPS 180-2, appendix B.1
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for name in ("one.json", "other.json"):
        (tmp_path / name).write_bytes(b"abc")
        assert RawSource(path=tmp_path / name).identity() == {"sha256": sha, "size": "3"}


# The hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
READ_HUB = """
import sys
from offline.canonical import digest_of
from offline.loaders.factconsolidation import FactConsolidationData
from offline.loaders import load
from offline.loaders.raw import RawSource

repository, revision = sys.argv[1:]
data = FactConsolidationData(repository=repository, revision=revision)
loaded = load(data, RawSource(repository=repository, revision=revision, split="Conflict_Resolution"), None)
print(digest_of(loaded.histories), digest_of(loaded.questions))
"""


def _read_hub(tmp_path: Path, repository: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", READ_HUB, str(repository), COMMIT]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def test_rows_read_through_the_hubs_library_are_those_of_a_local_file(tmp_path: Path) -> None:
    rows = [_row(), _row("small_mh_6k", questions=("Where?",))]
    # A folder of the hub's own layout: the split's name in the file's name.
    data = tmp_path / "repository" / "data"
    data.mkdir(parents=True)
    _write_parquet(tmp_path, rows).rename(data / "Conflict_Resolution-00000-of-00001.parquet")
    done = _read_hub(tmp_path, data.parent)
    local = _load(tmp_path, rows)
    assert done.stdout.split() == [digest_of(local.histories), digest_of(local.questions)], done.stderr


def test_a_hub_data_set_that_cannot_be_had_is_a_data_error_that_offers_a_local_copy(tmp_path: Path) -> None:
    done = _read_hub(tmp_path, tmp_path / "nowhere")
    assert "DataError" in done.stderr
    assert "--data PATH" in done.stderr


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:39], COMMIT.upper(), "", COMMIT + "0"])
def test_a_hub_revision_that_can_move_is_refused(revision: str) -> None:
    source = RawSource(repository="some/where", revision=revision, split="x")
    with pytest.raises(ConfigurationError, match="40-digit commit"):
        load(FactConsolidationData(), source, None)


def test_a_hub_data_set_is_identified_by_repository_revision_and_split() -> None:
    source = RawSource(repository="some/where", revision=COMMIT, split="x")
    assert source.identity() == {"repository": "some/where", "revision": COMMIT, "split": "x"}


# Contexts


def test_a_statement_is_everything_after_its_number_a_dot_and_one_space() -> None:
    context = "Facts:\n3. Tim Cook is employed by Apple Inc..\n5. Mr. Fox met Dr. No. 7. It rained.\n9.  two spaces\n"
    assert parse_context(context, "row 0") == (
        Statement(3, "Tim Cook is employed by Apple Inc.."),
        Statement(5, "Mr. Fox met Dr. No. 7. It rained."),
        Statement(9, " two spaces"),
    )


def test_only_a_newline_ends_a_statement() -> None:
    (statement,) = parse_context("Facts:\n0. a\u2028b\u2029c\vd\fe\x85f\rg.", "row 0")
    assert statement.text == "a\u2028b\u2029c\vd\fe\x85f\rg."


def test_windows_line_ends_are_no_part_of_a_statement() -> None:
    assert parse_context("Facts:\r\n0. a.\r\n1. b.\r\n", "row 0") == (Statement(0, "a."), Statement(1, "b."))


def test_decomposed_and_right_to_left_text_is_kept_as_written() -> None:
    text = "Cafe\u0301 \u202bשָׁלוֹם\u202c leads to محمد."
    assert parse_context(f"Facts:\n0. {text}\n", "row 0") == (Statement(0, text),)


def test_a_statement_of_ten_megabytes_is_kept_whole() -> None:
    (statement,) = parse_context(f"Facts:\n0. {'a. 1. ' * 1_500_000}\n", "row 0")
    assert len(statement.text) == 6 * 1_500_000


@pytest.mark.parametrize(
    ("context", "line", "message"),
    [
        ("0. Ada leads to Bo.\n1. Bo leads to Cy.\n", 1, "heading line is missing"),
        ("", 1, "heading line is missing"),
        ("\n", None, "no statements"),
        ("Facts:\n", None, "no statements"),
        ("Facts:\n0. a.\n0. b.\n", 3, "position 0 repeats 0"),
        ("Facts:\n0. a.\n5. b.\n4. c.\n", 4, "position 4 goes down from 5"),
        ("Facts:\n0. a.\nnonsense\n", 3, "is not `N. text`"),
        ("Facts:\n0. a.\n\n1. b.\n", 3, "is not `N. text`"),
        ("Facts:\n0. a.\n\n", 3, "is not `N. text`"),
        ("Facts:\n0. \n", 2, "is not `N. text`"),
        ("Facts:\n0.a\n", 2, "is not `N. text`"),
        ("Facts:\n-1. a\n", 2, "is not `N. text`"),
        ("Facts:\n٣. a\n", 2, "is not `N. text`"),
        ("Facts:\n" + "9" * 5000 + ". a\n", 2, "is not `N. text`"),
    ],
)
def test_a_context_of_another_shape_is_one_data_error_with_row_and_line(
    tmp_path: Path, context: str, line: int | None, message: str
) -> None:
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        _load(tmp_path, [_row(), _row("other_sh_6k", context)])
    assert "row 1 (other_sh_6k)" in str(caught.value)
    assert line is None or f"line {line}:" in str(caught.value)


def test_another_number_of_ids_than_questions_is_a_data_error_with_both_counts(tmp_path: Path) -> None:
    row = _row()
    row["metadata"]["qa_pair_ids"].append("one_more")
    with pytest.raises(DataError, match=r"row 0 .*2 questions but 3 qa_pair_ids"):
        _load(tmp_path, [row])


# Names


def test_rows_of_one_context_share_its_history(tmp_path: Path) -> None:
    loaded = _load(tmp_path, [_row("a_sh_6k"), _row("a_mh_6k"), _row("a_mh_6k", CONTEXT + "2. Cy leads to Di.\n")])
    assert [(h.id, len(h.statements)) for h in loaded.histories] == [("a_6k", 2), ("a_mh_6k@2", 3)]
    assert [q.history for q in loaded.questions] == ["a_6k"] * 4 + ["a_mh_6k@2"] * 2


def test_two_rows_that_both_have_a_question_0_keep_both(tmp_path: Path) -> None:
    rows = [_row("a"), _row("b", CONTEXT + "2. x.\n")]
    for row in rows:
        row["metadata"]["qa_pair_ids"] = ["0", "1"]
    assert [q.id for q in _load(tmp_path, rows).questions] == ["a/0", "a/1", "b/0", "b/1"]


def test_rows_without_metadata_are_named_by_their_number(tmp_path: Path) -> None:
    rows = [{**_row(), "metadata": None}, {"context": CONTEXT, "questions": ["Who?"]}]
    loaded = _load(tmp_path, rows)
    assert [q.id for q in loaded.questions] == ["row0/no0", "row0/no1", "row1/no0"]
    assert {q.hop_class for q in loaded.questions} == {"all"}


@pytest.mark.parametrize("sources", [("a_sh_6k", "a_6k"), ("a_sh_6k", "a_6k", "a_mh_6k"), ("a_6k", "a_sh_6k", "a_6k")])
def test_every_question_asks_about_its_own_rows_context(tmp_path: Path, sources: tuple[str, ...]) -> None:
    contexts = [f"Facts:\n0. Fact {i}.\n" for i in range(len(sources))]
    loaded = _load(tmp_path, [_row(s, c, ("Who?",)) for s, c in zip(sources, contexts, strict=True)])
    texts = {history.id: history.statements[0].text for history in loaded.histories}
    assert [texts[q.history] for q in loaded.questions] == [f"Fact {i}." for i in range(len(sources))]


def test_two_rows_whose_question_ids_would_be_equal_are_refused(tmp_path: Path) -> None:
    rows = [_row("a"), _row("a_b", CONTEXT + "2. x.\n")]
    rows[0]["metadata"]["qa_pair_ids"] = ["a_b_0", "a_1"]
    rows[1]["metadata"]["qa_pair_ids"] = ["a_b_0", "a_b_1"]
    with pytest.raises(DataError, match="question id 'a_b_0' is used 2 times"):
        _load(tmp_path, rows)


# Rows and limits


def test_the_limit_counts_the_questions_of_each_row(tmp_path: Path) -> None:
    loaded = _load(tmp_path, [_row("a_sh_6k"), _row("a_mh_6k")], limit=1)
    assert [q.id for q in loaded.questions] == ["a_sh_6k_no0", "a_mh_6k_no0"]


def test_named_rows_are_kept_with_their_histories_and_no_other(tmp_path: Path) -> None:
    rows = [_row("a_sh_6k"), _row("b_sh_1k", CONTEXT + "2. x.\n")]
    loaded = _load(tmp_path, rows, names=("b_sh_1k",))
    assert [h.id for h in loaded.histories] == ["b_1k"]
    assert {q.row for q in loaded.questions} == {"b_sh_1k"}


def test_a_row_that_is_not_there_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row 'c_sh_1k' in the data; it has a_sh_6k"):
        _load(tmp_path, [_row("a_sh_6k")], names=("c_sh_1k",))


def test_data_without_a_question_is_refused(tmp_path: Path) -> None:
    for rows in ([], [_row(questions=())]):
        with pytest.raises(DataError, match="no questions"):
            _load(tmp_path, rows)


def test_an_empty_question_is_refused_with_its_id(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'small_sh_6k_no1' is empty"):
        _load(tmp_path, [_row(questions=("Who?", " \n"))])


# The plain form


def _plain(name: str = "alice", statements: Any = ("She left.",), questions: Any = ({"id": "0", "text": "Who?"},)) -> Any:
    return {"history": name, "statements": list(statements), "questions": list(questions)}


def test_plain_statements_without_positions_are_counted_from_nought(tmp_path: Path) -> None:
    loaded = _load_plain(tmp_path, _plain(statements=["a", "b"]))
    assert loaded.histories == (History("alice", "2", (Statement(0, "a"), Statement(1, "b"))),)


def test_plain_positions_are_kept_as_given(tmp_path: Path) -> None:
    loaded = _load_plain(tmp_path, _plain(statements=[{"text": "a", "position": -3}, {"text": "b", "position": 8}]))
    assert loaded.histories[0].statements == (Statement(-3, "a"), Statement(8, "b"))


def test_times_give_the_order_and_the_position_is_the_rank(tmp_path: Path) -> None:
    # 12:00+02:00 is 10:00 UTC and so the oldest; the two at 11:00 UTC keep the order of the file.
    times = [("c", "2026-01-31T11:00+00:00"), ("a", "2026-01-31T12:00+02:00"), ("d", "2026-01-31T12:00+01:00")]
    loaded = _load_plain(tmp_path, _plain(statements=[{"text": text, "time": time} for text, time in times]))
    assert loaded.histories[0].statements == (
        Statement(0, "a", "2026-01-31T12:00+02:00"),
        Statement(1, "c", "2026-01-31T11:00+00:00"),
        Statement(2, "d", "2026-01-31T12:00+01:00"),
    )


def test_two_plain_histories_that_both_have_a_question_0_keep_both(tmp_path: Path) -> None:
    loaded = _load_plain(tmp_path, _plain("alice"), _plain("bob"))
    assert [(q.id, q.history) for q in loaded.questions] == [("alice/0", "alice"), ("bob/0", "bob")]


def test_the_hops_of_a_plain_question_give_its_class(tmp_path: Path) -> None:
    questions = [{"id": "0", "text": "a?"}, {"id": "1", "text": "b?", "hops": 1}, {"id": "2", "text": "c?", "hops": 3}]
    loaded = _load_plain(tmp_path, _plain(questions=questions))
    assert [(q.hop_class, q.hops) for q in loaded.questions] == [("all", None), ("sh", 1), ("mh", 3)]


def test_plain_answers_are_not_read(tmp_path: Path) -> None:
    question = {"id": "0", "text": "Who?", "answers": 17}
    assert _load_plain(tmp_path, _plain(questions=[question])) == _load_plain(tmp_path, _plain())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([_plain(statements=[])], ".jsonl: history 'alice' has no statements"),
        ([_plain(statements=["a", " "])], "line 1, statement 1: the text is empty"),
        ([_plain(statements=[{"text": "a", "position": 1}, {"text": "b", "position": 1}])], "position 1 follows 1"),
        ([_plain(statements=[{"text": "a", "position": 1}, {"text": "b", "position": 0}])], "position 0 follows 1"),
        ([_plain(statements=["a", {"text": "b", "position": 4}])], "all have a position"),
        ([_plain(statements=[{"text": "a", "position": 4, "time": "2026-01-31"}])], "all have a position"),
        ([_plain(statements=[{"text": "a", "time": "yesterday"}])], "'yesterday' is not ISO 8601"),
        (
            [_plain(statements=[{"text": "a", "time": "2026-01-31T00:00"}, {"text": "b", "time": "2026-01-31T00:00Z"}])],
            "some times have a zone",
        ),
        ([_plain(statements=[{"txet": "a"}])], "line 1"),
        ([_plain(statements=[{"text": "a", "position": 1.5}])], "line 1"),
        ([_plain(statements=[3])], "line 1"),
        ([_plain(questions=[{"text": "Who?"}])], "line 1"),
        ([_plain(questions=[{"id": "0", "text": ""}])], "'alice/0' is empty"),
        ([_plain(questions=[{"id": "0", "text": "a?"}, {"id": "0", "text": "b?"}])], "'alice/0' is used 2 times"),
        ([_plain("a"), _plain("a")], "history id 'a' is used 2 times"),
        ([{"statements": ["a"], "questions": []}], "'history' is missing"),
        ([{"history": "a", "questions": []}], "'statements' is missing"),
        ([{"history": "a", "statements": ["a"]}], "'questions' is missing"),
    ],
)
def test_a_plain_row_of_another_shape_is_one_data_error_with_its_place(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        _load_plain(tmp_path, *rows)


@WRITERS
def test_the_plain_form_too_may_be_json_or_parquet(tmp_path: Path, write: Write) -> None:
    rows = [_plain(statements=[{"text": "a", "position": 4}]), _plain("bob", statements=[{"text": "b", "position": 2}])]
    loaded = load(PlainData(), RawSource(path=write(tmp_path, rows)), None)
    assert [h.statements for h in loaded.histories] == [(Statement(4, "a"),), (Statement(2, "b"),)]


# The synthetic stream


def _worlds(data: SyntheticData) -> list[World]:
    return [draw_world(data, index) for index in range(len(data.statements))]


SYNTHETIC = SyntheticData(seed=11, statements=(60, 300, 1000), questions=12)


def test_the_same_seed_draws_the_same_stream_and_another_seed_another() -> None:
    assert load(SYNTHETIC, None, None) == load(SYNTHETIC, None, None)
    other = SyntheticData(seed=12, statements=SYNTHETIC.statements, questions=12)
    assert load(SYNTHETIC, None, None).histories != load(other, None, None).histories


def test_a_history_of_a_stream_does_not_depend_on_the_other_sizes() -> None:
    alone = load(SyntheticData(seed=11, statements=(60,), questions=12), None, None)
    assert alone.histories[0] == load(SYNTHETIC, None, None).histories[0]


def test_a_stream_has_as_many_statements_as_asked_for_and_every_question_is_another_one() -> None:
    loaded = load(SYNTHETIC, None, None)
    assert [len(h.statements) for h in loaded.histories] == [60, 300, 1000]
    assert [[s.position for s in h.statements] for h in loaded.histories] == [list(range(n)) for n in (60, 300, 1000)]
    assert len({(q.history, q.text) for q in loaded.questions}) == 36


def _read_back(world: World) -> dict[int, tuple[str, str, str]]:
    """The facts of the statements by the shipped forms, read with regular expressions."""
    forms = load_yaml(find_config("grammars", "synthetic"), GrammarForms).relations
    patterns = {
        relation: re.escape(form).replace(r"\{subject\}", "(?P<s>.+)").replace(r"\{object\}", "(?P<o>.+)")
        for relation, (form,) in forms.items()
    }
    return {
        statement.position: (match["s"], relation, match["o"])
        for statement in world.statements
        for relation, pattern in patterns.items()
        if (match := re.fullmatch(pattern, statement.text))
    }


def test_the_statements_say_what_the_events_are() -> None:
    for world in _worlds(SYNTHETIC):
        assert _read_back(world) == {e.position: (e.subject, e.relation, e.object) for e in world.events}


def test_following_a_plan_through_the_final_statements_always_ends_at_a_value() -> None:
    for world in _worlds(SYNTHETIC):
        final = {(subject, relation): value for _, (subject, relation, value) in sorted(_read_back(world).items())}
        for plan in world.plans:
            at = plan.start
            for relation in plan.relations:
                at = final[at, relation]
            assert at != plan.start


def test_questions_have_one_to_four_hops_in_turn_and_name_their_start() -> None:
    for world in _worlds(SYNTHETIC):
        assert [len(plan.relations) for plan in world.plans] == [1, 2, 3, 4] * 3
        assert all(plan.start in question_text(plan) for plan in world.plans)


def test_most_questions_go_over_an_overwritten_key() -> None:
    for world in _worlds(SYNTHETIC):
        stated: dict[tuple[str, str], set[str]] = {}
        for subject, relation, value in _read_back(world).values():
            stated.setdefault((subject, relation), set()).add(value)
        final = {(subject, relation): value for _, (subject, relation, value) in sorted(_read_back(world).items())}
        over = 0
        for plan in world.plans:
            at, changed = plan.start, False
            for relation in plan.relations:
                changed |= len(stated[at, relation]) > 1
                at = final[at, relation]
            over += changed
        assert over > len(world.plans) / 2


def test_a_stream_that_is_too_small_for_its_questions_is_a_configuration_error() -> None:
    for data in (
        SyntheticData(statements=(49,)),
        SyntheticData(statements=(0,)),
        SyntheticData(statements=(50,), questions=500),
    ):
        with pytest.raises(ConfigurationError, match="synthetic data"):
            load(data, None, None)


# The real rows


@pytest.mark.real_data
def test_the_real_rows_give_the_counts_of_the_specification(real_world: RealWorld) -> None:
    # Spec, section 2: 455 / 2,310 / 4,580 / 18,332 statements, 18,336 distinct texts, 800 questions, 760 distinct.
    sizes = {history.length: len(history.statements) for history in real_world.histories}
    assert sizes == {"6k": 455, "32k": 2_310, "64k": 4_580, "262k": 18_332}
    assert len({s.text for h in real_world.histories for s in h.statements}) == 18_336
    assert len(real_world.questions) == len({q.id for q in real_world.questions}) == 800
    assert len({q.text for q in real_world.questions}) == 760
    assert [q.hop_class for q in real_world.questions].count("sh") == 400


@pytest.mark.real_data
def test_real_statements_are_the_lines_of_their_context_to_the_letter(real_world: RealWorld, real_data: Path) -> None:
    rows = json.loads(real_data.read_text())
    by_row = {question.row: question.history for question in real_world.questions}
    histories = {history.id: history for history in real_world.histories}
    for row in rows:
        lines = row["context"].split("\n")[1:-1]
        history = histories[by_row[row["metadata"]["source"]]]
        assert [f"{s.position}. {s.text}" for s in history.statements] == lines
