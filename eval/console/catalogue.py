"""Output of `coldread catalogue`."""

from rich.console import Console
from rich.markup import escape

from eval.console.layout import new_table
from eval.extraction.catalogue import Catalogue
from eval.wording import printable


def catalogue(console: Console, result: Catalogue) -> None:
    """Print the relations by number of facts, each with its names and an example per name."""
    table = new_table("relations of the extraction", ("relation", "name", "an example"), ("facts", "by name"))
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    for relation in sorted(result.relations, key=lambda relation: -relation.facts):
        own = (relation.relation, str(relation.facts))
        for name in relation.names:
            example = name.examples[0].text if name.examples else ""
            words = (escape(printable(text)) for text in (own[0], name.name, example))
            table.add_row(*words, own[1], str(name.facts))
            own = ("", "")
    console.print(table)
