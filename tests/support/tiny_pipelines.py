"""A reader without a model that serves pipelines: it lists by rule, chooses the oldest candidate, and answers with the first.

So extraction and the policy in code are right, and the model as executor and the direct answer are wrong where values compete.
"""

from pathlib import Path

from tiny import SPEAKS, coldread, their_reader, write_experiment, write_rows

PIPELINES = ["direct", "direct_sampled", "sh_conflict", "sh_conflict_llm", "sh_conflict_rerun", "sh_conflict_fallback", "car"]

# What it says, as functions of a class body.
_SAYS = '''
def holds(self, question, record):
    """The answer that a record holds to a question, None if it holds none."""
    for asked, stated in (
        (r"Where does (\\w+) live", r"{0} lives in (\\w+)[.]"),
        (r"river lies (\\w+)", r"{0} lies on the river (\\w+)[.]"),
    ):
        who = self.re.search(asked, question)
        found = who and self.re.search(stated.format(who[1]), record)
        if found:
            return found[1]

def say(self, text):
    user = text.split("<|user|>")[1]
    shown = user.rpartition("Candidates:")[2].rpartition("oldest first:")[2]  # what precedes is an example
    records = self.re.findall(r"^\\[(\\d+)\\] (.*)$", shown, self.re.M)
    question = self.re.findall(r"Question: (.*?)(?:<|$)", user, self.re.M)[-1]
    if "split a question" in text:
        hops = ["Where does Ada live?", "On which river lies {hop_1}?"]
        return self.json.dumps({"hops": hops if "river is the home of Ada" in question else [question]})
    if "Candidates:" in user:
        position, value = min((int(position), value.split(" (record")[0]) for position, value in records)
        return self.json.dumps({"position": position, "value": value})
    found = [(int(position), record, self.holds(question, record)) for position, record in records]
    found = [each for each in found if each[2]]
    if "List all records" in user:
        return self.json.dumps({"candidates": [dict(zip(("position", "record", "value"), each)) for each in found]})
    return found[0][2] if found else "I do not know"
'''
_GENERATE = "from readers.records import Decoding\nreturn self.complete(batch, Decoding(output_cap=64))"


def engine() -> tuple[str, str]:
    """The body of its `generate`, and the rest of its class, for `tiny.write_engine`."""
    return _GENERATE, SPEAKS + _SAYS


def serving_reader(model: Path, **changes: object) -> list[dict[str, object]]:
    """The reader that reads cmc and serves every pipeline."""
    (use,) = their_reader(model, model / "tokenizer.json", output_cap=64)
    return [{**use, "views": ["cmc"], "pipelines": PIPELINES, **changes}]


def make_served_run(folder: Path, model: Path, *more: str, **changes: object) -> Path:
    """A run of both histories, scored; its engine must be installed (conftest's `plugin`)."""
    experiment = write_experiment(folder, model, **{"views": ["cmc"], "readers": serving_reader(model), **changes})
    coldread("run", str(experiment), "--data", str(write_rows(folder)), "--out", str(folder / "run"), *more)
    return folder / "run"
