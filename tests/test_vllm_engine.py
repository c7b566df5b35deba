"""vLLM's CPU build, really reading: the embedded model and tiny ones, against the transformers engine."""

import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tiny import coldread, make_model, start_coldread, write_experiment, write_rows

from offline.canonical import encode, read_lines
from offline.config.models import Pin, Reader
from offline.errors import ConfigurationError
from offline.records import Message
from readers.embedded import embedded_folder
from readers.engines import EngineStart
from readers.models.pins import identify
from readers.models.served import Tokenizer
from readers.process.guard import Forbidden
from readers.process.parent import Process
from readers.process.pool import Engines
from readers.records import Decoding, Output, Prediction, Request
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer

pytestmark = pytest.mark.vllm

# Tokens of the longest input, more than two steps have room for.
LONGEST = 1200
OPTIONS: dict[str, Any] = {"enforce_eager": True, "max_num_batched_tokens": 512, "cpu_kv_cache_gib": 1}


def reader(name: str, model: dict[str, str], **changes: Any) -> dict[str, Any]:
    """A vLLM reader for an experiment file."""
    plain = {"name": name, "engine": "vllm", "model": model, "batch_size": 64, "output_cap": 12, "options": OPTIONS}
    return {"use": {**plain, **changes}}


def predictions(run: Path, name: str) -> dict[str, tuple[int, ...]]:
    """Output ids by (view question), which does not depend on the engine's fingerprint as request digests do."""
    folder = run / "reads" / name
    ids = {p.request: p.output_ids for p in read_lines(folder / "predictions.jsonl", Prediction)}
    schedule = [json.loads(line) for line in (folder / "requests" / "schedule.jsonl").read_text().splitlines()]
    return {f"{row['view']} {row['question']}": ids[row["request"]] for row in schedule}


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic history read by the embedded model twice: through transformers and through vLLM."""
    folder = tmp_path_factory.mktemp("swapped")
    embedded = {"embedded": "smollm2-135m-instruct"}
    experiment = write_experiment(
        folder,
        Path("-"),
        data={"kind": "synthetic", "seed": 5, "statements": [50], "questions": 6},
        frontend={"kind": "grammar", "grammar": "synthetic"},
        views=["cmc", "stale_closure", "raw_history"],
        readers=[
            reader("vllm", embedded),
            reader("transformers", embedded, engine="transformers", batch_size=8, options={}, probe=0),
        ],
    )
    coldread("run", str(experiment), "--out", str(folder / "run"))
    return folder / "run"


def test_vllm_and_transformers_give_the_same_token_ids_in_float32(swapped: Path) -> None:
    ours, theirs = predictions(swapped, "vllm"), predictions(swapped, "transformers")
    assert len(ours) == 18
    assert ours == theirs


def test_the_seal_states_what_vllm_resolved_and_what_the_certificate_found(swapped: Path) -> None:
    seal = json.loads((swapped / "reads/vllm/seal.json").read_text())
    (environment,) = seal["environments"]
    longest = max(r.length for r in read_lines(swapped / "reads/vllm/requests/requests.jsonl", Request))
    assert environment["max_model_len"] == str(longest + 12)
    assert environment["attention"] == "CPUAttentionBackend"
    assert environment["dtype"] == "float32"
    assert environment["batch_invariance"] == "not available on this device"
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment["VLLM_BATCH_INVARIANT"] == "0"
    assert seal["certificate"]["sample"] == 8
    assert seal["certificate"]["probed"] == {"batch": 8, "shuffled": 8, "warm": 8, "run": 8}
    assert int(environment["kv_cache_blocks"]) > 0
    assert "certificate" not in json.loads((swapped / "reads/transformers/seal.json").read_text())


def test_what_vllm_read_replays_without_vllm(swapped: Path) -> None:
    links = [link["link"] for link in json.loads(coldread("replay", str(swapped), "--json").stdout)["links"]]
    assert links == ["files", "extraction", "packets", *("inputs", "outputs", "seal") * 2, "scores"]


def test_a_probe_on_demand_finds_the_sealed_outputs_again_and_changes_nothing(swapped: Path) -> None:
    before = {p: p.read_bytes() for p in swapped.rglob("*") if p.is_file()}
    found = json.loads(coldread("probe", str(swapped), "--reader", "vllm", "--sample", "6", "--json").stdout)["certificate"]
    assert found["sample"] == 6
    assert found["matched"] == {"batch": 6, "shuffled": 6, "warm": 6, "run": 6}
    assert {p: p.read_bytes() for p in swapped.rglob("*") if p.is_file()} == before


@pytest.fixture(scope="module")
def vllm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that vLLM takes. Every logit has an equal twin."""
    return make_model(tmp_path_factory.mktemp("vllm") / "model", hidden=128, twins=True)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """One core for each worker: without this vLLM asks for as many memory nodes."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")


@pytest.fixture(scope="module")
def tiny_read(tmp_path_factory: pytest.TempPathFactory, vllm_model: Path) -> Path:
    """Read by the tiny model as it is, with a generation_config.json against it, on two workers, and by transformers."""
    folder = tmp_path_factory.mktemp("tiny")
    # Llama-style: the template writes a BOS and the tokenizer would add one.
    hostile = {"repetition_penalty": 1.5, "temperature": 0.9, "top_k": 5, "do_sample": True, "eos_token_id": 1}
    penalised = Path(shutil.copytree(vllm_model, folder / "penalised"))
    (penalised / "generation_config.json").write_text(json.dumps(hostile))
    plain = {"folder": str(vllm_model)}
    readers = [
        reader("tiny", plain, batch_size=2),
        reader("penalised", {"folder": str(penalised)}, probe=0),
        reader("two", plain, options={**OPTIONS, "tensor_parallel_size": 2}),
        reader("transformers", plain, engine="transformers", options={}, probe=0),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
        experiment = write_experiment(folder, vllm_model, readers=readers)
        coldread("run", str(experiment), "--data", str(write_rows(folder)), "--out", str(folder / "run"))
    assert not orphans()
    return folder / "run"


def orphans() -> list[str]:
    """Workers of vLLM whose parent is none of vLLM's processes; another test's server may be running."""
    found = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if "VLLM" in _text(path)]
    parents = {path: _text(path / "stat").rpartition(")")[2].split()[1:2] for path in found}
    return [path.name for path, parent in parents.items() if parent and "vllm" not in _command(parent[0]).lower()]


def _command(process: str) -> str:
    return _text(Path("/proc") / process / "cmdline")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has just ended
        return ""


def test_generation_config_cannot_reach_a_greedy_reader_and_ties_go_to_the_first_token(tiny_read: Path) -> None:
    made = predictions(tiny_read, "tiny")
    assert made == predictions(tiny_read, "penalised") == predictions(tiny_read, "transformers")
    assert all(token % 2 == 0 for ids in made.values() for token in ids)


def test_a_model_on_two_workers_gives_the_ids_of_one_and_leaves_no_process(tiny_read: Path) -> None:
    assert predictions(tiny_read, "tiny") == predictions(tiny_read, "two")
    (environment,) = json.loads((tiny_read / "reads/two/seal.json").read_text())["environments"]
    assert environment["tensor_parallel_size"] == "2"
    assert environment["attention"] == "CPUAttentionBackend"


@pytest.mark.usefixtures("two_cores")
def test_a_killed_engine_resumes_to_the_predictions_of_an_undisturbed_run(tmp_path: Path, tiny_read: Path) -> None:
    run, made = tmp_path / "killed", tiny_read.parent
    data = ("--data", str(made / "rows.jsonl"))
    coldread("run", str(made / "experiment.yaml"), *data, "--out", str(run), "--until", "freeze")
    command = start_coldread("read", str(run), "--reader", "tiny")
    journal = run / "reads/tiny/journal.jsonl"
    while not journal.exists():
        assert command.poll() is None, command.communicate()
        time.sleep(0.01)
    os.kill(_engine_of(command.pid), signal.SIGKILL)
    assert command.wait() == 8
    assert "killed by signal 9" in command.communicate()[1]
    assert journal.exists()
    coldread("read", str(run), "--reader", "tiny")
    for file in ("predictions.jsonl", "seal.json", "probes.jsonl"):
        assert (run / "reads/tiny" / file).read_bytes() == (tiny_read / "reads/tiny" / file).read_bytes()


def _engine_of(parent: int) -> int:
    """The reader process that a coldread process started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(int(pid) for pid in children if "readers.process.worker" in Path(f"/proc/{pid}/cmdline").read_text())


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"options": {**OPTIONS, "batch_invariant": True}}, 3, "compute capability 8.0"),
        ({"device": "cuda"}, 3, "a build for cpu"),
        ({"options": {**OPTIONS, "gpu_memory_utilization": "lots"}}, 3, "no share between 0 and 1"),
        ({"attention": "no_such_backend"}, 6, "NO_SUCH_BACKEND"),
        ({"options": {**OPTIONS, "cpu_kv_cache_gib": 1_000_000}}, 8, "too little memory"),
    ],
)
def test_a_reader_that_vllm_cannot_serve_is_one_clear_error(
    tmp_path: Path, vllm_model: Path, changes: dict[str, Any], code: int, words: str
) -> None:
    experiment = write_experiment(tmp_path, vllm_model, readers=[reader("tiny", {"folder": str(vllm_model)}, **changes)])
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run")]
    message = coldread(*command, code=code).stderr
    assert words in message
    assert "Traceback" not in message


SCHEMA = {
    "type": "object",
    "properties": {
        "statements": {
            "type": "array",
            "prefixItems": [
                {
                    "type": "object",
                    "properties": {
                        "id": {"const": i},
                        "kind": {"enum": ["home", "river"]},
                        "object": {"type": "string", "maxLength": 12},
                    },
                    "required": ["id", "kind", "object"],
                    "additionalProperties": False,
                }
                for i in (7, 3)
            ],
            "items": False,
            "minItems": 2,
            "maxItems": 2,
        }
    },
    "required": ["statements"],
    "additionalProperties": False,
}
ASKED = ("Ada lives in Rome. Rome lies on the river Tiber.", "Name a city.", "What is two plus two?")


@dataclass(frozen=True)
class Asked:
    """A running engine that can hold answers to schemas, and three chats as ids."""

    process: Process
    tokenizer: Tokenizer
    inputs: list[list[int]]

    def complete(self, decoding: Decoding) -> tuple[Output, ...]:
        self.process.send(self.inputs, decoding=decoding)
        return self.process.receive()


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    """An engine for the embedded model, started."""
    folder = embedded_folder("smollm2-135m-instruct")
    read_by = Reader(name="asked", engine="vllm", model=Pin(folder=str(folder)), output_cap=80, options=OPTIONS)
    tokenizer = ChatTokenizer.of(read_by, folder)
    inputs = [tokenizer.encode([Message(role="user", content=text)]) for text in ASKED]
    settings = make_settings(read_by, identify(read_by, folder), tokenizer)
    start = EngineStart(settings=settings, model_folder=str(folder), longest=LONGEST, structured=True)
    with Engines(start, Forbidden(folders=())).run() as (process,):
        yield Asked(process, tokenizer, inputs)


def test_an_answer_held_to_a_schema_is_compact_json_that_obeys_it_and_ends_with_a_stop_id(asked: Asked) -> None:
    # No JSON ends by itself: what stands behind the last brace is a stop id, the only thing that the grammar allows there.
    for output in asked.complete(Decoding(output_cap=80, schema=encode(SCHEMA).decode())):
        text = asked.tokenizer.decode(output.ids)
        statements = json.loads(text)["statements"]
        assert [statement["id"] for statement in statements] == [7, 3]
        assert all(set(statement) == {"id", "kind", "object"} for statement in statements)
        assert all(statement["kind"] in ("home", "river") and len(statement["object"]) <= 12 for statement in statements)
        assert "\n" not in text
        assert text.startswith('{"statements":[{"id":7,')
        assert output.finish_reason == "stop"
        assert output.ids[-1] in asked.tokenizer.stop_ids()


def test_free_decoding_is_what_reads_get_and_the_cap_is_the_calls_own(asked: Asked) -> None:
    read = asked.process.generate(asked.inputs)
    assert asked.complete(Decoding(output_cap=80)) == read
    assert asked.complete(Decoding(output_cap=80, seed=9)) == read
    assert any(len(output.ids) > 5 for output in read)
    for short, full in zip(asked.complete(Decoding(output_cap=5)), read, strict=True):
        assert short.ids == full.ids[:5]
        assert short.finish_reason == ("length" if len(full.ids) > 5 else "stop")


def test_one_seed_samples_the_same_again_and_another_something_else(asked: Asked) -> None:
    def sampled(seed: int) -> tuple[Output, ...]:
        return asked.complete(Decoding(output_cap=20, temperature="1.5", seed=seed))

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)
    assert sampled(1) != asked.complete(Decoding(output_cap=20))


def test_different_inputs_draw_independently(asked: Asked) -> None:
    # Alike as they are, one noise for all would let most of them begin with the same token.
    alike = [asked.tokenizer.encode([Message(role="user", content=f"Name any word. ({i})")]) for i in range(40)]
    many = dataclasses.replace(asked, inputs=[*alike, alike[0]])
    *drawn, again = many.complete(Decoding(output_cap=1, temperature="2", seed=7))
    assert again == drawn[0]
    assert len({output.ids for output in drawn}) > 10


def test_inputs_that_no_step_has_room_for_sample_the_same_alone_and_together(asked: Asked) -> None:
    long = [[*ids] * (LONGEST // len(ids)) for ids in asked.inputs]
    assert all(len(ids) > OPTIONS["max_num_batched_tokens"] for ids in long)
    decoding = Decoding(output_cap=8, temperature="1.5", seed=3)

    def sampled(*batch: list[int]) -> list[Output]:
        return list(dataclasses.replace(asked, inputs=list(batch)).complete(decoding))

    together = sampled(*long)
    assert [output for ids in long for output in sampled(ids)] == together
    assert sampled(*asked.inputs[::-1], *long) == [*sampled(*asked.inputs[::-1]), *together]


def test_what_holds_answers_to_a_schema_is_stated_with_its_version(asked: Asked) -> None:
    assert asked.process.environment["structured_outputs"] == f"xgrammar {version('xgrammar')}"


def test_a_schema_that_the_backend_does_not_take_is_one_clear_error(asked: Asked) -> None:
    """The last one: it ends the engine."""
    decoding = Decoding(output_cap=5, schema=encode({"type": "integer", "multipleOf": 7}).decode())
    with pytest.raises(ConfigurationError, match="xgrammar cannot hold answers to this JSON Schema"):
        asked.complete(decoding)
