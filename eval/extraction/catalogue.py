"""Relation catalogue of a model's extraction: the names found for each relation, and the evidence for mapping them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eval.results import Result
from extract.frontends.edited_catalogue import relations_of
from extract.frontends.records import CatalogueName, Draft, Example
from extract.step import NAMES, read_drafts, read_names
from offline.canonical import file_digest, write_bytes
from offline.config.calls import EditedCatalogue, Extractor
from offline.config.yaml import dump_yaml
from offline.errors import ConfigurationError, StateError
from offline.records import StatementExtraction
from offline.run.opened import OpenRun


class CountedName(Result, frozen=True):
    """A `CatalogueName` with its number of facts in the extraction."""

    name: str
    facts: int
    into: str | None
    calls: tuple[str, ...]
    compared_with: tuple[str, ...]  # its `shown`
    fault: str | None
    examples: tuple[Example, ...]


class CatalogueRelation(Result, frozen=True):
    """A relation and its names."""

    relation: str
    facts: int  # by distinct text
    names: tuple[CountedName, ...]


class Catalogue(Result, frozen=True):
    """The relations of a run's extraction, in order of first appearance."""

    run: str
    relations: tuple[CatalogueRelation, ...]


def groups(run: OpenRun) -> dict[str, list[CatalogueName]]:
    """The names of a run's extraction by relation, in order, with an edited catalogue applied.

    StateError unless a model made the extraction and it is up to date.
    """
    experiment, folder = run.experiment, run.step_folder("extraction")
    run.fresh("extraction")
    if not isinstance(experiment.extractor, Extractor) or not (folder / NAMES).is_file():
        raise StateError(f"{run.path}: its extraction was made without a model; its relations are those of the frontend")
    names = read_names(folder)
    found: dict[str, list[CatalogueName]] = {}
    for name, relation in zip(names, relations_of(names, experiment.extractor.catalogue).values(), strict=True):
        found.setdefault(relation, []).append(name)
    return found


def edited(run: OpenRun) -> EditedCatalogue:
    """The catalogue for editing: names by relation, and the digest of the names, which edits do not change."""
    relations = {relation: tuple(name.name for name in names) for relation, names in groups(run).items()}
    return EditedCatalogue(relations, of=file_digest(run.step_folder("extraction") / NAMES))


def write_edited(run: OpenRun, out: Path) -> None:
    """Write the catalogue for editing; ConfigurationError for a path inside the run or an existing file."""
    if out.exists() or out.resolve().is_relative_to(run.path.resolve()):
        raise ConfigurationError(f"--out {out} is there already, or lies in the run; choose another name")
    comment = (
        "# Relations, each with the names that extraction found for it. Move names about, rename relations, then name this\n"
        "# file in the experiment, `extractor: {catalogue: FILE}`, and run it into the same folder: no call is made again.\n"
    )
    write_bytes(out, [comment.encode(), dump_yaml(edited(run))])


def facts_by_name(statements: Sequence[StatementExtraction], drafts: Sequence[Draft]) -> Counter[str]:
    """Number of facts per name; a fact stated under two names in one statement counts for both."""
    kept = (draft for statement, draft in zip(statements, drafts, strict=True) if statement.status == "facts")
    return Counter(triple.relation for draft in kept for triple in draft.triples)


def catalogue(run: OpenRun) -> Catalogue:
    """Each relation with its names, facts, examples and mapping.

    Facts are those of the extraction, by distinct text; names.jsonl counts only facts read by a model, not by learned forms.
    """
    grouped, statements = groups(run), run.extraction.statements
    of_relation = Counter(triple.relation for statement in statements for triple in statement.triples)
    of_name = facts_by_name(statements, read_drafts(run.step_folder("extraction")))
    relations = (
        CatalogueRelation(relation, of_relation[relation], tuple(_counted(name, of_name[name.name]) for name in names))
        for relation, names in grouped.items()
    )
    return Catalogue(str(run.path), tuple(relations))


def _counted(name: CatalogueName, facts: int) -> CountedName:
    return CountedName(name.name, facts, name.into, name.calls, name.shown, name.fault, name.examples)
