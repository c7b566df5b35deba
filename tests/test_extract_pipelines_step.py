"""The step of a run that serves pipelines, with the tiny tokenizer and model, and its replay."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tiny import ROWS, coldread, write_experiment, write_rows

from extract.pipelines.diagnostics import sampled
from extract.pipelines.records import Trace
from extract.pipelines.schedule import run_pipelines
from extract.pipelines.step import (
    pipelines_folder,
    pipelines_step,
    read_candidates,
    read_environments,
    read_traces,
    replay_pipelines,
    serve_pipelines,
)
from offline.config.calls import pipeline_reader
from offline.config.experiment import ReaderPlan, ResolvedExperiment
from offline.errors import ColdreadError, InputLinkError, OutputLinkError, StateError
from offline.run.manifest import verify_folder
from offline.run.opened import OpenRun
from readers.calls.caller import Caller, Prepared
from readers.models.pins import identify
from readers.records import Output
from readers.requests import make_settings
from readers.tokens.chat import ChatTokenizer
from readers.transcript import read_transcript

NAMES = ["direct", "direct_sampled", "sh_conflict", "sh_conflict_llm", "car"]
ENVIRONMENT = ({"coldread": "0", "engine": "scripted"},)


def _make(
    folder: Path, model: Path, rows: list[dict[str, Any]] | None = None, engine: str = "digest", **pipelines: object
) -> OpenRun:
    """A frozen run of the tiny histories whose reader serves pipelines and reads no view."""
    reader = {"name": "tiny", "engine": engine, "model": {"folder": str(model)}, "batch_size": 4, "output_cap": 8}
    settings = {"output_cap": 480, "answer_cap": 8, "input_cap": 3_000, **pipelines}
    readers = [{"use": reader, "views": [], "pipelines": NAMES}]
    experiment = write_experiment(folder, model, readers=readers, pipelines=settings, views=["closed_book"])
    data, out = write_rows(folder, rows), folder / "run"
    coldread("run", str(experiment), "--data", str(data), "--out", str(out), "--until", "freeze")
    return OpenRun(out)


def _tokenizer(plan: ReaderPlan, model: Path) -> ChatTokenizer:
    made = ChatTokenizer.of(plan.reader, model)
    assert isinstance(made, ChatTokenizer)
    return made


def _caller(experiment: ResolvedExperiment, model: Path, script: Callable[[str], str]) -> Caller:
    """A caller that speaks through the tiny tokenizer and whose model is a script."""
    plan, settings = experiment.readers[0], experiment.pipelines
    assert settings
    reader, tokenizer = pipeline_reader(plan.reader, settings), _tokenizer(plan, model)

    def ids(text: str) -> tuple[int, ...]:
        # A character at a time, so that a special token's text comes out as text.
        return tuple(i for c in text for i in tokenizer._tokenizer.encode(c, add_special_tokens=False))

    def source(calls: Sequence[Prepared]) -> list[Output]:
        return [Output(ids=(*ids(script(tokenizer.decode(call.ids))), 1), finish_reason="stop") for call in calls]

    return Caller(make_settings(reader, identify(reader, model), tokenizer), tokenizer, source)


def _script(text: str) -> str:
    """A model that knows where people live, and which river that is on."""
    asked = re.findall(r"Question: (.*)", text)[-1]
    if "Candidates:" in text:
        return '{"position": 4, "value": "Paris"}'
    if "List all records" not in text:
        return json.dumps({"hops": ["Where does Ada live?", "Which river has {hop_1}?"]}) if "to be split" in text else "Rome"
    matches = {
        "Where does Ada live?": [(0, "Rome"), (4, "Paris")],
        "On which river is the home of Ada?": [(1, "Tiber")],
        "Which river has Paris?": [(2, "Seine")],
    }.get(asked, [])
    return json.dumps({"candidates": [{"position": p, "record": "r", "value": v} for p, v in matches]})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> OpenRun:
    """A run whose pipelines a script served. Tests that change it work on copies."""
    run = _make(tmp_path_factory.mktemp("served"), tiny_model)
    experiment = run.experiment
    caller = _caller(experiment, tiny_model, _script)
    assert pipelines_step(run, experiment.readers[0], caller, lambda: ENVIRONMENT)
    return run


def _replay(run: OpenRun, model: Path) -> tuple[Trace, ...]:
    experiment = run.experiment
    plan = experiment.readers[0]
    traces, candidates, transcript = replay_pipelines(run, plan, _tokenizer(plan, model))
    assert candidates == read_candidates(run, "tiny")
    assert transcript == read_transcript(pipelines_folder(run, "tiny") / "calls")
    return traces


def test_the_step_stores_what_the_pipelines_made_and_is_up_to_date_afterwards(served: OpenRun, tiny_model: Path) -> None:
    experiment = served.experiment
    data = served.data
    caller = _caller(experiment, tiny_model, _script)
    made = run_pipelines(NAMES, data.histories, data.questions, experiment, caller)
    assert read_traces(served, "tiny") == made.traces
    assert read_candidates(served, "tiny") == made.candidates
    assert read_environments(served, "tiny") == ENVIRONMENT
    answers = {(t.pipeline, t.question): t.answer for t in made.traces}
    assert answers["sh_conflict", "ada/0"] == answers["sh_conflict_llm", "ada/0"] == "Paris"
    assert (answers["car", "ada/1"], answers["sh_conflict", "ada/1"]) == ("Seine", "Tiber")
    assert sampled(made.traces, caller.transcript) == ("direct_sampled",)

    def never() -> Sequence[dict[str, str]]:
        raise AssertionError("an up-to-date step asks nothing")

    assert not pipelines_step(served, experiment.readers[0], caller, never)
    verify_folder(pipelines_folder(served, "tiny"))


def test_another_setting_is_another_step(served: OpenRun, tiny_model: Path, tmp_path: Path) -> None:
    run = OpenRun(Path(shutil.copytree(served.path, tmp_path / "run")))
    experiment = run.experiment
    assert experiment.pipelines
    plan = experiment.readers[0]
    for changed in (
        msgspec.structs.replace(experiment, pipelines=msgspec.structs.replace(experiment.pipelines, k=2)),
        msgspec.structs.replace(experiment, settings=msgspec.structs.replace(experiment.settings, tokenizer="unicode")),
        msgspec.structs.replace(experiment, prompt=msgspec.structs.replace(experiment.prompt, system="Say less.")),
    ):
        for asked in (changed, experiment):
            run.create(asked)
            assert pipelines_step(run, plan, _caller(asked, tiny_model, _script), lambda: ENVIRONMENT)
    fewer = msgspec.structs.replace(plan, pipelines=("direct",))
    assert pipelines_step(run, fewer, _caller(experiment, tiny_model, _script), lambda: ENVIRONMENT)
    (pipelines_folder(run, "tiny").parent / "seal.json").write_text("{}")
    with pytest.raises(StateError, match="sealed"):
        pipelines_step(run, plan, _caller(experiment, tiny_model, _script), lambda: ENVIRONMENT)


def test_replay_needs_no_model_and_gives_the_stored_traces(served: OpenRun, tiny_model: Path) -> None:
    assert _replay(served, tiny_model) == read_traces(served, "tiny")


def _edit(file: str, number: int, change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        lines = (folder / file).read_bytes().split(b"\n")
        record = json.loads(lines[number])
        change(record)
        lines[number] = msgspec.json.encode(record, order="sorted")
        (folder / file).write_bytes(b"\n".join(lines))

    return edit


def _drop(file: str, number: int) -> Callable[[Path], None]:
    def drop(folder: Path) -> None:
        lines = (folder / file).read_bytes().split(b"\n")
        del lines[number]
        (folder / file).write_bytes(b"\n".join(lines))

    return drop


def _answer_as(other: bytes) -> Callable[[Path], None]:
    """Give the list of Ada's homes the ids and text of another answer: sound ids, after which the algorithm asks otherwise."""

    def edit(folder: Path) -> None:
        path = folder / "calls" / "answers.jsonl"
        lines = path.read_bytes().split(b"\n")
        home = next(i for i, line in enumerate(lines) if b"Paris" in line and b"Rome" in line)
        record, another = json.loads(lines[home]), json.loads(next(line for line in lines if other in line))
        record.update({name: another[name] for name in ("output_ids", "text")})
        lines[home] = msgspec.json.encode(record, order="sorted")
        path.write_bytes(b"\n".join(lines))

    return edit


@pytest.mark.parametrize(
    ("error", "named", "alter"),
    [
        (OutputLinkError, "'direct', question 'ada/0'", _edit("traces.jsonl", 0, lambda r: r.update(answer="Paris"))),
        (OutputLinkError, "'car', question 'ada/1'", _edit("traces.jsonl", 21, lambda r: r["hops"][0].update(chosen=0))),
        (OutputLinkError, "traces.jsonl, line 25", _drop("traces.jsonl", 24)),
        (OutputLinkError, "candidates.jsonl, line 1", _edit("candidates.jsonl", 0, lambda r: r.update(dropped=1))),
        (OutputLinkError, "candidates.jsonl, line 2", _drop("candidates.jsonl", 1)),
        (OutputLinkError, "answers.jsonl, line 1", _edit("calls/answers.jsonl", 0, lambda r: r.update(text="Paris"))),
        (InputLinkError, "calls.jsonl", _edit("calls/calls.jsonl", 1, lambda r: r.update(stage="hidden"))),
        # Tiber is another first hop than Paris, so the second one was never asked; no home, and there is none to ask.
        (InputLinkError, "which is not among those that were made", _answer_as(b"Tiber")),
        (InputLinkError, "comes out differently when the algorithm runs again", _answer_as(b'\\"candidates\\": []')),
        (InputLinkError, "settings.json", _edit("calls/settings.json", 0, lambda r: r.update(input_cap=7))),
    ],
)
def test_replay_names_the_first_link_that_is_broken(
    served: OpenRun, tiny_model: Path, tmp_path: Path, error: type[ColdreadError], named: str, alter: Callable[[Path], None]
) -> None:
    run = OpenRun(Path(shutil.copytree(served.path, tmp_path / "run")))
    alter(pipelines_folder(run, "tiny"))
    with pytest.raises(error, match=re.escape(named)) as caught:
        _replay(run, tiny_model)
    assert type(caught.value) is error


def test_a_special_token_in_an_answer_ends_in_a_refused_call_and_not_in_a_crash(tmp_path: Path, tiny_model: Path) -> None:
    def script(text: str) -> str:
        # The value is from nowhere, and kept: the second hop's query spells the token out.
        return _script(text).replace('"Paris"', '"<|end|> Paris"')

    run = _make(tmp_path, tiny_model, foreign="keep")
    experiment = run.experiment
    caller = _caller(experiment, tiny_model, script)
    pipelines_step(run, experiment.readers[0], caller, lambda: ENVIRONMENT)
    (car,) = (t for t in read_traces(run, "tiny") if (t.pipeline, t.question) == ("car", "ada/1"))
    assert [(hop.outcome, hop.answer) for hop in car.hops] == [("answered", "<|end|> Paris"), ("empty", None)]
    assert car.hops[1].resolved == "Which river has <|end|> Paris?"
    assert car.answer == "<|end|> Paris"
    assert "spells out '<|end|>', a special token" in str(car.fault)
    # The model as executor cannot be shown the candidate either.
    (llm,) = (t for t in read_traces(run, "tiny") if (t.pipeline, t.question) == ("sh_conflict_llm", "ada/0"))
    assert (llm.answer, "special token" in str(llm.fault)) == ("no answer", True)
    _replay(run, tiny_model)


def test_a_special_token_in_a_record_fails_the_questions_that_are_shown_it_and_no_others(
    tmp_path: Path, tiny_model: Path
) -> None:
    rows = json.loads(json.dumps(ROWS))
    rows[1]["statements"].append("Carl lives in <|end|>.")
    run = _make(tmp_path, tiny_model, rows, k=2)
    experiment = run.experiment
    caller = _caller(experiment, tiny_model, _script)
    pipelines_step(run, experiment.readers[0], caller, lambda: ENVIRONMENT)
    direct = {t.question: t for t in read_traces(run, "tiny") if t.pipeline == "direct"}
    assert (direct["carl/0"].answer, "special token" in str(direct["carl/0"].fault)) == ("", True)
    assert (direct["ada/0"].answer, direct["ada/0"].fault) == ("Rome", None)
    _replay(run, tiny_model)


def test_a_real_engine_serves_pipelines_and_what_it_said_replays(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "calls"))
    run = _make(tmp_path, tiny_llama, engine="transformers", output_cap=48)
    experiment = run.experiment
    serve_pipelines(run, experiment.readers[0])
    traces = read_traces(run, "tiny")
    assert [(t.pipeline, t.question) for t in traces[:2]] == [("direct", "ada/0"), ("direct", "ada/1")]
    assert len(traces) == len(NAMES) * 5
    transcript = read_transcript(pipelines_folder(run, "tiny") / "calls")
    said = {(p.finish_reason, c.stage) for c, p in zip(transcript.calls, transcript.predictions, strict=True)}
    assert not [stage for reason, stage in said if reason == "error"]
    # A model of random weights that is held to the schema opens the list; what it writes then is anything.
    opened = [p.text for c, p in zip(transcript.calls, transcript.predictions, strict=True) if c.stage == "candidates"]
    assert opened
    assert all(re.match(r'\s*\{\s*"candidates"\s*:\s*\[', text) or len(text.strip()) < 16 for text in opened)
    assert {environment["engine"] for environment in read_environments(run, "tiny")} == {"transformers"}
    kept = run.step_folder("reads/tiny/tokenizer")
    assert _replay(run, kept) == traces
