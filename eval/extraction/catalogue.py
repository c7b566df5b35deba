"""The relations of an extraction by a model: under which names they were found, what maps those to them, on what evidence."""

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
    """A `CatalogueName` with the facts that the extraction has under it. compared_with: its `shown`."""

    name: str
    facts: int
    into: str | None
    calls: tuple[str, ...]
    compared_with: tuple[str, ...]
    fault: str | None
    examples: tuple[Example, ...]


class CatalogueRelation(Result, frozen=True):
    """A relation, its facts by distinct text, and the names that it was found under."""

    relation: str
    facts: int
    names: tuple[CountedName, ...]


class Catalogue(Result, frozen=True):
    """The relations of a run's extraction, in order of first appearance."""

    run: str
    relations: tuple[CatalogueRelation, ...]


def groups(run: OpenRun) -> dict[str, list[CatalogueName]]:
    """The names of a run's extraction by relation, as its experiment has it, an edited catalogue applied; in order.

    StateError if no model made it, or it is not up to date.
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
    """The catalogue as a person may edit it: names by relation, and the digest of the names, which no edit changes."""
    relations = {relation: tuple(name.name for name in names) for relation, names in groups(run).items()}
    return EditedCatalogue(relations, of=file_digest(run.step_folder("extraction") / NAMES))


def write_edited(run: OpenRun, out: Path) -> None:
    """Write the catalogue for editing; ConfigurationError for a place inside the run, or one that is taken."""
    if out.exists() or out.resolve().is_relative_to(run.path.resolve()):
        raise ConfigurationError(f"--out {out} is there already, or lies in the run; choose another name")
    comment = (
        "# Relations, each with the names that extraction found for it. Move names about, rename relations, then name this\n"
        "# file in the experiment, `extractor: {catalogue: FILE}`, and run it into the same folder: no call is made again.\n"
    )
    write_bytes(out, [comment.encode(), dump_yaml(edited(run))])


def facts_by_name(statements: Sequence[StatementExtraction], drafts: Sequence[Draft]) -> Counter[str]:
    """How many facts of an extraction were read under each name; one that a statement gives under two counts for both."""
    kept = (draft for statement, draft in zip(statements, drafts, strict=True) if statement.status == "facts")
    return Counter(triple.relation for draft in kept for triple in draft.triples)


def catalogue(run: OpenRun) -> Catalogue:
    """Each relation with its facts, names, their facts, examples and mapping.

    Facts are those of the extraction, by distinct text; names.jsonl counts what a model read, which forms spare it.
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
