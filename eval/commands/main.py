"""The whole command line: every command, the options before it, and how errors end it."""

import io
import json
import os
import sys
from typing import Annotated

import typer

from eval.commands import results, steps
from eval.commands.shared import OBSERVER
from offline.errors import ColdreadError, StorageError

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
# In the order of `--help`.
COMMANDS = (
    *(steps.run, steps.load, steps.extract, results.catalogue, steps.encode, steps.freeze, steps.read, steps.probe),
    *(steps.score, results.coverage, results.labels, results.replay, results.show, results.compare, results.table),
    *(results.report, results.contrast, results.pipelines, steps.pin),
)
for command in COMMANDS:
    app.command()(command)


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
        OBSERVER.console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        if "--json" in sys.argv:
            _print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        OBSERVER.console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(StorageError.exit_code)
