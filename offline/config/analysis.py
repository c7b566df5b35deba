"""The analyses that an experiment declares before anything is read: contrasts, interactions, and lists of questions.

They change no packet. The seal covers the whole experiment, so a contrast declared here predates its reader's answers.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from offline.canonical import Record
from offline.errors import ConfigurationError


class DeclaredContrast(Record, frozen=True):
    """A against B over a population: two views, or two readers of one view."""

    a: str
    b: str
    population: str = "all"
    reader: str | None = None  # of two views; each one that reads both if None
    view: str | None = None  # if given, a and b are readers, which both read it

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the test: B against A is the same as A against B."""
        return frozenset((self.a, self.b)), self.reader, self.view, self.population

    @property
    def views(self) -> tuple[str, str]:
        """The views of A and B."""
        return (self.a, self.b) if self.view is None else (self.view, self.view)


class DeclaredInteraction(Record, frozen=True):
    """The interaction (a - b) - (c - d) of four views over a population."""

    a: str
    b: str
    c: str
    d: str
    population: str = "all"
    reader: str | None = None  # each one that reads all four if None


class Analysis(Record, frozen=True):
    """The section `analysis` of an experiment."""

    contrasts: tuple[DeclaredContrast, ...] = ()
    interactions: tuple[DeclaredInteraction, ...] = ()
    populations: dict[str, tuple[str, ...]] = {}  # question ids by name

    @property
    def asked(self) -> tuple[str, ...]:
        """The populations of all contrasts and interactions, each once."""
        over = [contrast.population for contrast in self.contrasts] + [item.population for item in self.interactions]
        return tuple(dict.fromkeys(over))


ViewsOf = TypeVar("ViewsOf", DeclaredContrast, DeclaredInteraction)


def resolve_analysis(analysis: Analysis, views: Sequence[str], readers: Mapping[str, Sequence[str]], where: str) -> Analysis:
    """The section with every contrast's reader named; ConfigurationError for an analysis that can never be computed.

    views: the frozen ones. readers: the views that each reads. Whether a population exists is checked in eval/.
    """
    for name, questions in analysis.populations.items():
        if name in ("", "all") or ":" in name:
            raise ConfigurationError(f"{where}: analysis: a population cannot be called {name!r}, choose another name")
        if not questions or len(set(questions)) < len(questions):
            raise ConfigurationError(f"{where}: analysis: population {name!r} must list question ids, each once")
    contrasts: list[DeclaredContrast] = []
    for contrast in analysis.contrasts:
        if contrast.view is None:
            contrasts += _of_views(contrast, (contrast.a, contrast.b), views, readers, where)
        else:
            contrasts.append(_of_readers(contrast, contrast.view, views, readers, where))
    interactions: list[DeclaredInteraction] = []
    for item in analysis.interactions:
        interactions += _of_views(item, (item.a, item.b, item.c, item.d), views, readers, where)
    seen = set()
    for contrast in contrasts:
        if contrast.identity in seen:
            raise ConfigurationError(f"{where}: {_name(contrast)} is declared twice")
        seen.add(contrast.identity)
    if len(set(interactions)) < len(interactions):
        raise ConfigurationError(f"{where}: analysis: an interaction is declared twice")
    return msgspec.structs.replace(analysis, contrasts=tuple(contrasts), interactions=tuple(interactions))


def _of_views(
    item: ViewsOf, named: Sequence[str], views: Sequence[str], readers: Mapping[str, Sequence[str]], where: str
) -> list[ViewsOf]:
    """One copy of `item` for each reader that it concerns."""
    if len(set(named)) < len(named):
        raise ConfigurationError(f"{where}: {_name(item)} names a view twice")
    for view in named:
        if view not in views:
            raise ConfigurationError(f"{where}: {_name(item)}: the view {view!r} is not frozen; add it to `views`")
    if item.reader is not None and item.reader not in readers:
        raise ConfigurationError(f"{where}: {_name(item)}: no reader {item.reader!r}; there are {', '.join(readers) or 'none'}")
    able = [name for name, read in readers.items() if item.reader in (None, name) and set(named) <= set(read)]
    if not able:
        who = "no reader reads" if item.reader is None else f"reader {item.reader!r} does not read"
        raise ConfigurationError(f"{where}: {_name(item)}: {who} all of {', '.join(named)}; add them to a reader's `views`")
    return [msgspec.structs.replace(item, reader=name) for name in able]


def _of_readers(
    item: DeclaredContrast, view: str, views: Sequence[str], readers: Mapping[str, Sequence[str]], where: str
) -> DeclaredContrast:
    if item.reader is not None or item.a == item.b:
        raise ConfigurationError(f"{where}: {_name(item)}: with `view`, a and b are two readers, and `reader` is left out")
    if view not in views:
        raise ConfigurationError(f"{where}: {_name(item)}: the view {view!r} is not frozen; add it to `views`")
    for name in (item.a, item.b):
        if view not in readers.get(name, ()):
            raise ConfigurationError(
                f"{where}: {_name(item)}: no reader {name!r} reads {view!r}; with `view`, a and b are readers that read it"
            )
    return item


def _name(item: DeclaredContrast | DeclaredInteraction) -> str:
    kind = "contrast" if isinstance(item, DeclaredContrast) else "interaction"
    return f"analysis: the {kind} of {item.a!r} and {item.b!r} over {item.population!r}"
