"""The command line: one thin function per command. `main` turns every ColdreadError into one line and its exit code."""

import io
import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

try:
    runpy.run_path(str(Path(__file__).resolve().with_name("offline") / "packages.py"))["bind"]()
except ImportError as error:
    if Path(sys.argv[0]).stem != "coldread":
        raise
    print(f"error: {error}", file=sys.stderr)
    sys.exit(3)

from eval.console.progress import Lines
from eval.metrics import HEADLINE
from eval.metrics.subem import substring_exact_match
from offline.canonical import write_bytes
from offline.errors import ColdreadError, CommandError, ConfigurationError, StorageError
from offline.run.folder import REPORT, TOKENIZERS

if TYPE_CHECKING:
    from eval.notebook import Run
    from offline.run.opened import OpenRun

__all__ = ["main", "open_run", "substring_exact_match"]


def open_run(folder: str | Path) -> "Run":
    """Open a run folder in Python; what it holds are records, and tables (docs/notebook.md)."""
    from eval.notebook import open_run as opened

    return opened(folder)


app = typer.Typer(
    help="Freeze what a reader may see, let pinned readers read it once, seal what they said, open the labels last.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: 0 done, 2 wrong command line, 3 configuration, 4 data, 5 labels, 6 model, 7 storage, 8 engine, "
    "9 guard, 10 wrong order or sealed, 20 altered file, 21-26 a link that does not replay (extraction, packets, inputs, "
    "outputs, scores, seal).",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"coldread {version('coldread')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Data = Annotated[Path | None, typer.Option(help="Raw rows: a .json, .jsonl or .parquet file (else the hub).")]
Limit = Annotated[int | None, typer.Option(help="Questions of each row, at most; part of the configuration.")]

_observer = Lines(Console(stderr=True))


def _open(folder: Path, may_lack: frozenset[str] = frozenset()) -> "OpenRun":
    from offline.run.opened import OpenRun

    return OpenRun(folder, may_lack=may_lack)


def _published(folder: Path) -> "OpenRun":
    """A run for a command that needs no tokenizer: it may lack the tokenizers' files."""
    return _open(folder, TOKENIZERS)


def _print(as_json: bool, result: object, human: Callable[[Console], None]) -> None:
    if as_json:
        from eval.results import as_json as encode

        print(encode(result))
    else:
        # At least 100 columns: a wrapped line is better than a truncated number.
        human(Console(width=max(100, Console().width)))
    sys.stdout.flush()


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT.yaml", help="A file, or the name of a shipped one.")],
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/NAME).")] = None,
    limit: Limit = None,
    until: Annotated[str, typer.Option(help="Last step: load, extract, encode, freeze, read or score.")] = "score",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count requests, tokens, bytes, downloads and minutes; keep nothing.")
    ] = False,
    input_rate: Annotated[int, typer.Option(min=0, help="Input tokens a second, for the dry run's minutes.")] = 0,
    output_rate: Annotated[int, typer.Option(min=0, help="Output tokens a second, likewise.")] = 0,
    as_json: Json = False,
) -> None:
    """Do everything: load, extract, encode, freeze, read, score. Steps that are up to date are skipped."""
    from eval import dry_run as estimates
    from eval import run as steps
    from eval.analysis.summary import score_summary
    from eval.console.dry_run import estimate as print_estimate
    from eval.console.scores import scores as print_scores

    plan = steps.make_plan(experiment, data, limit)
    steps.check_until(until)
    if dry_run:
        estimate = estimates.dry_run(plan, estimates.Rates(input_rate, output_rate), _observer)
        _print(as_json, estimate, lambda console: print_estimate(console, estimate))
        return
    folder = _open(out or steps.default_out(plan.experiment))
    with _observer.bars() as observer:
        steps.run_all(folder, plan, until, observer)
    if until != "score" or not plan.experiment.readers:
        _print(as_json, {"run": str(folder.path)}, lambda console: None)
    else:
        summary = score_summary(folder)
        _print(as_json, summary, lambda console: print_scores(console, summary))
        _observer.say("done", f"{folder.path}: audit it with `coldread replay {shlex.quote(str(folder.path))}`")


@app.command()
def load(
    folder: RunArgument,
    experiment: Annotated[str | None, typer.Option(help="Start the run with this experiment.")] = None,
    data: Data = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Write histories and questions, and the labels apart from them."""
    from eval import run as steps

    place = _open(folder)
    if experiment is not None:
        steps.start(place, steps.make_plan(experiment, data, limit), _observer)
    elif limit is not None:
        raise CommandError("--limit is part of the configuration; give it together with --experiment")
    else:
        with place.lock():
            steps.load(place, data, _observer)
    _print(as_json, steps.StepDone(str(folder), "load"), lambda console: None)


@app.command()
def extract(
    folder: RunArgument,
    against: Annotated[
        str | None,
        typer.Option(metavar="REFERENCE", help="Compare what is extracted: grammar, grammar:NAME or another run."),
    ] = None,
    gold: Annotated[bool, typer.Option("--gold", help="With --against: gold in evidence too. Opens the labels.")] = False,
    as_json: Json = False,
) -> None:
    """Turn statements into triples with the experiment's frontend, or compare those triples with a reference."""
    from eval import run as steps

    place = _open(folder)
    if against is not None:
        _extract_against(place, against, gold, as_json)
        return
    if gold:
        raise CommandError("--gold goes with --against REFERENCE")
    with place.lock(), _observer.bars() as observer:
        steps.extract(place, observer)
    _print(as_json, steps.StepDone(str(folder), "extract"), lambda console: None)


def _extract_against(place: "OpenRun", against: str, gold: bool, as_json: bool) -> None:
    from eval.console import extraction as tables
    from eval.extraction.against import compare_extractions, find_reference
    from eval.labels import open_labels

    with place.lock():
        place.fresh("extraction")
        reference = find_reference(place, against)
        golds = open_labels(place, "extract --against") if gold else None
        result = compare_extractions(place, reference, golds)
    _print(as_json, result, lambda console: tables.quality(console, result))


@app.command()
def catalogue(
    folder: RunArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Write it for editing, outside the run.")] = None,
    as_json: Json = False,
) -> None:
    """Show the relations of a model's extraction and the names that each was found under, with facts and examples."""
    from eval.console.catalogue import catalogue as print_catalogue
    from eval.extraction.catalogue import catalogue as read_catalogue
    from eval.extraction.catalogue import write_edited

    place = _published(folder)
    with place.lock():
        result = read_catalogue(place)
        if out is not None:
            write_edited(place, out)
    _print(as_json, result, lambda console: print_catalogue(console, result))


@app.command()
def encode(
    folder: RunArgument,
    check: Annotated[bool, typer.Option("--check", help="Encode again, change nothing, count what differs.")] = False,
    batch_size: Annotated[int | None, typer.Option(help="With --check: texts a batch (default: the model's own).")] = None,
    as_json: Json = False,
) -> None:
    """Make the vectors and the rerank scores that retrieval views rank by; resumes an interrupted encoding."""
    from eval import run as steps
    from eval.console.models import recheck as print_recheck
    from offline.run.steps import model_work
    from offline.views import ModelWork
    from readers.encoders.recheck import recheck

    if batch_size is not None and not check:
        raise CommandError("--batch-size goes with --check; a run's own batch size stands in its experiment")
    place = _open(folder)
    with place.lock(), _observer.bars() as observer:
        if check:
            found = recheck(place, batch_size, observer)
            _print(as_json, found, lambda console: print_recheck(console, found))
        else:
            steps.encode(place, observer)
            if model_work(place.experiment) == ModelWork():
                observer.say("encode", "nothing to do: no view of this run needs an embedding model or a reranker")
            _print(as_json, steps.StepDone(str(folder), "encode"), lambda console: None)


@app.command()
def freeze(
    folder: RunArgument,
    check: Annotated[bool, typer.Option("--check", help="Derive the packets again and compare byte for byte.")] = False,
    as_json: Json = False,
) -> None:
    """Freeze the packets of every view."""
    from eval import run as steps
    from eval.replay import check_packets
    from readers.read import make_measure

    place = _open(folder)
    done = steps.StepDone(str(folder), "freeze")
    if check:
        done = msgspec.structs.replace(done, packets_identical=check_packets(place, make_measure(place)[0]))
        _observer.say("freeze", f"{done.packets_identical} packets derived again, all identical")
    else:
        with place.lock():
            steps.freeze(place, _observer)
    _print(as_json, done, lambda console: None)


@app.command()
def read(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    as_json: Json = False,
) -> None:
    """Let the readers read their packets and seal what they said; resumes an interrupted read."""
    from eval import run as steps
    from readers.seal import read_seal

    place = _open(folder)
    with place.lock(), _observer.bars() as observer:
        steps.read_all(place, reader, observer)
    seals = {name: read_seal(place, name).root for name in place.sealed_readers()}
    _print(as_json, steps.StepDone(str(folder), "read", seals=seals), lambda console: None)


@app.command()
def probe(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="The reader (default: the experiment's first).")] = None,
    sample: Annotated[int, typer.Option(help="Requests to sample.")] = 32,
    as_json: Json = False,
) -> None:
    """Measure whether outputs depend on batch, order or a warm cache; on a sealed run, whether they come out again."""
    from eval import run as steps
    from eval.console.models import certificate as print_certificate

    place = _open(folder)
    with place.lock():
        experiment = place.experiment
        name = reader or next((plan.reader.name for plan in experiment.readers), "")
        result = steps.probe(place, name, sample)
    _print(as_json, result, lambda console: print_certificate(console, result))


@app.command()
def score(
    folder: RunArgument,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score these instead, unsealed: .json, .jsonl or .csv, also .gz.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="With --predictions: what to call them (default: the file's name).")] = None,
    id_field: Annotated[str | None, typer.Option(help="Likewise: the field with the question id (default: question).")] = None,
    text_field: Annotated[str | None, typer.Option(help="Likewise: the field with the answer (default: text).")] = None,
    by: Annotated[str | None, typer.Option(metavar="FIELD", help="Likewise: score each value of this field apart.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Likewise: every verdict, outside the run.")] = None,
    as_json: Json = False,
) -> None:
    """Open the labels and score sealed predictions, or those of a file. Refuses an unsealed or altered run."""
    from eval.analysis.summary import score_summary
    from eval.console.scores import scores as print_scores
    from eval.score import score_run

    place = _published(folder)
    if predictions is not None:
        _score_others(place, predictions, name, (id_field, text_field, by), out, as_json)
        return
    if any(option is not None for option in (name, id_field, text_field, by, out)):
        raise CommandError("--name, --id-field, --text-field, --by and --out go with --predictions FILE")
    with place.lock():
        score_run(place)
    summary = score_summary(place)
    _print(as_json, summary, lambda console: print_scores(console, summary))


def _score_others(
    place: "OpenRun",
    file: Path,
    name: str | None,
    fields: tuple[str | None, str | None, str | None],
    out: Path | None,
    as_json: bool,
) -> None:
    from eval.analysis.prediction_file import Fields, read_answers
    from eval.analysis.unsealed import score_answers
    from eval.console import unsealed as tables
    from eval.results import as_json as encode

    if out is not None:
        _check_out(place, out, file)
    given = read_answers(file, Fields(fields[0] or Fields.id, fields[1] or Fields.text, fields[2]))
    with place.lock():
        result = score_answers(place, given, name or file.name)
    if out is not None:
        write_bytes(out, [encode(result).encode()])
    _print(as_json, msgspec.structs.replace(result, items=msgspec.UNSET), lambda console: tables.unsealed(console, result))


def _check_out(place: "OpenRun", out: Path, *inputs: Path) -> None:
    """ConfigurationError for an --out inside the run, or on a file that is read."""
    if out.resolve().is_relative_to(place.path.resolve()):
        raise ConfigurationError(f"--out {out} lies in the run, which holds nothing but its steps; choose another place")
    if any(out.resolve() == given.resolve() for given in inputs):
        raise ConfigurationError(f"--out {out} is the file that is read; choose another name")


class By(StrEnum):
    """What the coverage table breaks a view down by, besides hop class."""

    LENGTH = "length"
    HOPS = "hops"


@app.command()
def coverage(
    folder: RunArgument,
    by: Annotated[By | None, typer.Option(help="Rows by history length too, or by exact hops; --json holds all.")] = None,
    curve: Annotated[
        str, typer.Option(metavar="K,K,...", help="What retrieval views would hold if they showed K passages: 1,5,10,50,100.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Count what each view's evidence holds: gold answers, cmc's records. Opens the labels, and the ledger says so."""
    from eval.analysis.coverage import coverage as count
    from eval.console import coverage as tables
    from eval.labels import open_labels

    at = _numbers(curve)
    place = _published(folder)
    with place.lock():
        place.fresh("packets")
        result = count(place, open_labels(place, "coverage"), at)

    def human(console: Console) -> None:
        tables.coverage(console, result, by)
        if result.curve is not msgspec.UNSET:
            tables.curve(console, result.curve)

    _print(as_json, result, human)


@app.command()
def labels(folder: RunArgument, as_json: Json = False) -> None:
    """Audit the labels: what screens flag, populations, how far the scores depend on it. Opens them, and the ledger says so."""
    from eval.analysis.label_audit import audit_labels
    from eval.analysis.populations import population_names
    from eval.console import labels as tables
    from eval.labels import open_labels
    from eval.records import Score
    from eval.score import read_all_scores
    from offline.errors import StateError

    place = _published(folder)
    with place.lock():
        place.fresh("extraction")
        names = population_names(place)
        try:
            scores: list[Score] | str = read_all_scores(place)
        except StateError as error:
            scores = str(error)
        result = audit_labels(place, open_labels(place, "labels"), names, scores)
    _print(as_json, result, lambda console: tables.labels(console, result))


def _numbers(text: str) -> list[int]:
    if text and not re.fullmatch(r"[1-9][0-9]{0,4}(,[1-9][0-9]{0,4})*", text):
        raise CommandError(f"--curve {text!r}: give whole numbers from 1 to 99999, like 1,5,10")
    return [int(number) for number in text.split(",") if number]


@app.command()
def replay(
    folder: RunArgument,
    tokens: Annotated[bool, typer.Option("--tokens/--no-tokens", help="Rebuild token ids (needs a tokenizer).")] = True,
    tokenizer: Annotated[Path | None, typer.Option(help="A folder with the tokenizer's files, hash-checked.")] = None,
    as_json: Json = False,
) -> None:
    """Audit a sealed run: files, extraction, packets, token ids, output text, scores. Writes nothing."""
    from eval.replay import replay as audit

    links = audit(_open(folder), tokens=tokens, tokenizers=tokenizer, observer=_observer)
    skipped = list(dict.fromkeys(link.link for link in links if link.skipped))
    sealed = any(link.link == "seal" for link in links)
    left = f"; skipped: {', '.join(skipped)}" if skipped else "" if sealed else "; no reader is sealed"
    _observer.say("done", f"what was checked replays{left}" if left else "every link replays")
    _print(as_json, {"run": str(folder), "links": msgspec.to_builtins(links), "skipped": skipped}, lambda console: None)


@app.command()
def show(
    folder: RunArgument,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question id.")],
    as_json: Json = False,
) -> None:
    """Print one question's whole story."""
    from eval.analysis.question import show as story
    from eval.console.question import story as print_story

    result = story(_published(folder), question)
    _print(as_json, result, lambda console: print_story(console, result))


@app.command()
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

    place = _published(folder)
    result = paired(place, a, place if other is None else _published(other), b, metric)
    _print(as_json, result, lambda console: print_compare(console, result))


class Format(StrEnum):
    """Formats of published tables."""

    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    JSON = "json"


class TableBy(StrEnum):
    """What the main table breaks its rows down by."""

    LENGTH = "length"


@app.command()
def table(
    folder: RunArgument,
    form: Annotated[
        Format, typer.Option("--format", help="LaTeX needs booktabs; CSV has one column a number.")
    ] = Format.MARKDOWN,
    metric: Annotated[str, typer.Option(help="Any stored metric.")] = HEADLINE,
    by: Annotated[TableBy | None, typer.Option(help="Rows by history length too.")] = None,
    published: Annotated[bool, typer.Option("--published", help="Add what others published on this data, marked so.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there instead of printing it.")] = None,
    as_json: Json = False,
) -> None:
    """Print the main table of a scored run, to be published: accuracy, costs, seals. Opens no label."""
    from eval.analysis.main_table import main_table
    from eval.analysis.scored import open_scored
    from eval.typeset.main_table import render

    place = _published(folder)
    if out is not None:
        _check_out(place, out)
    result = main_table(open_scored(place), metric, by_length=by is not None, with_published=published)
    text = render(result, Format.JSON if as_json else form)
    if out is None:
        print(text, end="", flush=True)
    else:
        write_bytes(out, [text.encode()])


@app.command()
def report(
    folder: RunArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write it there (default: report.html in the run).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a scored run as one page: tables, plots, every question. It asks the network for nothing. Opens no label."""
    from eval.analysis.summary import score_summary
    from eval.console.scores import scores as print_scores
    from eval.report.page import write_report

    place = _published(folder)
    if out is not None and out.resolve() != (folder / REPORT).resolve():
        _check_out(place, out)
    with place.lock():
        result = write_report(place, out)
    _print(as_json, result, lambda console: print_scores(console, score_summary(place)))
    made = f"{result.bytes / 1e6:.1f} MB, {result.questions} questions, {result.answers} answers"
    _observer.say("report", f"{result.report}: {made}")


@app.command()
def contrast(
    folder: RunArgument,
    a: Annotated[str | None, typer.Option(metavar="VIEW", help="A view, set against --b (default: what is declared).")] = None,
    b: Annotated[str | None, typer.Option(metavar="VIEW", help="Another one.")] = None,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    view: Annotated[str | None, typer.Option(help="--a and --b are two readers of this view.")] = None,
    population: Annotated[str | None, typer.Option(help="all, length:NAME, or one that the experiment names.")] = None,
    metric: Annotated[str, typer.Option(help="Any stored metric.")] = HEADLINE,
    evidence: Annotated[bool, typer.Option("--evidence", help="Also what the packets of both sides held.")] = False,
    form: Annotated[Format | None, typer.Option("--format", help="To be published; CSV holds the contrasts alone.")] = None,
    as_json: Json = False,
) -> None:
    """Set two views of a scored reader side by side, question by question. Opens no label, writes nothing."""
    from eval.analysis.contrasts import ContrastQuery, summary
    from eval.analysis.scored import open_scored
    from eval.console.contrasts import contrast as print_contrast
    from eval.typeset.contrasts import render

    asked = ContrastQuery(a, b, reader, view, population)
    result = summary(open_scored(_published(folder)), asked, metric, evidence=evidence)
    if as_json or form is None:
        _print(as_json, result, lambda console: print_contrast(console, result))
    else:
        print(render(result, form), end="", flush=True)


@app.command()
def pipelines(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what pipelines did: candidates, hops, abstentions, calls; once scored, what each part is worth. Opens no label."""
    from eval.analysis.pipelines import pipelines as diagnose
    from eval.console import pipelines as tables

    result = diagnose(_published(folder), reader)
    _print(as_json, result, lambda console: tables.pipelines(console, result))


@app.command()
def pin(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A hub repository (owner/name), or a local folder.")],
    revision: Annotated[str, typer.Option(help="A branch, tag or commit of the repository.")] = "main",
    write: Annotated[
        Path | None,
        typer.Option(metavar="READER.yaml", help="Fill the pin into this reader, encoder or reranker file; its comments stay."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look a model up and print its pin: commit, fingerprint, licence, and what its chat template does."""
    from eval.console.models import pin as print_pin
    from readers.describe import describe
    from readers.pin_file import reader_that_names, write_pin

    pinned = None if write is None else reader_that_names(model, write)  # before anything is fetched
    result = describe(model, revision, pinned)
    if write is not None:
        write_pin(write, result.model)
        _observer.say("pin", f"written into {write}")
    _print(as_json, result, lambda console: print_pin(console, result))


def _print_error(error: ColdreadError) -> None:
    """Print an error as a JSON object on standard output, unless its reader has gone."""
    try:
        print(json.dumps({"error": str(error), "exit_code": error.exit_code}), flush=True)
    except BrokenPipeError:
        # Otherwise Python flushes again at exit and reports the broken pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line; a ColdreadError becomes one line on standard error (with --json also JSON) and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(standalone_mode=True)
    except ColdreadError as error:
        _observer.console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        if "--json" in sys.argv:
            _print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _observer.console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(StorageError.exit_code)


if __name__ == "__main__":
    main()
