"""Extraction by a model as a step of a run: real processes, real files, an engine that answers by rule."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny import ROWS, coldread, make_folder, write_experiment, write_rows
from tiny_extraction import RULES, bytes_of, extractor, make_run, refuse_engine, statements
from watcher import Watcher

from extract.step import CALLS, read_drafts
from offline.canonical import encode, read_record, write_record
from offline.config.yaml import configs_folder
from offline.errors import AlteredError, ExtractionLinkError, InputLinkError, OutputLinkError
from offline.run.manifest import Manifest, files_below, make_manifest
from offline.run.opened import OpenRun
from readers.tokens.chat import ChatTokenizer
from readers.transcript import read_transcript


@pytest.fixture
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose window holds the prompts, a byte a token."""
    return make_folder(tmp_path_factory.mktemp("wide"), window=32_768)


Plugin = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path, wide_model: Path, plugin: Plugin) -> Path:
    plugin("return []", RULES)
    return make_run(tmp_path, wide_model)


def test_a_models_facts_make_the_graph(made: Path):
    found = {s["text"]: [(t["subject"], t["relation"], t["object"]) for t in s["triples"]] for s in statements(made)}
    assert found["Ada lives in Paris."] == [("Ada", "home", "Paris")]
    assert found["Carl lives in Bergen."] == [("Carl", "home", "Bergen")]  # read as `home town`, mapped to `home`
    assert found["It is late."] == []
    texts = (made / "packets" / "evidence.jsonl").read_text()
    shown = {json.loads(line)["text"] for line in texts.splitlines()}
    assert any("Ada lives in Paris." in text and "Seine" in text and "Rome" not in text for text in shown)


def test_extracting_again_changes_nothing_and_starts_no_engine(made: Path, tmp_path: Path):
    before = bytes_of(made)
    refuse_engine(tmp_path)
    assert "up to date" in coldread("extract", str(made)).stderr
    assert bytes_of(made) == before


def test_another_run_of_the_same_statements_is_answered_from_the_cache(made: Path, tmp_path: Path, wide_model: Path):
    refuse_engine(tmp_path)
    (tmp_path / "second").mkdir()
    again = make_run(tmp_path / "second", wide_model)
    assert bytes_of(again / "extraction") == bytes_of(made / "extraction")


@pytest.mark.parametrize("kind", ["llm", "hybrid"])
def test_no_question_and_no_label_reaches_a_call(kind: str, tmp_path: Path, wide_model: Path, plugin: Plugin):
    """Questions and answers hold words that occur nowhere else; and with other questions every byte is the same."""
    plugin("return []", RULES)
    runs = []
    for number, word in enumerate(("XYLOPHONE", "QUAGMIRE")):
        rows = json.loads(json.dumps(ROWS))
        for row in rows:
            for question in row["questions"]:
                question["text"] += f" {word} question"
                question["answers"] = [f"{word} answer", *question["answers"]]
        (tmp_path / str(number)).mkdir()
        runs.append(make_run(tmp_path / str(number), wide_model, kind, rows))
    one, two = (bytes_of(run / "extraction") for run in runs)
    assert {name: data for name, data in one.items() if name != "manifest.json"} == {
        name: data for name, data in two.items() if name != "manifest.json"
    }
    folder = runs[0] / "extraction"
    tokenizer = ChatTokenizer(folder / "tokenizer")
    sent = [tokenizer.decode(ids) for ids in read_transcript(folder / CALLS).ids]
    assert len(sent) > 3
    assert not any(word in text or "Where does" in text for word in ("XYLOPHONE", "QUAGMIRE") for text in sent)
    assert any("Ada lives in Rome." in text for text in sent)


@pytest.mark.parametrize("kind", ["llm", "hybrid"])
def test_replay_runs_the_frontend_again_on_its_recorded_answers(kind: str, tmp_path: Path, wide_model: Path, plugin: Plugin):
    plugin("return []", RULES)
    run = make_run(tmp_path, wide_model, kind)
    refuse_engine(tmp_path)
    from eval.replay import _extract_again

    folder = OpenRun(run)
    extracted, calls = _extract_again(folder)
    assert calls == len(read_transcript(run / "extraction" / CALLS).calls) > 3
    assert extracted.drafts == read_drafts(run / "extraction")


@pytest.mark.parametrize("kind", ["llm", "hybrid"])
def test_an_edited_catalogue_needs_the_runs_own_calls_and_no_engine_cache_or_model(
    kind: str, tmp_path: Path, wide_model: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
):
    plugin("return []", RULES)
    folder = make_run(tmp_path, wide_model, kind) / "extraction"
    before, took = bytes_of(folder), (folder / "timings.json").read_bytes()
    refuse_engine(tmp_path)
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "moved"))
    shutil.rmtree(wide_model)
    (tmp_path / "mine.yaml").write_text("relations: {residence: [home], town: [home town]}")
    make_run(tmp_path, wide_model, kind, catalogue="mine.yaml")
    after = bytes_of(folder)
    assert {t["relation"] for s in statements(folder.parent) for t in s["triples"]} == {"residence", "town", "river"}
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"statements.jsonl", "relations.jsonl", "manifest.json"}
    assert (folder / "timings.json").read_bytes() == took
    assert not (tmp_path / "moved").exists()
    assert _extract_and_compare(OpenRun(folder.parent))  # the edited extraction replays


def test_a_call_that_failed_is_not_made_again_for_an_edit(tmp_path: Path, wide_model: Path, plugin: Plugin):
    late = "if 'It is late.' in self.tokenizer.decode(list(batch[-1])):"
    fails = "    made[-1] = Output(ids=(), finish_reason='error', error='a hiccup')\n    return made\n"
    whole = "    return made\n"
    assert RULES.count(whole) == 1
    plugin("return []", RULES.replace(whole, f"    {late}\n    {fails}{whole}"))
    run = make_run(tmp_path, wide_model)
    status = {s["text"]: (s["status"], s["reason"]) for s in statements(run)}
    assert status["It is late."] == ("unresolved", "no valid answer: a hiccup")
    shutil.rmtree(tmp_path / "site")
    plugin("return []", RULES)  # it would answer now
    (tmp_path / "mine.yaml").write_text("relations: {residence: [home]}")
    make_run(tmp_path, wide_model, catalogue="mine.yaml")
    assert {s["text"]: (s["status"], s["reason"]) for s in statements(run)} == status


@pytest.mark.parametrize(
    "changes", [{"statements": 3}, {"align": False, "wave": 1}, {"output_cap": 2_000}, {"prompt": "other.yaml"}, {"model": 1}]
)
def test_more_than_an_edited_catalogue_is_asked_anew(
    changes: dict, made: Path, tmp_path: Path, wide_model: Path, monkeypatch: pytest.MonkeyPatch
):
    """The recorded calls would not be those that the step states."""
    refuse_engine(tmp_path)
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "moved"))
    (tmp_path / "mine.yaml").write_text("relations: {residence: [home]}")
    prompt = yaml.safe_load((configs_folder() / "prompts" / "extract.yaml").read_text())
    prompt["extract"]["system"] += " Take your time."
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(prompt))
    before = bytes_of(made / "extraction")
    if changes.pop("model", None):
        with (wide_model / "config.json").open("a") as stream:
            stream.write(" ")
    make_run(tmp_path, wide_model, code=8, catalogue="mine.yaml", **changes)
    assert bytes_of(made / "extraction") == before


def test_an_llm_frontend_without_a_model_and_a_grammar_with_one_are_refused(tmp_path: Path, wide_model: Path):
    rows = str(write_rows(tmp_path))
    experiment = write_experiment(tmp_path, wide_model, readers=[], frontend={"kind": "llm"})
    assert "needs a model" in coldread("run", str(experiment), "--data", rows, code=3).stderr
    experiment = write_experiment(tmp_path, wide_model, readers=[], extractor=extractor(wide_model))
    assert "asks no model" in coldread("run", str(experiment), "--data", rows, code=3).stderr


def test_an_engine_that_only_reads_is_refused_with_a_word(tmp_path: Path, wide_model: Path, plugin: Plugin):
    plugin("return []")
    experiment = write_experiment(tmp_path, wide_model, readers=[], frontend={"kind": "llm"}, extractor=extractor(wide_model))
    ended = coldread("run", str(experiment), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"), code=3)
    assert "it has no `complete`" in ended.stderr


def test_an_engine_killed_in_the_middle_resumes_and_gives_the_same_bytes(tmp_path: Path, wide_model: Path, plugin: Plugin):
    later = "any('Carl' in self.tokenizer.decode(list(ids)) for ids in batch)"  # in the second wave
    begins = "def complete(self, batch, decoding):\n"
    dies = f"    if Path(self.options['target'] + '.die').exists() and {later}: os._exit(9)\n"
    assert begins in RULES
    plugin("return []", RULES.replace(begins, begins + dies))
    die = wide_model / "tokenizer.json.die"
    experiment = write_experiment(
        tmp_path, wide_model, views=["cmc"], readers=[], frontend={"kind": "llm"}, extractor=extractor(wide_model)
    )
    command = [
        "run",
        str(experiment),
        "--data",
        str(write_rows(tmp_path)),
        "--out",
        str(tmp_path / "run"),
        "--until",
        "extract",
    ]
    die.touch()
    assert "resumes" in coldread(*command, code=8).stderr
    assert not (tmp_path / "run" / "extraction").exists()
    die.unlink()
    assert "4 of 8 calls were answered from the cache" in coldread(*command).stderr
    (tmp_path / "undisturbed").mkdir()
    other = make_run(tmp_path / "undisturbed", wide_model)
    assert bytes_of(other / "extraction") == bytes_of(tmp_path / "run" / "extraction")


@pytest.mark.parametrize(("cap", "why"), [("input_cap", "of 100 that there is room for"), ("output_cap", "takes 98 tokens")])
def test_a_run_whose_caps_leave_no_room_for_a_statement_ends_before_the_step(
    cap: str, why: str, tmp_path: Path, wide_model: Path, plugin: Plugin
):
    plugin("return []", RULES)
    small = {"input_cap": 100, "output_cap": 1}[cap]
    changed = extractor(wide_model, **{cap: small})
    experiment = write_experiment(tmp_path, wide_model, readers=[], frontend={"kind": "llm"}, extractor=changed)
    command = ("run", str(experiment), "--data", str(write_rows(tmp_path)))
    assert why in coldread(*command, "--dry-run", code=3).stderr
    assert why in coldread(*command, "--out", str(tmp_path / "run"), "--until", "extract", code=3).stderr
    assert not (tmp_path / "run" / "extraction").exists()


DAMAGED = [
    b"",
    b"{}\n",
    b"x",
    b"[]\n",
    b'{"cached":0,"generated":8,"seconds":{"extract":"soon"}}\n',
    b'{"cached":0,"generated":8,"seconds":{"extract":"1.000\\n"}}\n',
    None,
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_of_seconds_which_nothing_covers_stands_in_nobodys_way(content: bytes | None, made: Path):
    side = made / "extraction" / "timings.json"
    assert re.search(r"extract: \d+ calls .*, \d+ s$", coldread("extract", str(made)).stderr, re.MULTILINE)
    side.unlink()
    if content is not None:
        side.write_bytes(content)
    printed = coldread("extract", str(made)).stderr
    assert "up to date" in printed
    assert re.search(r"extract: \d+ calls .* out$", printed, re.MULTILINE), printed


TAMPERED = {
    "statements.jsonl": 20,
    "drafts.jsonl": 20,
    "names.jsonl": 20,
    "calls/answers.jsonl": 20,
    "calls/inputs.u32": 20,
    "calls/calls.jsonl": 20,
}


@pytest.mark.parametrize("name", TAMPERED)
def test_an_altered_file_is_refused(name: str, made: Path, tmp_path: Path):
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    data = (copy / "extraction" / name).read_bytes()
    (copy / "extraction" / name).write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    assert str(Path("extraction") / name) in coldread("freeze", str(copy), code=TAMPERED[name]).stderr


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path: Path, change: Callable[[list[dict]], object]) -> None:
    records = lines_of(path)
    change(records)
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))


def edit(name: str, change: Callable[[list[dict]], object]) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / name, change)


def forge_answer(folder: Path) -> None:
    """Another answer about a text without a fact, its ids and its text fitting each other."""
    tokenizer = ChatTokenizer(folder / "tokenizer")

    def change(answers: list[dict]) -> None:
        forged = next(answer for answer in answers if '"no_fact"' in answer["text"])
        forged["text"] = forged["text"].replace('"no_fact"', '"unresolved"')
        forged["output_ids"] = tokenizer._tokenizer.encode(forged["text"], add_special_tokens=False)

    rewrite(folder / "calls" / "answers.jsonl", change)


def drop_last_call(folder: Path) -> None:
    length = lines_of(folder / "calls" / "calls.jsonl")[-1]["length"]
    for name in ("calls.jsonl", "answers.jsonl"):
        rewrite(folder / "calls" / name, lambda records: records.pop())
    inputs = folder / "calls" / "inputs.u32"
    inputs.write_bytes(inputs.read_bytes()[: -4 * length])


def swap_calls(folder: Path) -> None:
    """The first two calls change places in all three files."""
    one, two = (call["length"] for call in lines_of(folder / "calls" / "calls.jsonl")[:2])
    data = (folder / "calls" / "inputs.u32").read_bytes()
    first, second, rest = data[: 4 * one], data[4 * one : 4 * (one + two)], data[4 * (one + two) :]
    (folder / "calls" / "inputs.u32").write_bytes(second + first + rest)

    def swap(records: list[dict]) -> None:
        records[0], records[1] = records[1], records[0]
        if "offset" in records[0]:
            records[0]["offset"], records[1]["offset"] = 0, two

    for name in ("calls.jsonl", "answers.jsonl"):
        rewrite(folder / "calls" / name, swap)


def append(path: Path) -> None:
    """Bytes that are no line."""
    path.write_bytes(path.read_bytes() + b"x")


def first_with(key: str, value: object) -> Callable[[list[dict]], dict]:
    return lambda records: next(record for record in records if record[key] == value)


FORGED: dict[str, tuple[type[Exception], Callable[[Path], None]]] = {
    "a status": (
        ExtractionLinkError,
        edit("statements.jsonl", lambda r: r[0].update(status="no_fact", triples=[], reason="forged")),
    ),
    "a relation": (ExtractionLinkError, edit("relations.jsonl", lambda r: r.pop())),
    "a draft": (ExtractionLinkError, edit("drafts.jsonl", lambda r: r[0].update(by="repair"))),
    "a merge": (ExtractionLinkError, edit("names.jsonl", lambda r: first_with("name", "home town")(r).update(into=None))),
    "an example": (ExtractionLinkError, edit("names.jsonl", lambda r: r[0]["examples"].pop())),
    "an answer": (ExtractionLinkError, forge_answer),
    "the text of an answer": (OutputLinkError, edit("calls/answers.jsonl", lambda r: r[0].update(text=r[0]["text"] + " "))),
    "the order of calls": (InputLinkError, swap_calls),
    "one call less": (InputLinkError, drop_last_call),
    "the stage of a call": (InputLinkError, edit("calls/calls.jsonl", lambda r: r[0].update(stage="repair"))),
    "a decoding": (InputLinkError, edit("calls/decodings.jsonl", lambda r: r[0].update(output_cap=7))),
    "the order of decodings": (InputLinkError, edit("calls/decodings.jsonl", lambda r: r.reverse())),
    "a decoding twice": (AlteredError, edit("calls/decodings.jsonl", lambda r: r.append(r[0]))),
    "the model of the calls": (
        AlteredError,
        edit("calls/settings.json", lambda r: r[0]["model"].update(fingerprint="0" * 64)),
    ),
    "the weights of the model": (
        AlteredError,
        edit(
            "calls/settings.json", lambda r: first_with("name", "model.safetensors")(r[0]["model"]["files"]).update(sha256="0")
        ),
    ),
    "no files of the model": (AlteredError, edit("calls/settings.json", lambda r: r[0]["model"].update(files=[]))),
    "no environment": (AlteredError, lambda folder: (folder / "environments.json").write_bytes(b"[]\n")),
    "an environment that no engine said": (
        AlteredError,
        lambda folder: (folder / "environments.json").write_bytes(b'[{"engine":"theirs"}]\n'),
    ),
    "an environment twice": (AlteredError, edit("environments.json", lambda r: r[0].append(r[0][0]))),
    "environments that are none": (AlteredError, lambda folder: (folder / "environments.json").write_bytes(b"none\n")),
    "the environments left out": (AlteredError, lambda folder: (folder / "environments.json").unlink()),
    "a file more": (AlteredError, lambda folder: (folder / "stranger").write_bytes(b"")),
    "a call's file more": (AlteredError, lambda folder: (folder / "calls" / "stranger").write_bytes(b"")),
    "a tokenizer's file more": (AlteredError, lambda folder: (folder / "tokenizer" / "added_tokens.json").write_bytes(b"{}")),
    "an answer beyond its cap": (
        OutputLinkError,
        # The padding token leaves no trace in the text.
        edit("calls/answers.jsonl", lambda r: r[0].update(output_ids=[5] * 2048 + r[0]["output_ids"])),
    ),
    **{
        f"bytes behind {name}": (ExtractionLinkError, lambda folder, name=name: append(folder / name))
        for name in ("statements.jsonl", "relations.jsonl", "drafts.jsonl", "names.jsonl", "forms.jsonl")
    },
    "the model of the step": (InputLinkError, edit("manifest.json", lambda r: r[0]["inputs"].update(model="0" * 64))),
    "a setting of the reader": (InputLinkError, edit("calls/settings.json", lambda r: r[0]["reader"].update(batch_size=1))),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_extraction_whose_hashes_fit_does_not_come_out_again(what: str, made: Path, tmp_path: Path):
    error, forge = FORGED[what]
    run = OpenRun(Path(shutil.copytree(made, tmp_path / "copy")))
    folder = run.step_folder("extraction")
    calls = len(read_transcript(folder / CALLS).calls)
    assert _extract_and_compare(run) == [("extraction", f"{len(statements(run.path))} statements, {calls} calls")]
    forge(folder)
    old = read_record(folder / "manifest.json", Manifest)
    listed = [name for name in files_below(folder) if name not in ("manifest.json", "timings.json")]
    write_record(folder / "manifest.json", make_manifest(folder, "extraction", old.inputs, listed))
    with pytest.raises(error):
        _extract_and_compare(run)


def _extract_and_compare(run: OpenRun) -> list[tuple[str, str]]:
    from eval.replay import _replay_extraction

    links = Watcher()
    _replay_extraction(run, links, tokens=True)
    return links.said


THEIRS = """
from extract.frontends import asks_model
from extract.frontends.llm import llm
from offline.records import Extraction, StatementExtraction

def plain(texts, experiment):
    return Extraction(tuple(StatementExtraction(text=t, status="unresolved", reason="plain") for t in texts), ())

@asks_model
def asking(texts, extractor, caller):
    return llm(texts, extractor, caller)
"""


def test_a_frontend_from_elsewhere_is_named_a_model_exactly_if_it_asks_one(
    tmp_path: Path, wide_model: Path, plugin: Plugin, install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    plugin("return []", RULES)
    points = {name: f"elsewhere_code:{name}" for name in ("plain", "asking")}
    install("elsewhere", "coldread.frontends", points, THEIRS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"), prepend=os.pathsep)
    rows = str(write_rows(tmp_path))

    def run(kind: str, code: int, *more: str, **sections: object) -> str:
        experiment = write_experiment(tmp_path, wide_model, views=["cmc"], readers=[], frontend={"kind": kind}, **sections)
        out = tmp_path / f"run-{kind}-{len(sections)}"
        return coldread(
            "run", str(experiment), "--data", rows, "--out", str(out), "--until", "extract", *more, code=code
        ).stderr

    for more in ((), ("--dry-run",)):
        assert "asks a model; name one" in run("asking", 3, *more)
        assert "asks no model; remove `extractor`" in run("plain", 3, *more, extractor=extractor(wide_model))
    assert "8 unresolved" in run("plain", 0)
    assert "7 facts, 1 no_fact" in run("asking", 0, extractor=extractor(wide_model))
    assert not (tmp_path / "run-asking-0").exists()


@pytest.mark.parametrize("kind", ["llm", "hybrid"])
def test_a_dry_run_plans_extraction_and_says_where_that_is_a_bound(kind: str, tmp_path: Path, wide_model: Path, plugin: Plugin):
    plugin("return []", RULES)
    run = make_run(tmp_path, wide_model, kind)
    asked = read_transcript(run / "extraction" / CALLS).counts()["extract"]
    planned = dry_run(tmp_path, wide_model, kind)["extract"]
    assert (planned["statements"], planned["at_most"]) == (len(statements(run)), kind == "hybrid")
    # Without a known relation in any call, the inputs are a little shorter than they come to be.
    assert planned["calls"] == asked.calls
    assert 0.95 * asked.input_tokens < planned["input_tokens"] <= asked.input_tokens


def test_a_dry_run_of_statements_that_no_call_can_carry_plans_none(tmp_path: Path, wide_model: Path, plugin: Plugin):
    plugin("return []", RULES)
    rows = [{**row, "statements": [f"{text} <|end|>" for text in row["statements"]]} for row in ROWS]
    planned = dry_run(tmp_path, wide_model, "llm", rows)["extract"]
    assert (planned["calls"], planned["input_tokens"]) == (0, 0)


def dry_run(folder: Path, model: Path, kind: str, rows: list | None = None) -> dict:
    experiment = write_experiment(folder, model, views=["cmc"], readers=[], frontend={"kind": kind}, extractor=extractor(model))
    printed = coldread("run", str(experiment), "--data", str(write_rows(folder, rows)), "--dry-run", "--json").stdout
    return json.loads(printed)
