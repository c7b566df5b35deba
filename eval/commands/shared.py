"""Options, opened runs and output, shared by commands."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from eval.console.progress import Lines
from offline.errors import ConfigurationError
from offline.run.folder import TOKENIZERS

if TYPE_CHECKING:
    from offline.run.opened import OpenRun

R = TypeVar("R")

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]

OBSERVER = Lines(Console(stderr=True))


def open_run(folder: Path, may_lack: frozenset[str] = frozenset()) -> "OpenRun":
    """A run for a command."""
    from offline.run.opened import OpenRun

    return OpenRun(folder, may_lack=may_lack)


def open_published(folder: Path) -> "OpenRun":
    """A run for a command that needs no tokenizer: it may lack the tokenizers' files."""
    return open_run(folder, TOKENIZERS)


def show_result(as_json: bool, result: R, human: Callable[[Console, R], None] | None = None) -> None:
    """Print a result as JSON, or by `human` if given."""
    if as_json:
        from eval.results import as_json as encode

        print(encode(result))
    elif human is not None:
        human(Console(width=max(100, Console().width)), result)  # a wrapped line is better than a truncated number
    sys.stdout.flush()


def check_outside(run: "OpenRun", out: Path, *inputs: Path) -> None:
    """ConfigurationError for an --out inside the run, or on a file that is read."""
    if out.resolve().is_relative_to(run.path.resolve()):
        raise ConfigurationError(f"--out {out} lies in the run, which holds nothing but its steps; choose another place")
    if any(out.resolve() == given.resolve() for given in inputs):
        raise ConfigurationError(f"--out {out} is the file that is read; choose another name")
