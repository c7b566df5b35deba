"""Policies: explicit code that takes an answer from a list of candidates.

A policy is a pure function `(candidates) -> Choice | None`, None for no answer; `coldread.policies` is the entry point group.
`newest_K` (the K-th newest position) and `asof_X` (the newest up to position X, or up to the day X, YYYY-MM-DD) are composed.
Of several candidates at the chosen position, the first one listed is taken.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Protocol

from extract.pipelines.records import Candidate
from offline.errors import ConfigurationError
from offline.registry import Registry


@dataclass(frozen=True)
class Choice:
    """An answer."""

    answer: str
    position: int | None  # of its candidate; None if it is no single one's


class Policy(Protocol):
    """Takes an answer from candidates, given in the order in which they were listed."""

    def __call__(self, candidates: Sequence[Candidate], /) -> Choice | None:
        """The choice; None for no answer, as for no candidates."""
        ...


_COMPOSED = re.compile(
    r"newest_(?P<k>[2-9]|[1-9][0-9]{1,4})"
    r"|asof_(?P<position>0|[1-9][0-9]{0,17})"
    r"|asof_(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
)


def _at(candidates: Sequence[Candidate], position: int) -> Choice:
    first = next(candidate for candidate in candidates if candidate.position == position)
    return Choice(first.entity, position)


def kth_newest(candidates: Sequence[Candidate], k: int) -> Choice | None:
    """The candidate at the k-th newest distinct position; None if there are fewer."""
    positions = sorted({candidate.position for candidate in candidates}, reverse=True)
    return _at(candidates, positions[k - 1]) if len(positions) >= k else None


def newest(candidates: Sequence[Candidate], /) -> Choice | None:
    """The candidate at the newest position."""
    return kth_newest(candidates, 1)


def oldest(candidates: Sequence[Candidate], /) -> Choice | None:
    """The candidate at the oldest position."""
    return _at(candidates, min(candidate.position for candidate in candidates)) if candidates else None


def count(candidates: Sequence[Candidate], /) -> Choice | None:
    """The number of distinct positions."""
    return Choice(str(len({candidate.position for candidate in candidates})), None) if candidates else None


def as_of_position(candidates: Sequence[Candidate], position: int) -> Choice | None:
    """The newest candidate up to this position."""
    return newest([candidate for candidate in candidates if candidate.position <= position])


def as_of_day(candidates: Sequence[Candidate], day: date) -> Choice | None:
    """The newest candidate up to this day, by the calendar day and zone of its source; undated records are left out."""
    return newest([candidate for candidate in candidates if (on := _day(candidate.time)) is not None and on <= day])


def _day(time: str | None) -> date | None:
    try:
        return None if time is None else datetime.fromisoformat(time).date()
    except ValueError:
        return None


def _composed(name: str) -> Policy | None:
    spelled = _COMPOSED.fullmatch(name)
    if spelled is None:
        return None
    k, position, day = spelled["k"], spelled["position"], spelled["day"]
    if k:
        return partial(kth_newest, k=int(k))
    if position:
        return partial(as_of_position, position=int(position))
    try:
        return partial(as_of_day, day=date.fromisoformat(day))
    except ValueError as error:
        raise ConfigurationError(f"policy {name!r}: {day} is no day of the calendar") from error


POLICIES: Registry[Policy] = Registry(
    "policy",
    "coldread.policies",
    {name: f"extract.pipelines.policies:{name}" for name in ("newest", "oldest", "count")},
    _composed,
    "newest_K, asof_POSITION, asof_YYYY-MM-DD",
)
find_policy = POLICIES.get
