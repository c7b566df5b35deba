"""One mechanism for every seam: a name gives an implementation, ours or a third party's.

Ours register with the decorator; a package elsewhere declares an entry point in the seam's group. A name that both
declare is an error, since a published number must not depend on which package happened to be installed.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from offline.errors import ConfigurationError

T = TypeVar("T")


@lru_cache(maxsize=32)
def _declared(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Entry points of a group by name; what is installed is looked through once for each search path."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


class Registry(Generic[T]):
    """Names and implementations of one seam."""

    def __init__(self, kind: str, group: str, also: str = "") -> None:
        self.kind = kind
        self.group = group
        # What else can be named, for the error that lists the names.
        self.also = also
        self._ours: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: enter the decorated implementation under `name`."""

        def enter(implementation: T) -> T:
            if name in self._ours:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._ours[name] = implementation
            return implementation

        return enter

    def _theirs(self) -> dict[str, list[EntryPoint]]:
        return _declared(self.group, tuple(sys.path))

    def built_in(self) -> list[str]:
        """Names of our own implementations, sorted."""
        return sorted(self._ours)

    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self._ours, *self._theirs()})

    def get(self, name: str) -> T:
        """The implementation called `name`; ConfigurationError if there is none or more than one."""
        theirs = self._theirs().get(name, [])
        declared = " and ".join(sorted(repr(point.value) for point in theirs))
        if name in self._ours:
            if theirs:
                raise ConfigurationError(
                    f"{self.kind} {name!r} is built in and also declared by {declared} (entry point group "
                    f"{self.group!r}); rename the latter"
                )
            return self._ours[name]
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
            loaded: T = theirs[0].load()
        except Exception as error:
            raise ConfigurationError(
                f"{self.kind} {name!r} could not be loaded from {declared}: {error}; fix or uninstall that package"
            ) from error
        return loaded
