"""A model that is none and extracts by rule: real processes and files, no weights."""

import json
from pathlib import Path

from tiny import SPEAKS, coldread, write_experiment, write_rows

# Reads "Ada lives in Rome." and the like as the sentence says; leaves the rest.
RULES = (
    SPEAKS
    + """
def say(self, text):
    user = text.split("<|user|>")[1].split("<|end|>")[0]
    if '"same"' in text:
        town = '"relation": "home town"' in user.split("Known")[0]
        wanted = r'"relation": "home",' if town else "none of these"
        return '{"same": %s}' % self.re.search(rf"^(\\d+): .*{wanted}", user, self.re.M)[1]
    shown = user.rpartition("\\nRecord")[2]
    entries = []
    for line in self.re.findall(r'^{"id": .*}$', shown, self.re.M):
        record = self.json.loads(line)
        found = self.re.fullmatch(r"(\\w+) (lives in|lies on the river) (\\w+)[.]", record["text"])
        facts = []
        if found:
            relation = "river" if "river" in found[2] else "home town" if found[1] == "Carl" else "home"
            facts = [{"subject": found[1], "relation": relation, "object": found[3]}]
        entries.append({"id": record["id"], "status": "facts" if facts else "no_fact", "facts": facts})
    return self.json.dumps({"records": entries})
"""
)


def extractor(model: Path, **changes: object) -> dict[str, object]:
    """The section of an experiment that lets it extract; its engine must be installed (conftest's `plugin`)."""
    reader = {
        "name": "rules",
        "engine": "theirs",
        "model": {"folder": str(model)},
        "options": {"target": str(model / "tokenizer.json")},
    }
    return {"reader": reader, "statements": 2, "wave": 2, "output_cap": 2_048, "input_cap": 24_000, **changes}


def make_run(folder: Path, model: Path, kind: str = "llm", rows: list | None = None, code: int = 0, **changes: object) -> Path:
    """A run of an extraction, up to its packets; `changes` are settings of the extractor. It ends with this exit code."""
    experiment = write_experiment(
        folder, model, views=["cmc"], readers=[], frontend={"kind": kind}, extractor=extractor(model, **changes)
    )
    run = folder / "run"
    rows_at = str(write_rows(folder, rows))
    coldread("run", str(experiment), "--data", rows_at, "--out", str(run), "--until", "freeze", code=code)
    return run


def refuse_engine(folder: Path) -> None:
    """From now on the engine that `plugin` installed in this folder must not be started."""
    code = "def make(start):\n    raise RuntimeError('this engine was not to be started')\n"
    (folder / "site" / "theirs_engine.py").write_text(code)


def statements(run: Path) -> list[dict]:
    """The statements of a run's extraction."""
    return [json.loads(line) for line in (run / "extraction" / "statements.jsonl").read_text().splitlines()]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the one that says what a step took."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != "timings.json"
    }
