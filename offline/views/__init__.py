"""Views: which records a reader sees for one question.

A view is a function `(memory, question) -> Selection`; `coldread.views` is the entry point group. Traversal views also take
`hops`, and `NAME_hN` caps them at N hops. Names of retrieval views are composed (views/retrieval.py): UNIT_RETRIEVER, then
`_kN` for N passages, `_matched` or `_matched_to_VIEW` for a view's length. A view may have `needs`, a `ModelWork`, and
`check(name, settings, numbers)`, which raises ConfigurationError for settings that it cannot work with.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from offline.config.experiment import RetrievalSettings, ViewSettings
from offline.errors import ConfigurationError
from offline.memory import Memory, Selection
from offline.records import Question
from offline.registry import Registry

View = Callable[[Memory, Question], Selection]
UNITS = r"fact|statement|window|chunk(?:[1-9][0-9]{1,6})?"


@dataclass(frozen=True)
class ModelWork:
    """The model work that views need."""

    units: tuple[str, ...] = ()  # passages of these units are encoded
    stages: tuple[tuple[str, str], ...] = ()  # (unit, first stage), whose best passages are reranked

    def __post_init__(self) -> None:
        for unit in (*self.units, *(unit for unit, _ in self.stages)):
            if not re.fullmatch(UNITS, unit):
                raise ConfigurationError(
                    f"{unit!r} is no unit of passages; there are fact, statement, window, chunk and chunkN"
                )

    def __or__(self, other: "ModelWork") -> "ModelWork":
        units, stages = {*self.units, *other.units}, {*self.stages, *other.stages}
        return ModelWork(tuple(sorted(units)), tuple(sorted(stages)))


def needs_of(view: View) -> ModelWork:
    """The model work that a view says it needs; none by default."""
    needs = getattr(view, "needs", ModelWork())
    if not isinstance(needs, ModelWork):
        raise ConfigurationError(f"the view {view!r} has `needs` that are no offline.views.ModelWork; mend the view")
    return needs


def check_view(view: View, name: str, settings: ViewSettings, numbers: RetrievalSettings) -> None:
    """ConfigurationError if a view, asked for by `name`, cannot work with these numbers."""
    if check := getattr(view, "check", None):
        check(name, settings, numbers)


_WALKS = ("cmc", "stale_closure", "prior_refresh")
_AT_HOPS = re.compile(rf"(?P<view>{'|'.join(_WALKS)})_h(?P<hops>[1-9][0-9]?)")


def _composed(name: str) -> View | None:
    """The view that a name spells, None if it spells none."""
    from offline.views.retrieval import parse

    walk = _AT_HOPS.fullmatch(name)
    if walk is None:
        return parse(name)
    view: Any = find_view(walk["view"])
    return cast(View, partial(view, hops=int(walk["hops"])))


VIEWS: Registry[View] = Registry(
    "view",
    "coldread.views",
    {
        **{name: f"offline.views.graph:{name}" for name in _WALKS},
        **{name: f"offline.views.state:{name}" for name in ("latest_state", "stale_state", "raw_history", "closed_book")},
        "random_disjoint": "offline.views.controls:random_disjoint",
    },
    _composed,
    "a walk with _hN; (fact|statement|chunk|chunkN|window)_(bm25|dense|hybrid) with _rerank, _kN, _matched",
)
find_view = VIEWS.get
