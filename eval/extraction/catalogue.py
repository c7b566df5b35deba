"""The relations of an extraction by a model: under which names they were found, what maps those to them, on what evidence."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from extract.frontends.edited_catalogue import relations_of
from extract.frontends.records import CatalogueName, Draft
from extract.step import NAMES, read_drafts, read_names
from offline.canonical import file_digest, write_bytes
from offline.config.calls import EditedCatalogue, Extractor
from offline.config.yaml import dump_yaml
from offline.errors import ConfigurationError, StateError
from offline.records import StatementExtraction
from offline.run.opened import OpenRun


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


def catalogue(run: OpenRun) -> list[dict[str, Any]]:
    """What `coldread catalogue --json` prints: each relation with its facts, names, their facts, examples and mapping.

    Facts are those of the extraction, by distinct text; names.jsonl counts what a model read, which forms spare it.
    """
    grouped, statements = groups(run), run.extraction.statements
    of_relation = Counter(triple.relation for statement in statements for triple in statement.triples)
    of_name = facts_by_name(statements, read_drafts(run.step_folder("extraction")))
    return [
        {
            "relation": relation,
            "facts": of_relation[relation],
            "names": [
                {
                    "name": name.name,
                    "facts": of_name[name.name],
                    "into": name.into,
                    "calls": list(name.calls),
                    "compared_with": list(name.shown),
                    "fault": name.fault,
                    "examples": [{"text": e.text, "subject": e.subject, "object": e.object} for e in name.examples],
                }
                for name in names
            ],
        }
        for relation, names in grouped.items()
    ]
