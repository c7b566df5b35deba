"""Commands that make a run: its steps, one by one or all."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eval.commands.shared import OBSERVER, Json, RunArgument, check_outside, open_published, open_run, show_result
from offline.canonical import write_bytes
from offline.errors import CommandError

if TYPE_CHECKING:
    from offline.run.opened import OpenRun

Data = Annotated[Path | None, typer.Option(help="Raw rows: a .json, .jsonl or .parquet file (else the hub).")]
Limit = Annotated[int | None, typer.Option(help="Questions of each row, at most; part of the configuration.")]


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
        estimate = estimates.dry_run(plan, estimates.Rates(input_rate, output_rate), OBSERVER)
        show_result(as_json, estimate, print_estimate)
        return
    folder = open_run(out or steps.default_out(plan.experiment))
    with OBSERVER.bars() as observer:
        steps.run_all(folder, plan, until, observer)
    if until != "score" or not plan.experiment.readers:
        show_result(as_json, {"run": str(folder.path)})
    else:
        summary = score_summary(folder)
        show_result(as_json, summary, print_scores)
        OBSERVER.say("done", f"{folder.path}: audit it with `coldread replay {shlex.quote(str(folder.path))}`")


def load(
    folder: RunArgument,
    experiment: Annotated[str | None, typer.Option(help="Start the run with this experiment.")] = None,
    data: Data = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Write histories and questions, and the labels apart from them."""
    from eval import run as steps

    place = open_run(folder)
    if experiment is not None:
        steps.start(place, steps.make_plan(experiment, data, limit), OBSERVER)
    elif limit is not None:
        raise CommandError("--limit is part of the configuration; give it together with --experiment")
    else:
        with place.lock():
            steps.load(place, data, OBSERVER)
    show_result(as_json, steps.StepDone(str(folder), "load"))


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

    place = open_run(folder)
    if against is not None:
        _extract_against(place, against, gold, as_json)
        return
    if gold:
        raise CommandError("--gold goes with --against REFERENCE")
    with place.lock(), OBSERVER.bars() as observer:
        steps.extract(place, observer)
    show_result(as_json, steps.StepDone(str(folder), "extract"))


def _extract_against(place: "OpenRun", against: str, gold: bool, as_json: bool) -> None:
    from eval.console import extraction as tables
    from eval.extraction.against import compare_extractions, find_reference
    from eval.labels import open_labels

    with place.lock():
        place.fresh("extraction")
        reference = find_reference(place, against)
        golds = open_labels(place, "extract --against") if gold else None
        result = compare_extractions(place, reference, golds)
    show_result(as_json, result, tables.quality)


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
    place = open_run(folder)
    with place.lock(), OBSERVER.bars() as observer:
        if check:
            found = recheck(place, batch_size, observer)
            show_result(as_json, found, print_recheck)
        else:
            steps.encode(place, observer)
            if model_work(place.experiment) == ModelWork():
                observer.say("encode", "nothing to do: no view of this run needs an embedding model or a reranker")
            show_result(as_json, steps.StepDone(str(folder), "encode"))


def freeze(
    folder: RunArgument,
    check: Annotated[bool, typer.Option("--check", help="Derive the packets again and compare byte for byte.")] = False,
    as_json: Json = False,
) -> None:
    """Freeze the packets of every view."""
    from eval import run as steps
    from eval.replay import check_packets
    from readers.read import make_measure

    place = open_run(folder)
    done = steps.StepDone(str(folder), "freeze")
    if check:
        done = msgspec.structs.replace(done, packets_identical=check_packets(place, make_measure(place)[0]))
        OBSERVER.say("freeze", f"{done.packets_identical} packets derived again, all identical")
    else:
        with place.lock():
            steps.freeze(place, OBSERVER)
    show_result(as_json, done)


def read(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="Only this reader.")] = None,
    as_json: Json = False,
) -> None:
    """Let the readers read their packets and seal what they said; resumes an interrupted read."""
    from eval import run as steps
    from readers.seal import read_seal

    place = open_run(folder)
    with place.lock(), OBSERVER.bars() as observer:
        steps.read_all(place, reader, observer)
    seals = {name: read_seal(place, name).root for name in place.sealed_readers()}
    show_result(as_json, steps.StepDone(str(folder), "read", seals=seals))


def probe(
    folder: RunArgument,
    reader: Annotated[str | None, typer.Option(help="The reader (default: the experiment's first).")] = None,
    sample: Annotated[int, typer.Option(help="Requests to sample.")] = 32,
    as_json: Json = False,
) -> None:
    """Measure whether outputs depend on batch, order or a warm cache; on a sealed run, also whether they are reproduced."""
    from eval import run as steps
    from eval.console.models import certificate as print_certificate

    place = open_run(folder)
    with place.lock():
        experiment = place.experiment
        name = reader or next((plan.reader.name for plan in experiment.readers), "")
        result = steps.probe(place, name, sample)
    show_result(as_json, result, print_certificate)


def score(
    folder: RunArgument,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score these instead, unsealed: .json, .jsonl or .csv, also .gz.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="With --predictions: what to call them (default: the file's name).")] = None,
    id_field: Annotated[str | None, typer.Option(help="Likewise: the field with the question id (default: question).")] = None,
    text_field: Annotated[str | None, typer.Option(help="Likewise: the field with the answer (default: text).")] = None,
    by: Annotated[str | None, typer.Option(metavar="FIELD", help="Likewise: score by each value of this field.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Likewise: every verdict, outside the run.")] = None,
    as_json: Json = False,
) -> None:
    """Open the labels and score sealed predictions, or those of a file. Refuses an unsealed or altered run."""
    from eval.analysis.summary import score_summary
    from eval.console.scores import scores as print_scores
    from eval.score import score_run

    place = open_published(folder)
    if predictions is not None:
        _score_others(place, predictions, name, (id_field, text_field, by), out, as_json)
        return
    if any(option is not None for option in (name, id_field, text_field, by, out)):
        raise CommandError("--name, --id-field, --text-field, --by and --out go with --predictions FILE")
    with place.lock():
        score_run(place)
    summary = score_summary(place)
    show_result(as_json, summary, print_scores)


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
        check_outside(place, out, file)
    given = read_answers(file, Fields(fields[0] or Fields.id, fields[1] or Fields.text, fields[2]))
    with place.lock():
        result = score_answers(place, given, name or file.name)
    if out is not None:
        write_bytes(out, [encode(result).encode()])
    show_result(as_json, msgspec.structs.replace(result, items=msgspec.UNSET), tables.unsealed)


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
        OBSERVER.say("pin", f"written into {write}")
    show_result(as_json, result, print_pin)
