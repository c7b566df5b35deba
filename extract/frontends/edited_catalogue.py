"""A relation catalogue edited by a person: the relation of each name, and checks of the edit."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from extract.frontends.checks import relation_name
from extract.frontends.records import CatalogueName
from offline.config.calls import EditedCatalogue
from offline.errors import ConfigurationError


def relations_of(names: Sequence[CatalogueName], edited: EditedCatalogue | None) -> dict[str, str]:
    """The relation of each name, in order: the edit's; for an unlisted name, that of the name the model mapped it to."""
    listed = {} if edited is None else _listed(edited)
    return {name: listed.get(name, listed.get(root, root)) for name, root in _roots(names).items()}


def check_spellings(edited: EditedCatalogue, where: str) -> None:
    """ConfigurationError for a name listed twice, and for relations that differ only in case, `_` or blanks."""
    for first, second in _alike(name for names in edited.relations.values() for name in names):
        one = repr(first) if first == second else f"{first!r} and {second!r}, spellings of one name,"
        raise ConfigurationError(f"{where} lists {one} in two places; keep it under one relation")
    for first, second in _alike(edited.relations):
        raise ConfigurationError(f"{where} has relations {first!r} and {second!r}, spelled alike; make them one, or rename one")


def check_edit(edited: EditedCatalogue, names: Sequence[CatalogueName], digest: str, where: str) -> None:
    """ConfigurationError for an edit that does not fit these names, whose file has this digest.

    An edit does not fit if it is of another catalogue, lists a name that is missing here (unless written by hand), or renames a
    relation to a name that it does not list, which would merge the two.
    """
    roots, listed = _roots(names), _listed(edited)
    if edited.of not in ("", digest):
        raise ConfigurationError(
            f"{where} is an edit of other names ({edited.of[:12]}…) than this extraction found ({digest[:12]}…): run without "
            "`catalogue`, which takes the same answers, and edit what `coldread catalogue RUN --out FILE.yaml` writes; or, if "
            "the file is to serve several runs, remove its `of`"
        )
    for name in (name for name in listed if edited.of and name not in roots):
        close = get_close_matches(name, roots, n=1)
        meant = f"did you mean {close[0]!r}?" if close else "remove it, or, if the file is to serve several runs, its `of`"
        raise ConfigurationError(f"{where} lists {name!r}, which this extraction did not find; {meant}")
    renamed = {relation_name(to): to for name, root in roots.items() if (to := listed.get(name, root)) != root}
    for root in (root for root in roots.values() if root not in listed and root in renamed):
        raise ConfigurationError(
            f"{where} has a relation {renamed[root]!r}, but does not list the name {root!r}, which this extraction found too: "
            "list it there if they are one relation, or choose another name"
        )


def _listed(edited: EditedCatalogue) -> dict[str, str]:
    return {relation_name(name): relation for relation, names in edited.relations.items() for name in names}


def _roots(names: Sequence[CatalogueName]) -> dict[str, str]:
    """The name that each is mapped to by the model; mappings point to earlier names."""
    roots: dict[str, str] = {}
    for name in names:
        roots[name.name] = name.name if name.into is None else roots.get(name.into, name.into)
    return roots


def _alike(words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each pair of an earlier word and a later spelling of it."""
    seen: dict[str, str] = {}
    for word in words:
        spelled = relation_name(word)
        if spelled in seen:
            yield seen[spelled], word
        seen.setdefault(spelled, word)
