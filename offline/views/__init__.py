"""Views: which records a reader sees for one question.

A view is a function `(memory, question) -> Selection`, registered by name; `coldread.views` is the entry point group.
A view of the traversal also takes `hops`, and `NAME_hN` asks for it at a cap of N hops. The names of retrieval views are
composed (views/retrieval.py): UNIT_RETRIEVER, then `_kN` for N passages, `_matched` or `_matched_to_VIEW` for a view's length.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from offline.errors import ConfigurationError
from offline.memory import Memory, Selection
from offline.records import Question
from offline.registry import Registry

View = Callable[[Memory, Question], Selection]
VIEWS: Registry[View] = Registry(
    "view",
    "coldread.views",
    "a walk with _hN; (fact|statement|chunk|chunkN|window)_(bm25|dense|hybrid) with _rerank, _kN, _matched",
)
_HOP_VIEWS: dict[str, Callable[..., Selection]] = {}
_AT_HOPS = re.compile(r"(?P<view>.+)_h(?P<hops>[1-9][0-9]?)")


def hop_view(name: str) -> Callable[[Callable[..., Selection]], Callable[..., Selection]]:
    """Decorator: enter a view that takes `hops`, under its name and under `NAME_hN`."""

    def enter(view: Callable[..., Selection]) -> Callable[..., Selection]:
        VIEWS.register(name)(view)
        _HOP_VIEWS[name] = view
        return view

    return enter


def find_view(name: str) -> View:
    """The view called `name`; ConfigurationError if there is none."""
    from offline.views import controls, graph, retrieval, state  # noqa: F401  (they register themselves)

    composed: View | None
    match = _AT_HOPS.fullmatch(name)
    if match and match["view"] in _HOP_VIEWS:
        at_hops: Any = partial(_HOP_VIEWS[match["view"]], hops=int(match["hops"]))
        composed = at_hops
    else:
        composed = retrieval.parse(name, find_view)
    if composed is None:
        return VIEWS.get(name)
    if name in VIEWS.names():
        raise ConfigurationError(f"view {name!r} is built in and also declared by an installed package; rename the latter")
    return composed
