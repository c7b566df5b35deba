"""One bounded check of a machine with a GPU (or without one): certificate, throughput and a small reader swap.

    python scripts/gpu_check.py MODEL_FOLDER [MODEL_FOLDER ...] [--questions 20] [--minutes 8] [--dtype bfloat16]

Each local model reads the same synthetic packets through vLLM in a real run, which is sealed, scored and replayed; then a part
of the packets is read by transformers one at a time and by vLLM, for the ratio. What does not fit into the minutes is left
out and said to be. One table at the end, and exit code 1 if anything that ran has failed.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import yaml
from reading import CPU_OPTIONS, Reading, compare, make_packets, read, reader_of
from rich.console import Console
from rich.table import Table

from offline.errors import ColdreadError

VIEWS = ["cmc", "stale_closure", "fact_bm25"]
# Seconds that a measurement needs at least, model loading included; below that it is not begun.
_WORTH_STARTING = 60


class OutOfTimeError(Exception):
    """The minutes are over."""


def has_cuda() -> bool:
    """Whether PyTorch sees a GPU, asked in another process so that this one holds no memory on it."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def coldread(*arguments: str) -> dict[str, Any]:
    """A command's JSON; its error is raised with its own words."""
    command = [sys.executable, "-P", "-m", "coldread", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            result: dict[str, Any] = json.loads(process.communicate()[0] or "{}")
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
    if process.returncode:
        raise ColdreadError(str(result.get("error", f"coldread {arguments[0]} ended with {process.returncode}")))
    return result


def swap(folder: Path, models: list[Path], questions: int, reader: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A real run of all models over the same packets, replayed; certificate and accuracies by model."""
    names = [f"{number}-{model.name}" for number, model in enumerate(models, 1)]
    experiment = {
        "name": "gpu-check",
        "data": {"kind": "synthetic", "seed": 7, "statements": [455], "questions": questions},
        "frontend": {"kind": "grammar", "grammar": "synthetic"},
        "views": VIEWS,
        "readers": [
            {"use": {"name": name, "engine": "vllm", "model": {"folder": str(model)}, "output_cap": 32, **reader}}
            for name, model in zip(names, models, strict=True)
        ],
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment))
    run = folder / "run"
    cells = coldread("run", str(path), "--out", str(run))["cells"]
    coldread("replay", str(run))
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        seal = json.loads((run / "reads" / name / "seal.json").read_text())
        right = {view: sum(c["correct"]["subem"] for c in cells if (c["reader"], c["view"]) == (name, view)) for view in VIEWS}
        certificate = seal["certificate"]
        found[name] = {
            "certificate": ", ".join(f"{same} {what}" for what, same in certificate["matched"].items()),
            "of": certificate["sample"],
            "invariance": certificate["batch_invariance"],
            "right": ", ".join(f"{count} {view}" for view, count in right.items()),
            "device": seal["environments"][0]["device"],
        }
    if len(names) > 1:
        cell = coldread("compare", str(run), names[0], names[1])["views"]["cmc"]["all"]
        win, tie, loss = cell["win_tie_loss"]
        found[names[1]]["the first against it, cmc"] = f"{win} win, {tie} tie, {loss} loss, p {cell['mcnemar_p']:.3f}"
    return found


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
    failed = False
    try:
        with tempfile.TemporaryDirectory(prefix="coldread-gpu-check-") as name:
            rows = swap(Path(name), models, questions, reader)
        for model, row in zip(models, rows.values(), strict=True):
            if end - time.monotonic() < _WORTH_STARTING:
                notes.append(f"{model.name}: throughput left out, no time")
                continue
            row.update(throughput(model, max(4, questions // 4), reader))
    except OutOfTimeError:
        notes.append(f"stopped after {minutes:g} minutes; the rest was left out")
    except ColdreadError as error:
        notes.append(f"failed: {error}")
        failed = True
    finally:
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
    if failed or not rows:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
