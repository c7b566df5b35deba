"""Views: which records a reader sees for one question.

A view is a function `(memory, question) -> Selection`; `coldread.views` is the entry point group. A view of the traversal
also takes `hops`, and `NAME_hN` asks for it at a cap of N hops. The names of retrieval views are composed (views/retrieval.py):
UNIT_RETRIEVER, then `_kN` for N passages, `_matched` or `_matched_to_VIEW` for a view's length.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from offline.memory import Memory, Selection
from offline.records import Question
from offline.registry import Registry

View = Callable[[Memory, Question], Selection]
_WALKS = ("cmc", "stale_closure", "prior_refresh")
_AT_HOPS = re.compile(rf"(?P<view>{'|'.join(_WALKS)})_h(?P<hops>[1-9][0-9]?)")


def _composed(name: str) -> View | None:
    """The view that a name spells, None if it spells none."""
    from offline.views.retrieval import parse

    walk = _AT_HOPS.fullmatch(name)
    if walk is None:
        return parse(name, find_view)
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
