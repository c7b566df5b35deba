"""Make a golden run: `python tests/golden/make.py OUT`. For a new format only; an old one is never made again."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from tiny import coldread, make_model, write_engine, write_experiment, write_rows
from tiny_extraction import RULES, extractor
from tiny_pipelines import engine, serving_reader

PIPELINES = ["direct_sampled", "sh_conflict", "sh_conflict_llm", "car"]
CHOOSE = "def say(self, text):\n    return self.facts(text) if 'facts' in text or '\"same\"' in text else self.told(text)\n"


def main() -> None:
    """Extract and assemble by rule, in a folder of its own so that no path of the machine is kept."""
    out = Path(sys.argv[1]).resolve()
    generate, says = engine()
    both = RULES.replace("def say(", "def facts(") + says.replace("def say(", "def told(") + CHOOSE
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        model, site = make_model(Path("model"), window=32_768), write_engine(Path(), generate, both)
        os.environ.update(PYTHONPATH=str(site.resolve()), COLDREAD_CALLS=str(Path("calls").resolve()))
        sys.path.insert(0, str(site.resolve()))
        readers = serving_reader(model, pipelines=PIPELINES)
        more = {"frontend": {"kind": "hybrid"}, "extractor": extractor(model, examples=2), "views": ["cmc"], "readers": readers}
        experiment, rows = write_experiment(Path(), model, **more), write_rows(Path())
        coldread("run", str(experiment), "--data", str(rows), "--out", str(out))


if __name__ == "__main__":
    main()
