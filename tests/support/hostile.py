"""A run whose questions, golds, statements and answers are markup, for the report to show as text."""

import json
from collections.abc import Callable
from pathlib import Path

from tiny import ROWS, coldread, their_reader, write_experiment, write_rows

HOSTILE = ["</script><img src=x onerror=alert(1)>", 'x" onmouseover="alert(1)', "<!--", "{{ 7 * 7 }}"]


def says(*texts: str) -> str:
    """The body of an engine's `generate` that gives these answers in turn, as ids of the tiny tokenizer."""
    return (
        "from tokenizers import Tokenizer\n"
        "tokenizer = Tokenizer.from_file(self.options['target'])\n"
        f"texts = {list(texts)!r}\n"
        "made = []\n"
        "for _ in batch:\n"
        "    self.given = getattr(self, 'given', -1) + 1\n"
        "    ids = tokenizer.encode(texts[self.given % len(texts)], add_special_tokens=False).ids\n"
        "    made.append(Output(ids=tuple(ids), finish_reason='stop'))\n"
        "return made"
    )


# The rest of that engine's class: lists, plans and choices that hold the same texts.
_COMPLETES = f"""
def complete(self, batch, decoding):
    import json, re
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(self.options["target"])
    made = []
    for ids in batch:
        text = tokenizer.decode(list(ids), skip_special_tokens=False)
        at = re.search(r"^\\[(\\d+)\\] <img", text, re.M)
        hostile = {HOSTILE!r}
        listed = [dict(position=int(at[1]), record="<img src=x onerror=alert(1)>", value="</script>")] if at else []
        listed += [dict(position=10 ** 9, record=each, value=each) for each in hostile]
        answer = dict(candidates=listed, hops=[hostile[0], "{{hop_1}} " + hostile[1], hostile[3]], value=hostile[0], position=0)
        wanted = json.loads(decoding.schema or "{{}}").get("required", ())
        said = json.dumps({{name: answer[name] for name in wanted}}) if wanted else hostile[len(ids) % 4]
        made.append(Output(ids=tuple(tokenizer.encode(said, add_special_tokens=False).ids), finish_reason="stop"))
    return made
"""


def hostile_run(folder: Path, model: Path, plugin: Callable[..., Path], **served: object) -> Path:
    """A run whose answers, questions and golds are markup. served: the reader's `pipelines`, if it shall serve some."""
    plugin(says(*HOSTILE), _COMPLETES)
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["text"] = "Where does Ada live?</script><script>alert(1)</script>"
    rows[0]["questions"][0]["answers"] = ["<b>Paris</b>"]
    rows[0]["statements"].append("<img src=x onerror=alert(1)> lives in </script>.")
    (reader,) = their_reader(model, model / "tokenizer.json", output_cap=64)
    path = write_experiment(folder, model, readers=[{**reader, **served}])
    coldread("run", str(path), "--data", str(write_rows(folder, rows)), "--out", str(folder / "run"))
    return folder / "run"
