"""Tiny real parts: a byte-level tokenizer, model folders with and without weights, and runs that are read in no time."""

import contextlib
import io
import json
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from coldread import main

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SWITCHED_TEMPLATE = TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
STUCK_TEMPLATE = TEMPLATE + "<think>"
# As Llama 3.2's: the library lends templates a clock.
CLOCK_TEMPLATE = "{{ bos_token }}{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}" + TEMPLATE[15:]
SPECIALS = ["<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<pad>"]


def make_tokenizer(folder: Path, *, template: str = TEMPLATE) -> None:
    """Every byte is a token; a BOS that the tokenizer also adds by itself, as Llama's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.add_special_tokens(SPECIALS)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<|end|>", pad_token="<pad>")
    fast.chat_template = template
    fast.save_pretrained(folder)


def make_folder(
    folder: Path, *, template: str = TEMPLATE, window: int = 4096, generation: dict[str, object] | None = None
) -> Path:
    """A model folder whose weights are none: all that reading takes but for an engine that computes with them.

    `generation` becomes its generation_config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder, template=template)
    config = {
        **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "float32", "vocab_size": len(SPECIALS) + 256},
        **{"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1},
        **{"max_position_embeddings": window, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 5},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def make_model(
    folder: Path,
    *,
    template: str = TEMPLATE,
    window: int = 4096,
    hidden: int = 32,
    twins: bool = False,
    generation: dict[str, object] | None = None,
) -> Path:
    """The same with random weights, 60,000 at `hidden` 32 (vLLM wants 128: heads of 32).

    `twins`: the logits of token 2i and 2i+1 are always equal.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    make_folder(folder, template=template, window=window)
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(SPECIALS) + 256,
        hidden_size=hidden,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=5,
        initializer_range=0.4,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    if twins:
        with torch.no_grad():
            model.lm_head.weight[1::2] = model.lm_head.weight[::2]
    model.generation_config.pad_token_id = None
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def naive_greedy(folder: Path, ids: list[int], cap: int, stop: set[int]) -> list[int]:
    """The whole forward pass again for every token, no cache, no batch, largest logit, first of equals."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    out: list[int] = []
    while len(out) < cap and not (out and out[-1] in stop):
        with torch.no_grad():
            logits = model(torch.tensor([ids + out])).logits[0, -1].tolist()
        out.append(logits.index(max(logits)))
    return out


GRAMMAR = """\
name: homes
relations:
  home: ["{subject} lives in {object}."]
  river: ["{subject} lies on the river {object}."]
"""

# Ada moves, so her river changes; both histories have a question "0".
ROWS = [
    {
        "history": "ada",
        "statements": [
            "Ada lives in Rome.",
            "Rome lies on the river Tiber.",
            "Paris lies on the river Seine.",
            "Bob lives in Rome.",
            "Ada lives in Paris.",
        ],
        "questions": [
            {"id": "0", "text": "Where does Ada live?", "hops": 1, "answers": ["Paris"]},
            {"id": "1", "text": "On which river is the home of Ada?", "hops": 2, "answers": ["Seine", "La Seine"]},
            {"id": "2", "text": "Where does Bob live?", "hops": 1, "answers": ["Rome"]},
        ],
    },
    {
        "history": "carl",
        "statements": ["Carl lives in Oslo.", "Carl lives in Bergen.", "It is late."],
        "questions": [
            {"id": "0", "text": "Where does Carl live?", "hops": 1, "answers": ["Bergen"]},
            {"id": "1", "text": "Who is nobody here?", "hops": 1, "answers": ["No one at all"]},
        ],
    },
]
VIEWS = ["cmc", "stale_closure", "raw_history", "closed_book"]


def write_rows(folder: Path, rows: list[dict[str, object]] | None = None) -> Path:
    """The plain rows as a file."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROWS if rows is None else rows)))
    return path


def write_experiment(folder: Path, model: Path, **changes: object) -> Path:
    """An experiment over the plain rows with one reader that needs no weights; `changes` replace top-level keys."""
    (folder / "homes.yaml").write_text(GRAMMAR)
    reader = {"name": "tiny", "engine": "digest", "model": {"folder": str(model)}, "batch_size": 2, "output_cap": 12}
    experiment = {
        "name": "homes",
        "data": {"kind": "plain"},
        "frontend": {"kind": "grammar", "grammar": str(folder / "homes.yaml")},
        "views": VIEWS,
        "readers": [{"use": reader}],
        **changes,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(experiment, sort_keys=False))
    return path


@dataclass(frozen=True)
class Ended:
    """What a command printed."""

    stdout: str
    stderr: str


def coldread(*arguments: str, code: int = 0) -> Ended:
    """Run the command line in this process, as its console script does; fails unless it ends with `code`.

    Reader processes are real ones all the same.
    """
    out, errors, ended = io.StringIO(), io.StringIO(), 0
    given, sys.argv = sys.argv, ["coldread", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as exit_request:
        ended = int(exit_request.code or 0)
    finally:
        sys.argv = given
    assert ended == code, f"exit code {ended}, expected {code}\n{out.getvalue()}\n{errors.getvalue()}"
    return Ended(out.getvalue(), errors.getvalue())


def start_coldread(*arguments: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start the command line in a process of its own, to be killed or watched; in this environment, if one is given."""
    command = [sys.executable, "-P", "-m", "coldread", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def alive(pid: int) -> bool:
    """Whether a process is still there; one that was just killed is given a moment to go."""
    status = Path(f"/proc/{pid}/status")
    for _ in range(100):
        try:
            if "State:\tZ" in status.read_text():
                return False
        except OSError:
            return False
        time.sleep(0.05)
    return True


def children(pid: int) -> list[int]:
    """The processes that a process started and that have not ended; none of one that is gone itself."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def frozen_run(folder: Path, model: Path, **changes: object) -> Path:
    """A run frozen and not yet read."""
    run = folder / "run"
    experiment = str(write_experiment(folder, model, **changes))
    coldread("run", experiment, "--data", str(write_rows(folder)), "--out", str(run), "--until", "freeze")
    return run


# The body of an engine's `generate` that answers every input alike.
ANSWER = "return [Output(ids=(80,), finish_reason='stop') for _ in batch]"


def write_engine(folder: Path, body: str, more: str = "") -> Path:
    """A third party's package with an engine called `theirs`: the body of its `generate`, and more of its class."""
    site = folder / "site"
    info = site / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coldread.engines]\ntheirs = theirs_engine:make\n")
    (site / "theirs_engine.py").write_text(
        "import os, subprocess, sys, time\nfrom pathlib import Path\nfrom readers.records import Output\n\n"
        "class Engine:\n"
        "    def __init__(self, start):\n        self.options = start.settings.reader.options\n        self.prepare()\n"
        "    def prepare(self):\n        pass\n"
        "    def environment(self):\n        return {'engine': 'theirs'}\n"
        "    def generate(self, batch):\n" + textwrap.indent(body, " " * 8) + "\n" + textwrap.indent(more, " " * 4) + "\n"
        "def make(start):\n    return Engine(start)\n"
    )
    return site


# An engine that answers by rule, as functions of a class body; `say(self, text)`, from a chat to its answer, is left to others.
# `self.options["target"]` names the tokenizer's file.
SPEAKS = """
def prepare(self):
    import json, re
    from tokenizers import Tokenizer
    self.json, self.re = json, re
    self.tokenizer = Tokenizer.from_file(self.options["target"])

def complete(self, batch, decoding):
    made = []
    for ids in batch:
        text = self.say(self.tokenizer.decode(list(ids), skip_special_tokens=False))
        out = self.tokenizer.encode(text, add_special_tokens=False).ids[: decoding.output_cap]
        made.append(Output(ids=tuple(out), finish_reason="length" if len(out) == decoding.output_cap else "stop"))
    return made
"""


def their_reader(model: Path, target: Path, **changes: object) -> list[dict[str, object]]:
    """A reader with the engine of `write_engine`."""
    reader = {"name": "tiny", "engine": "theirs", "model": {"folder": str(model)}, "options": {"target": str(target)}}
    return [{"use": {**reader, **changes}}]
