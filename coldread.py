"""The front door: the `coldread` command, and runs in Python. Importing it loads nothing else before use."""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

try:
    runpy.run_path(str(Path(__file__).resolve().with_name("offline") / "packages.py"))["bind"]()
except ImportError as error:
    if Path(sys.argv[0]).stem != "coldread":
        raise
    print(f"error: {error}", file=sys.stderr)
    sys.exit(3)

if TYPE_CHECKING:
    from eval.notebook import Run

__all__ = ["main", "open_run", "substring_exact_match"]


def open_run(folder: str | Path) -> "Run":
    """Open a run folder for reading; its content is records and pandas tables (docs/notebook.md)."""
    from eval.notebook import open_run as opened

    return opened(folder)


def substring_exact_match(prediction: str, golds: Sequence[str]) -> bool:
    """The headline metric: is a normalised gold a substring of the normalised prediction? LabelError for an empty gold."""
    from eval.metrics.subem import substring_exact_match as subem

    return subem(prediction, golds)


def main() -> None:
    """Run the command line."""
    from eval.commands.main import main as run

    run()


if __name__ == "__main__":
    main()
