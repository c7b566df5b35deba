"""One mechanism for every extension point: a name gives an implementation, built in or of another package.

Built-in ones are targets, "module:object", imported on first use; other packages declare an entry point in the group. A name
that both declare is an error, since a published number must not depend on which packages are installed.
"""

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Generic, TypeVar, cast

from offline.errors import ConfigurationError

T = TypeVar("T")


@lru_cache(maxsize=32)
def _declared(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Entry points of a group by name; the installed packages are searched once for each search path."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


class Registry(Generic[T]):
    """Names and implementations of one extension point.

    ours: built-in implementations, as "module:object". compose: the implementation that a name spells, or None. also: which
    names can be spelled so, for the error that lists the names.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        ours: Mapping[str, str],
        compose: Callable[[str], T | None] = lambda name: None,
        also: str = "",
    ) -> None:
        self.kind = kind
        self.group = group
        self.also = also
        self._ours = ours
        self._compose = compose

    def _theirs(self) -> dict[str, list[EntryPoint]]:
        return _declared(self.group, tuple(sys.path))

    def built_in(self) -> list[str]:
        """Names of the built-in implementations, sorted."""
        return sorted(self._ours)

    def names(self) -> list[str]:
        """All known names, sorted, without composed ones."""
        return sorted({*self._ours, *self._theirs()})

    def __contains__(self, name: str) -> bool:
        return name in self.names() or self._compose(name) is not None

    def get(self, name: str) -> T:
        """The implementation called `name`; ConfigurationError if there is none or more than one."""
        theirs = self._theirs().get(name, [])
        declared = " and ".join(sorted(repr(point.value) for point in theirs))
        composed = self._compose(name)
        if theirs and (composed is not None or name in self._ours):
            raise ConfigurationError(
                f"{self.kind} {name!r} is built in and also declared by {declared} (entry point group "
                f"{self.group!r}); rename the latter"
            )
        if composed is not None:
            return composed
        if name in self._ours:
            return cast(T, resolve_name(self._ours[name]))
        if len(theirs) > 1:
            raise ConfigurationError(
                f"{self.kind} {name!r} is declared by {declared} (entry point group {self.group!r}); uninstall all but one"
            )
        if not theirs:
            known = ", ".join([*self.names(), *filter(None, [self.also])])
            raise ConfigurationError(
                f"unknown {self.kind} {name!r}; known: {known}; if a package adds it (entry point group {self.group!r}), "
                "that is not installed"
            )
        try:
            return cast(T, theirs[0].load())
        except Exception as error:
            raise ConfigurationError(
                f"{self.kind} {name!r} could not be loaded from {declared}: {error}; fix or uninstall that package"
            ) from error
