"""Policies against an oracle that shares no code with them, and their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.pipelines import find_pipeline
from extract.pipelines.policies import POLICIES, Choice, find_policy
from extract.pipelines.records import Candidate
from offline.errors import ConfigurationError

candidates = st.lists(
    st.builds(Candidate, position=st.integers(-3, 8), text=st.just("t"), entity=st.sampled_from(["Rome", "Oslo", "Bergen"])),
    max_size=8,
)


def _oracle(listed: list[Candidate], rank: int) -> Choice | None:
    """Walk through the list once for each place: remove the newest position until the wanted one is left on top."""
    left = list(listed)
    for _ in range(rank - 1):
        top = max((c.position for c in left), default=0)
        left = [c for c in left if c.position != top]
    best = None
    for candidate in left:
        if best is None or candidate.position > best.position:
            best = candidate
    return None if best is None else Choice(best.entity, best.position)


@given(candidates, st.integers(2, 5))
def test_the_newest_and_the_kth_newest_are_the_first_listed_at_that_distinct_position(listed: list[Candidate], k: int) -> None:
    assert find_policy("newest")(listed) == _oracle(listed, 1)
    assert find_policy(f"newest_{k}")(listed) == _oracle(listed, k)


@given(candidates)
def test_the_oldest_is_the_newest_of_the_list_turned_around(listed: list[Candidate]) -> None:
    around = [Candidate(position=-c.position, text=c.text, entity=c.entity) for c in listed]
    found = _oracle(around, 1)
    assert find_policy("oldest")(listed) == (None if found is None else Choice(found.answer, -int(str(found.position))))


@given(candidates, st.integers(0, 9))
def test_as_of_a_position_is_the_newest_of_what_was_there_then(listed: list[Candidate], position: int) -> None:
    then = [c for c in listed if not c.position > position]
    assert find_policy(f"asof_{position}")(listed) == _oracle(then, 1)


@given(candidates)
def test_count_counts_positions_and_not_candidates(listed: list[Candidate]) -> None:
    seen: list[int] = []
    for candidate in listed:
        if candidate.position not in seen:
            seen.append(candidate.position)
    assert find_policy("count")(listed) == (Choice(str(len(seen)), None) if listed else None)


def test_ties_go_to_the_first_listed_whatever_the_policy() -> None:
    tied = [Candidate(7, "", "Rome"), Candidate(7, "", "Oslo"), Candidate(2, "", "Bergen"), Candidate(2, "", "Rome")]
    chosen = [find_policy(name)(tied) for name in ("newest", "newest_2", "oldest", "asof_6", "count")]
    assert chosen == [Choice("Rome", 7), Choice("Bergen", 2), Choice("Bergen", 2), Choice("Bergen", 2), Choice("2", None)]


@pytest.mark.parametrize("name", ["newest", "newest_2", "oldest", "count", "asof_4", "asof_2026-01-31"])
def test_no_candidate_is_no_answer(name: str) -> None:
    assert find_policy(name)([]) is None


def test_as_of_a_day_holds_the_whole_day_as_the_source_wrote_it() -> None:
    dated = [
        Candidate(0, "", "Rome", time="2026-01-30"),
        Candidate(1, "", "Oslo", time="2026-01-31T23:59:59"),
        Candidate(2, "", "Bergen", time="2026-02-01T00:10:00"),
    ]
    assert find_policy("asof_2026-01-30")(dated) == Choice("Rome", 0)
    assert find_policy("asof_2026-01-31")(dated) == Choice("Oslo", 1)
    assert find_policy("asof_2026-02-01")(dated) == Choice("Bergen", 2)
    assert find_policy("asof_2026-01-29")(dated) is None
    # 00:10 in Berlin is still the day before in London; the source's own calendar counts.
    berlin = [Candidate(3, "", "Ulm", time="2026-03-05T00:10:00+01:00")]
    assert find_policy("asof_2026-03-04")(berlin) is None
    assert find_policy("asof_2026-03-05")(berlin) == Choice("Ulm", 3)


def test_a_record_without_a_readable_time_is_of_no_day() -> None:
    undated = [Candidate(0, "", "Rome"), Candidate(1, "", "Oslo", time="last spring")]
    assert find_policy("asof_9999-12-31")(undated) is None


@pytest.mark.parametrize(
    "name", ["newest_0", "newest_1", "newest_02", "2nd", "asof_", "asof_-1", "asof_01", "asof_2026-1-31", "llm"]
)
def test_a_name_outside_the_grammar_is_no_policy(name: str) -> None:
    assert name not in POLICIES
    with pytest.raises(ConfigurationError, match=r"unknown policy .*; known: count, newest, oldest, newest_K, asof_POSITION"):
        find_policy(name)


def test_a_day_that_no_calendar_has_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="2026-02-30 is no day"):
        find_policy("asof_2026-02-30")


def test_an_unknown_pipeline_is_told_how_names_are_composed() -> None:
    with pytest.raises(ConfigurationError, match="unknown pipeline 'sh_conflictt'; known: direct with _sampled; "):
        find_pipeline("sh_conflictt")
