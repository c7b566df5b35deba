"""Output of `coldread extract --against`, within 100 columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eval.console.layout import more, new_table, short_line
from eval.extraction.against import ExtractionComparison
from eval.extraction.alignment import ERRORS
from eval.extraction.downstream import CAUSES, Downstream, LeftOut
from eval.extraction.quality import OVERWRITTEN, Spread, StatusCell, TripleError
from eval.wording import percent, printable

K = TypeVar("K", bound=str)

_SHOWN = 8  # list entries printed; --json prints all


def quality(console: Console, result: ExtractionComparison) -> None:
    """Print the comparison, part by part."""
    texts, relations = result.texts, result.relations
    compared = f"{texts.compared} distinct texts in common"
    short_line(console, f"extraction of {result.run} against {result.reference}: {compared}")
    for count, name in ((texts.only_extraction, "extraction"), (texts.only_reference, "reference")):
        if count:
            short_line(console, f"not compared: {count} texts that only the {name} has")
    console.print(_statuses(result.statuses))
    console.print(_agreement(result))
    _counts(console, "errors of triples", "errors", ERRORS, result.errors.counts)
    _examples(console, result.errors.items)
    if unmapped := relations.unmapped:
        short_line(console, f"relations that share no fact with the reference: {len(unmapped)}: {', '.join(unmapped)}")
        console.out("")
    _spread(console, "merged", "comes from", relations.merges)
    _spread(console, "split", "is spread over", relations.splits)
    overwritten = result.linking.overwritten
    title = f"what becomes of {overwritten.keys} overwritten keys"
    _counts(console, title, "keys", OVERWRITTEN, msgspec.structs.asdict(overwritten))
    _downstream(console, result.downstream)


def _statuses(cells: Iterable[StatusCell]) -> Table:
    table = new_table("statuses", ("extraction", "reference", "reasons of the extraction"), ("texts",))
    table.columns[2].no_wrap, table.columns[2].overflow = False, "fold"
    for cell in cells:
        reasons = "; ".join(f"{count} {reason}" for reason, count in cell.extraction_reasons.items())
        table.add_row(cell.extraction, cell.reference, escape(printable(reasons)), str(cell.texts))
    return table


def _agreement(result: ExtractionComparison) -> Table:
    headings = ("both", "extraction", "reference", "precision %", "recall %", "F1 %")
    table = new_table("agreement", ("of",), headings)
    of = result.agreement
    rows = {"triples": of.triples, "pairs": of.pairs, "keys": of.keys, "statements of one key": result.linking.pairs}
    for name, cell in rows.items():
        counts = map(str, (cell.both, cell.extraction, cell.reference))
        shares = (cell.precision, cell.recall, cell.f1)
        table.add_row(name, *counts, *("-" if share is None else f"{share:.2f}" for share in shares))
    return table


def _counts(console: Console, title: str, what: str, meaning: Mapping[K, str], counts: Mapping[K, int]) -> None:
    table = new_table(title, ("kind", "meaning"), (what,))
    for name, text in meaning.items():
        table.add_row(name, text, str(counts[name]))
    console.print(table)


def _examples(console: Console, items: Sequence[TripleError]) -> None:
    for item in items[:_SHOWN]:
        short_line(console, f"  {item.kind}: {item.text}")
        for side, triple in (("reference", item.reference), ("extraction", item.extraction)):
            if triple is not None:
                short_line(console, f"    {side}: {triple.subject} | {triple.relation} | {triple.object}")
    more(console, len(items) - _SHOWN, "errors")
    if items:
        console.out("")


def _spread(console: Console, what: str, how: str, found: Sequence[Spread]) -> None:
    if not found:
        return
    console.out(f"relations that are {what}: {len(found)}", highlight=False)
    for entry in found[:_SHOWN]:
        short_line(console, f"  {entry.relation} {how} {len(entry.parts)}")
        for part in entry.parts[:_SHOWN]:
            short_line(console, f"    {part.relation}: {part.facts} facts, such as {part.example}")
        more(console, len(entry.parts) - _SHOWN, "relations", "    ")
    more(console, len(found) - _SHOWN, "relations")
    console.out("")


def _downstream(console: Console, found: Downstream | LeftOut) -> None:
    """Records and characters are means; keys shown: share of the records of the reference's cmc."""
    if left := found.questions_left_out:
        short_line(console, f"downstream without {left} questions about histories that the reference does not have whole")
    if not isinstance(found, Downstream):
        return
    gold = next(iter(found.by_hops.values())).reference.gold_in_evidence is not UNSET
    headings = ("\nasked", "keys\nshown %", "\ncomplete", "\nrecords", "charac-\nters", "fall-\nbacks", "no\nanchor")
    table = new_table("cmc with either extraction", ("\nhops", "\nby"), headings + ("gold in\nevidence", "as\nvalue") * gold)
    for name, cell in found.by_hops.items():
        asked = cell.questions
        for side, counts in (("extraction", cell.extraction), ("reference", cell.reference)):
            table.add_row(
                name,
                side,
                str(asked),
                percent(counts.cmc_keys_shown, counts.cmc_keys),
                f"{counts.complete} of {cell.reached}",
                f"{counts.records / asked:.1f}",
                f"{counts.characters / asked:.0f}",
                str(counts.fallbacks),
                str(counts.no_anchor),
                *((str(counts.gold_in_evidence), str(counts.gold_as_value)) if gold else ()),
            )
    console.print(table)
    causes = new_table("first cause of what cmc lacks", ("cause", "meaning"), tuple(found.by_hops))
    for cause, meaning in CAUSES.items():
        causes.add_row(cause, meaning, *(str(cell.causes[cause]) for cell in found.by_hops.values()))
    outdated = [str(cell.outdated) for cell in found.by_hops.values()]
    causes.add_section()
    causes.add_row("outdated", "an earlier value is shown, lacking or not", *outdated)
    console.print(causes)
    for item in found.lacking[:_SHOWN]:
        short_line(console, f"  {item.question}: {item.cause}, [{item.position}] {item.text}")
    more(console, len(found.lacking) - _SHOWN, "questions")
