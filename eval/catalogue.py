"""The relation catalogue of an extraction by a model: which names were found, which were mapped to which, on what evidence."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from eval.tables import new_table, printable
from extract.frontends.records import CatalogueName
from extract.steps import NAMES, read_names
from offline.asking import EditedCatalogue
from offline.canonical import file_digest, write_bytes
from offline.configuration import dump_yaml
from offline.errors import ConfigurationError, StateError
from offline.run_folder import RunFolder
from offline.steps import fresh


def names_of(run: RunFolder) -> tuple[CatalogueName, ...]:
    """The relation names of a run's extraction; StateError if no model made it, or it is not up to date."""
    fresh(run, run.experiment(), "extraction")
    if not (run.step_folder("extraction") / NAMES).is_file():
        raise StateError(f"{run.path}: its extraction was made without a model; its relations are those of the frontend")
    return read_names(run.step_folder("extraction"))


def groups(names: tuple[CatalogueName, ...]) -> dict[str, list[CatalogueName]]:
    """Names by the one that stands for them, in order of first appearance."""
    into = {name.name: name.into for name in names}
    found: dict[str, list[CatalogueName]] = {}
    for name in names:
        root = name.name
        while (further := into[root]) is not None:
            root = further
        found.setdefault(root, []).append(name)
    return found


def edited(run: RunFolder) -> EditedCatalogue:
    """The catalogue as a person may edit it: names by relation, and the digest of what it is an edit of."""
    relations = {root: tuple(name.name for name in members) for root, members in groups(names_of(run)).items()}
    return EditedCatalogue(relations, of=file_digest(run.step_folder("extraction") / NAMES))


def write_edited(run: RunFolder, out: Path) -> None:
    """Write the catalogue for editing; ConfigurationError for a place inside the run, or one that is taken."""
    if out.exists() or out.resolve().is_relative_to(run.path.resolve()):
        raise ConfigurationError(f"--out {out} is there already, or lies in the run; choose another name")
    comment = (
        "# Relations, each with the names that extraction found for it. Move names about, rename relations, then\n"
        "# name this file in the experiment: `extractor: {catalogue: FILE}`. No call is made again for it.\n"
    )
    write_bytes(out, [comment.encode(), dump_yaml(edited(run))])


def catalogue(run: RunFolder) -> list[dict[str, Any]]:
    """What `coldread catalogue --json` prints: each relation with its names, their facts, examples and mapping."""
    return [
        {
            "relation": root,
            "facts": sum(name.facts for name in members),
            "names": [
                {
                    "name": name.name,
                    "facts": name.facts,
                    "into": name.into,
                    "calls": list(name.calls),
                    "compared_with": list(name.shown),
                    "fault": name.fault,
                    "examples": [{"text": e.text, "subject": e.subject, "object": e.object} for e in name.examples],
                }
                for name in members
            ],
        }
        for root, members in groups(names_of(run)).items()
    ]


def show(console: Console, relations: list[dict[str, Any]]) -> None:
    """Print the catalogue: most facts first, below each name those that were mapped to it, with an example."""
    table = new_table("relations as extraction found them", ("relation", "mapped to it", "an example"), ("facts",))
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    for relation in sorted(relations, key=lambda relation: -relation["facts"]):
        for name in relation["names"]:
            example = name["examples"][0]["text"] if name["examples"] else ""
            own, mapped = ("", name["name"]) if name["into"] else (name["name"], "")
            table.add_row(*(escape(printable(text)) for text in (own, mapped, example)), str(name["facts"]))
    console.print(table)
