"""One bounded check of a machine with or without a GPU: certificate, small reader swap, pipelines, throughput.

    python scripts/gpu_check.py MODEL_FOLDER [MODEL_FOLDER ...] [--questions 20] [--minutes 8] [--dtype bfloat16]

Each local model reads the same synthetic packets through vLLM in a real run, which is sealed, scored and replayed. Then it
answers a few questions through two constrained pipelines: every finished answer must be the requested JSON, and the recorded
answers must reproduce calls and traces. Then transformers, one at a time, and vLLM read other packets, for the ratio.
Measurements that exceed the minutes are left out and listed. Prints one table; exit code 1 if anything failed or a model was
not read in time.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import yaml
from calling import make_work, running
from reading import CPU_OPTIONS, Reading, compare, make_packets, read, reader_of
from rich.console import Console
from rich.table import Table

from extract.json_answers import read_object
from offline.errors import ColdreadError
from readers.calls.caller import Caller, Recorded, check_transcript
from readers.transcript import write_transcript

VIEWS = ["cmc", "stale_closure", "fact_bm25"]
_ASKED, _ANSWER_CAP = 4, 512  # questions for the pipelines, tokens of an answer
_WORTH_STARTING = 60  # seconds left, model loading included, below which no measurement starts


class OutOfTimeError(Exception):
    """The minutes are over."""


def has_cuda() -> bool:
    """Whether PyTorch sees a GPU, asked in another process so that this one takes no memory on it."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def coldread(*arguments: str) -> dict[str, Any]:
    """A command's JSON; ColdreadError with its message if it fails."""
    command = [sys.executable, "-P", "-m", "coldread", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            text = process.communicate()[0]
        except BaseException:
            process.kill()  # its reader process dies with it
            raise
    try:
        result: dict[str, Any] = json.loads(text)
    except ValueError:
        result = {"error": f"coldread {arguments[0]} ended with exit code {process.returncode}"}
    if "error" in result:
        raise ColdreadError(str(result["error"]))
    return result


def start_swap(folder: Path, models: list[Path], questions: int, reader: dict[str, Any]) -> tuple[Path, dict[str, Path]]:
    """Write the experiment of all models over the same packets; return its file, and the models by reader name."""
    named = {f"{number}-{model.name}": model for number, model in enumerate(models, 1)}
    experiment = {
        "name": "gpu-check",
        "data": {"kind": "synthetic", "seed": 7, "statements": [455], "questions": questions},
        "frontend": {"kind": "grammar", "grammar": "synthetic"},
        "views": VIEWS,
        "readers": [
            {"use": {"name": name, "engine": "vllm", "model": {"folder": str(model)}, "output_cap": 32, **reader}}
            for name, model in named.items()
        ],
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    return path, named


def certificates(run: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The certificate in the seal of every reader that is sealed."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        path = run / "reads" / name / "seal.json"
        if path.is_file():
            seal = json.loads(path.read_text())
            certificate, same = seal["certificate"], seal["certificate"]["matched"].items()
            found[name] = {
                "device": seal["environments"][0]["device"],
                "same as alone": ", ".join(f"{what} {count} of {certificate['probed'][what]}" for what, count in same),
                "batch invariance": certificate["batch_invariance"],
            }
    return found


def accuracies(run: Path, names: list[str], rows: dict[str, dict[str, Any]]) -> None:
    """Score, replay and compare a run whose readers are all sealed."""
    scores = coldread("score", str(run))["readers"]
    coldread("replay", str(run))
    for name in names:
        right = {view: sum(cell["subem"] for cell in scores[name][view].values()) for view in VIEWS}
        rows[name]["right"] = ", ".join(f"{view} {count}" for view, count in right.items())
    for name in names[1:]:
        cell = coldread("compare", str(run), names[0], name)["views"]["cmc"]["all"]
        win, tie, loss = cell["win_tie_loss"]
        rows[name]["the first against it, cmc"] = f"{win} win, {tie} tie, {loss} loss, p {cell['mcnemar_p']:.3f}"


def pipelines(model: Path, reader: dict[str, Any]) -> dict[str, str]:
    """Answer a few questions through pipelines; ColdreadError for a wrong answer or trace."""
    work = make_work(None, _ASKED, reader_of(model, "vllm", **reader), _ANSWER_CAP)
    with running(work.reader) as engine, engine.caller() as (caller, _), tempfile.TemporaryDirectory() as folder:
        made, transcript = work.run(caller), caller.transcript
        write_transcript(Path(folder), transcript)
        recorded = Recorded(Path(folder))
        again = Caller(engine.settings, engine.tokenizer, recorded, recorded.seeds)
        if work.run(again) != made:
            raise ColdreadError(f"{model.name}: pipelines run again on their recorded answers give other traces")
        check_transcript(recorded, again.transcript)
    ended = [prediction for prediction in transcript.predictions if prediction.finish_reason == "stop"]
    wrong = [prediction.text for prediction in ended if read_object(prediction)[1] is not None]
    if wrong or not ended:
        raise ColdreadError(f"{model.name}: {len(wrong)} of {len(ended)} ended answers are not JSON: {wrong[:1]}")
    return {
        "pipelines": f"{len(made.traces)} traces replay",
        "valid JSON": f"{len(ended)} of {len(transcript.predictions)}, the rest cut off",
    }


def throughput(model: Path, questions: int, reader: dict[str, Any]) -> dict[str, str]:
    """vLLM against transformers one at a time, on the same packets."""
    chosen = make_packets(None, VIEWS, questions)
    plain = {"output_cap": 32, "dtype": reader["dtype"]}
    readings: dict[str, Reading] = {
        "transformers": read(reader_of(model, "transformers", batch_size=1, **plain), chosen),
        "vllm": read(reader_of(model, "vllm", batch_size=reader["batch_size"], options=reader["options"], **plain), chosen),
    }
    one, two = compare(readings)
    return {
        "tokens a second": f"{one['tokens_per_second']:,.0f} to {two['tokens_per_second']:,.0f}",
        "ratio": f"{two['ratio']:.1f}",
        "differing outputs": f"{two['output_differences']} of {len(readings['vllm'].outputs)}",
    }


def main(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL_FOLDER...", exists=True, file_okay=False)],
    questions: Annotated[int, typer.Option(min=4)] = 20,
    minutes: Annotated[float, typer.Option(min=1, max=8)] = 8,
    dtype: Annotated[str, typer.Option(help="auto: bfloat16 on a GPU, float32 without one.")] = "auto",
) -> None:
    """Check this machine with these local models."""
    cuda, end = has_cuda(), time.monotonic() + minutes * 60
    chosen = ("bfloat16" if cuda else "float32") if dtype == "auto" else dtype
    reader: dict[str, Any] = {"dtype": chosen, "batch_size": 256, "options": {} if cuda else CPU_OPTIONS}

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(minutes * 60))
    rows: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="coldread-gpu-check-") as name:
        path, named = start_swap(Path(name), models, questions, reader)
        run = Path(name) / "run"
        try:
            try:
                coldread("run", str(path), "--out", str(run), "--until", "read")
            finally:
                rows = certificates(run, named)
            accuracies(run, list(named), rows)
        except OutOfTimeError:
            notes.append(f"failed: not every model was read within {minutes:g} minutes")
        except ColdreadError as error:
            notes.append(f"failed: {error}")
    measures = {"pipelines": pipelines, "throughput": partial(throughput, questions=max(4, questions // 4))}
    for (reader_name, row), (what, measure) in product(rows.items(), measures.items()):
        model = named[reader_name]
        if end - time.monotonic() < _WORTH_STARTING:
            notes.append(f"{model.name}: {what} left out, no time")
            continue
        try:
            row.update(measure(model, reader=reader))
        except OutOfTimeError:
            notes.append(f"{model.name}: {what} stopped, no time")
        except ColdreadError as error:
            notes.append(f"failed: {error}")
    signal.alarm(0)
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = Table(
        "model", *columns, title=f"{'GPU' if cuda else 'no GPU'}, {chosen}, {questions} questions, {len(VIEWS)} views"
    )
    for model_name, row in rows.items():
        table.add_row(model_name, *(str(row.get(column, "-")) for column in columns))
    console = Console(width=max(160, Console().width))
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False)
    if not rows or any(note.startswith("failed") for note in notes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
