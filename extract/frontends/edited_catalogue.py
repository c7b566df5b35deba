"""A relation catalogue that a person edited: which relation each name gets, and which edits cannot be meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from extract.frontends.checks import relation_name
from extract.frontends.records import CatalogueName
from offline.config.calls import EditedCatalogue
from offline.errors import ConfigurationError


def relations_of(names: Sequence[CatalogueName], edited: EditedCatalogue | None) -> dict[str, str]:
    """The relation of each name, in order: the model's mapping first, then a person's over it.

    A name that the edit does not list goes with the one that the model mapped it to.
    """
    listed = {} if edited is None else _listed(edited)
    return {name: listed.get(name, listed.get(root, root)) for name, root in _roots(names).items()}


def check_spellings(edited: EditedCatalogue, where: str) -> None:
    """ConfigurationError for one name in two places, and for two relations that only capitals, `_` or blanks tell apart."""
    for first, second in _alike(name for names in edited.relations.values() for name in names):
        one = repr(first) if first == second else f"{first!r} and {second!r}, spellings of one name,"
        raise ConfigurationError(f"{where} lists {one} in two places; keep it under one relation")
    for first, second in _alike(edited.relations):
        raise ConfigurationError(f"{where} has relations {first!r} and {second!r}, spelled alike; make them one, or rename one")


def check_edit(edited: EditedCatalogue, names: Sequence[CatalogueName], digest: str, where: str) -> None:
    """ConfigurationError for an edit that cannot be meant for these names, whose file has this digest.

    It is an edit of another catalogue; it lists a name that is not here, which one written by hand may, so that it can serve
    several runs; or it renames a relation to a name that it does not list, and so would join what is kept under that name.
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
    """What stands for each name after the model's mapping; a name is mapped to one before it."""
    roots: dict[str, str] = {}
    for name in names:
        roots[name.name] = name.name if name.into is None else roots.get(name.into, name.into)
    return roots


def _alike(words: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each word that a word before it is another spelling of, after that one."""
    seen: dict[str, str] = {}
    for word in words:
        spelled = relation_name(word)
        if spelled in seen:
            yield seen[spelled], word
        seen.setdefault(spelled, word)
