"""Make a golden run: `python tests/golden/make.py OUT`. For a new format only; an old one is never made again."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tiny import coldread, make_model, write_experiment, write_rows


def main() -> None:
    """Read the hand-made histories with a tiny model, in a folder of its own so that no path of the machine is kept."""
    out = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_model(Path("model"))
        experiment, rows = write_experiment(Path(), Path("model")), write_rows(Path())
        coldread("run", str(experiment), "--data", str(rows), "--out", str(out))


if __name__ == "__main__":
    main()
