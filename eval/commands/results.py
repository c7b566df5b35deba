"""Commands that look at a run, publish it or audit it."""

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from eval.commands.shared import OBSERVER, Json, RunArgument, check_outside, open_published, open_run, show_result
from eval.metrics import HEADLINE
from offline.canonical import write_bytes
from offline.errors import CommandError
from offline.run.folder import REPORT

Format = Literal["markdown", "latex", "csv", "json"]  # of published tables


def catalogue(
    folder: RunArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Write it for editing, outside the run.")] = None,
    as_json: Json = False,
) -> None:
    """Show the relations of a model's extraction and the names that each was found under, with facts and examples."""
    from eval.console.catalogue import catalogue as print_catalogue
    from eval.extraction.catalogue import catalogue as read_catalogue
    from eval.extraction.catalogue import write_edited

    place = open_published(folder)
    with place.lock():
        result = read_catalogue(place)
        if out is not None:
            write_edited(place, out)
    show_result(as_json, result, print_catalogue)


def coverage(
    folder: RunArgument,
    by: Annotated[
        Literal["length", "hops"] | None, typer.Option(help="Rows by history length too, or by exact hops; --json holds all.")
    ] = None,
    curve: Annotated[
        str, typer.Option(metavar="K,K,...", help="What retrieval views would hold if they showed K passages: 1,5,10,50,100.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Count what each view's evidence holds: gold answers, cmc's records. Opens the labels; the ledger records it."""
    from eval.analysis.coverage import coverage as count
    from eval.console import coverage as tables
    from eval.labels import open_labels

    at = _numbers(curve)
    place = open_published(folder)
    with place.lock():
        place.fresh("packets")
        result = count(place, open_labels(place, "coverage"), at)
    show_result(as_json, result, lambda console, counted: tables.coverage(console, counted, by))


def _numbers(text: str) -> list[int]:
    if text and not re.fullmatch(r"[1-9][0-9]{0,4}(,[1-9][0-9]{0,4})*", text):
        raise CommandError(f"--curve {text!r}: give whole numbers from 1 to 99999, like 1,5,10")
    return [int(number) for number in text.split(",") if number]


def labels(folder: RunArgument, as_json: Json = False) -> None:
    """Audit the labels: flagged questions, populations, their effect on the scores. Opens the labels; the ledger records it."""
    from eval.analysis.label_audit import audit_labels
    from eval.analysis.populations import population_names
    from eval.console import labels as tables
    from eval.labels import open_labels
    from eval.records import Score
    from eval.score import read_all_scores
    from offline.errors import StateError

    place = open_published(folder)
    with place.lock():
        place.fresh("extraction")
        names = population_names(place)
        try:
            scores: list[Score] | str = read_all_scores(place)
        except StateError as error:
            scores = str(error)
        result = audit_labels(place, open_labels(place, "labels"), names, scores)
    show_result(as_json, result, tables.labels)


def show(
    folder: RunArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question id.")],
    as_json: Json = False,
) -> None:
    """Print one question's whole story."""
    from eval.analysis.question import show as story
    from eval.console.question import story as print_story

    result = story(open_published(folder), question)
    show_result(as_json, result, print_story)


def compare(
    folder: RunArgument,
    a: Annotated[str, typer.Argument(metavar="A", help="A reader of the run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    other: Annotated[Path | None, typer.Option(metavar="RUN2", help="The run that B lies in, if another.")] = None,
    metric: Annotated[str, typer.Option(help="Any stored metric.")] = HEADLINE,
    as_json: Json = False,
) -> None:
    """Compare two scored readers of the same packets, question by question. Opens no label, writes nothing."""
    from eval.analysis.compare import compare as paired
    from eval.console.compare import compare as print_compare

    place = open_published(folder)
    result = paired(place, a, place if other is None else open_published(other), b, metric)
    show_result(as_json, result, print_compare)


def table(
    folder: RunArgument,
    form: Annotated[Format, typer.Option("--format", help="LaTeX needs booktabs; CSV has one column a number.")] = "markdown",
    metric: Annotated[str, typer.Option(help="Any stored metric.")] = HEADLINE,
    by: Annotated[Literal["length"] | None, typer.Option(help="Rows by history length too.")] = None,
    published: Annotated[bool, typer.Option("--published", help="Add results published by others, marked as such.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there instead of printing it.")] = None,
    as_json: Json = False,
) -> None:
    """Print the main table of a scored run, to be published: accuracy, costs, seals. Opens no label."""
    from eval.analysis.main_table import main_table
    from eval.analysis.scored import open_scored
    from eval.typeset.main_table import render

    place = open_published(folder)
    if out is not None:
        check_outside(place, out)
    result = main_table(open_scored(place), metric, by_length=by is not None, with_published=published)
    text = render(result, "json" if as_json else form)
    if out is None:
        print(text, end="", flush=True)
    else:
        write_bytes(out, [text.encode()])


def report(
    folder: RunArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write it there (default: report.html in the run).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a scored run as one self-contained page: tables, plots, every question. Opens no label."""
    from eval.analysis.summary import score_summary
    from eval.console.scores import scores as print_scores
    from eval.report.page import write_report

    place = open_published(folder)
    if out is not None and out.resolve() != (folder / REPORT).resolve():
        check_outside(place, out)
    with place.lock():
        result = write_report(place, out)
    show_result(as_json, result, lambda console, _: print_scores(console, score_summary(place)))
    made = f"{result.bytes / 1e6:.1f} MB, {result.questions} questions, {result.answers} answers"
    OBSERVER.say("report", f"{result.report}: {made}")


def contrast(
    folder: RunArgument,
    a: Annotated[str | None, typer.Option(metavar="VIEW", help="A view, set against --b (default: what is declared).")] = None,
    b: Annotated[str | None, typer.Option(metavar="VIEW", help="Another one.")] = None,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    view: Annotated[str | None, typer.Option(help="--a and --b are two readers of this view.")] = None,
    population: Annotated[str | None, typer.Option(help="all, length:NAME, or one that the experiment names.")] = None,
    metric: Annotated[str, typer.Option(help="Any stored metric.")] = HEADLINE,
    evidence: Annotated[bool, typer.Option("--evidence", help="Also what the packets of both sides held.")] = False,
    form: Annotated[Format | None, typer.Option("--format", help="For publication; CSV holds only the contrasts.")] = None,
    as_json: Json = False,
) -> None:
    """Set two views of a scored reader side by side, question by question. Opens no label, writes nothing."""
    from eval.analysis.contrasts import ContrastQuery, summary
    from eval.analysis.scored import open_scored
    from eval.console.contrasts import contrast as print_contrast
    from eval.typeset.contrasts import render

    asked = ContrastQuery(a, b, reader, view, population)
    result = summary(open_scored(open_published(folder)), asked, metric, evidence=evidence)
    if as_json or form is None:
        show_result(as_json, result, print_contrast)
    else:
        print(render(result, form), end="", flush=True)


def pipelines(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    as_json: Json = False,
) -> None:
    """Report what pipelines did: candidates, hops, abstentions, calls; once scored, the value of each part. Opens no label."""
    from eval.analysis.pipelines import pipelines as diagnose
    from eval.console import pipelines as tables

    result = diagnose(open_published(folder), reader)
    show_result(as_json, result, tables.pipelines)


def replay(
    folder: RunArgument,
    tokens: Annotated[bool, typer.Option("--tokens/--no-tokens", help="Rebuild token ids (needs a tokenizer).")] = True,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with the tokenizer's files, hash-checked.")] = None,
    as_json: Json = False,
) -> None:
    """Audit a sealed run: files, extraction, packets, token ids, output text, scores. Writes nothing."""
    from eval.replay import replay as audit

    links = audit(open_run(folder), tokens=tokens, tokenizers=tokenizer, observer=OBSERVER)
    skipped = list(dict.fromkeys(link.link for link in links if link.skipped))
    sealed = any(link.link == "seal" for link in links)
    left = f"; skipped: {', '.join(skipped)}" if skipped else "" if sealed else "; no reader is sealed"
    OBSERVER.say("done", f"what was checked replays{left}" if left else "every link replays")
    show_result(as_json, {"run": str(folder), "links": msgspec.to_builtins(links), "skipped": skipped})
