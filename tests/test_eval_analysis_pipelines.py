"""Pipelines beside views: scored, sealed, replayed, tabled; each broken link has its own exit code."""

import dataclasses
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from forge import add_file, edit_line
from msgspec.structs import replace
from rich.console import Console
from tiny import ANSWER, ROWS, SPEAKS, coldread, their_reader, write_experiment, write_rows
from tiny_pipelines import PIPELINES, engine, make_served_run, serving_reader

from eval.analysis.pipelines import PipelineReport
from eval.console import pipelines as pipeline_tables
from eval.metrics import find_metrics
from eval.run import make_plan
from eval.score import score_reader
from extract.pipelines.results import read_stored
from offline.canonical import file_digest, write_record
from offline.errors import ConfigurationError, EngineError, StateError
from offline.run.manifest import make_manifest, read_manifest
from offline.run.opened import OpenRun
from readers.read import Commitment, read
from readers.records import Seal
from readers.seal import close

READS = Path("reads/tiny")
SERVED = READS / "pipelines"
QUESTIONS = ["ada/0", "ada/1", "ada/2", "carl/0", "carl/1"]
UNKNOWN, NONE = "I do not know", "no answer"
# Where Ada lives (Rome, then Paris), the river of her home, where Bob lives, where Carl does (Oslo, then Bergen), nobody.
ANSWERS = {
    "direct": ["Rome", UNKNOWN, "Rome", "Oslo", UNKNOWN],
    "direct_sampled": ["Rome", UNKNOWN, "Rome", "Oslo", UNKNOWN],
    "sh_conflict": ["Paris", NONE, "Rome", "Bergen", NONE],
    "sh_conflict_llm": ["Rome", NONE, "Rome", "Oslo", NONE],
    "sh_conflict_rerun": ["Paris", NONE, "Rome", "Bergen", NONE],
    "sh_conflict_fallback": ["Paris", UNKNOWN, "Rome", "Bergen", UNKNOWN],
    "car": ["Paris", "Seine", "Rome", "Bergen", NONE],
}
GOLDS = ["Paris", "Seine", "Rome", "Bergen", "No one at all"]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def printed(*arguments: str) -> Any:
    return json.loads(coldread(*arguments, "--json").stdout)


def test_a_pipelines_answers_are_scored_as_a_views_are(served_run: Path) -> None:
    scores = lines(served_run / "scores/tiny/scores.jsonl")
    assert [score["view"] for score in scores[::5]] == ["cmc", *PIPELINES]
    for name, answers in ANSWERS.items():
        own = [score for score in scores if score["view"] == name]
        assert [(score["question"], score["prediction"]) for score in own] == list(zip(QUESTIONS, answers, strict=True))
        assert [score["metrics"]["strict_em"] for score in own] == [a == g for a, g in zip(answers, GOLDS, strict=True)]
        assert {(score["finish_reason"], score["cut"]) for score in own} == {("stop", 0)}


def test_one_seal_covers_views_and_pipelines_and_counts_them_apart(served_run: Path) -> None:
    seal = json.loads((served_run / READS / "seal.json").read_text())
    calls, answers = lines(served_run / SERVED / "calls/calls.jsonl"), lines(served_run / SERVED / "calls/answers.jsonl")
    assert seal["pipelines"] == json.loads((served_run / SERVED / "manifest.json").read_text())["digest"]
    assert seal["sampled"] == ["direct_sampled"]
    assert seal["counts"]["scheduled"] == seal["counts"]["generated"] == 5
    assert seal["counts"]["pipelines"] == {
        "questions": 35,
        "failed": 0,
        "calls": len(calls),
        "input_tokens": sum(call["length"] for call in calls),
        "output_tokens": sum(len(answer["output_ids"]) for answer in answers),
    }
    # direct 5, sampled 5, lists 5, lists again 5, plans 5, and of other chats only: hop 2 of ada/1; three choices.
    assert len(calls) == 29
    assert json.loads((served_run / READS / "timings.json").read_text()).keys() == {"seconds", "batches", "format"}


def test_a_pipeline_that_samples_must_say_so_in_its_name(served_run: Path) -> None:
    stored = read_stored(OpenRun(served_run), "tiny")
    assert stored.facts().sampled == ("direct_sampled",)
    traces = [replace(trace, pipeline=trace.pipeline.replace("direct_sampled", "warm")) for trace in stored.traces]
    with pytest.raises(ConfigurationError, match="call it warm_sampled"):
        dataclasses.replace(stored, traces=tuple(traces)).facts()


def test_runs_from_engine_and_cache_seal_alike(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(*engine())
    roots = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        run = make_served_run(tmp_path / name, tiny_model, "--until", "read")
        roots.append(json.loads((run / READS / "seal.json").read_text())["root"])
        took = json.loads((run / SERVED / "timings.json").read_text())
        assert (took["generated"], took["cached"]) == ((29, 0) if name == "first" else (0, 29))
    assert roots[0] == roots[1]


def test_an_untouched_run_replays_its_pipelines_and_says_how_much(copied_served_run: Path) -> None:
    before = {path: path.read_bytes() for path in copied_served_run.rglob("*") if path.is_file()}
    told = {link["link"]: link["detail"] for link in printed("replay", str(copied_served_run))["links"]}
    assert told["pipelines"] == "tiny: 35 traces, 11 candidate lists, 29 calls"
    assert "sampled: direct_sampled" in told["seal"]
    without = {link["link"]: link["detail"] for link in printed("replay", str(copied_served_run), "--no-tokens")["links"]}
    assert without["pipelines"].startswith("skipped for tiny")
    done = [coldread("replay", str(copied_served_run), *more).stderr.splitlines()[-1] for more in ((), ("--no-tokens",))]
    assert ["every link replays" in line for line in done] == [True, False]
    assert "skipped: tokens, pipelines" in done[1]
    assert {path: path.read_bytes() for path in copied_served_run.rglob("*") if path.is_file()} == before


def test_any_file_of_the_folder_that_is_changed_removed_or_added_is_refused_and_named(copied_served_run: Path) -> None:
    folder = copied_served_run / SERVED
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != "timings.json"]
    assert {path.name for path in names} >= {"traces.jsonl", "candidates.jsonl", "calls.jsonl", "answers.jsonl", "inputs.u32"}
    for name in names:
        path, content = folder / name, (folder / name).read_bytes()
        for damage in (lambda path: path.write_bytes(path.read_bytes()[:-2] + b"x\n"), Path.unlink):
            damage(path)
            for command in ("replay", "score"):
                assert name.name in coldread(command, str(copied_served_run), code=20).stderr
            path.write_bytes(content)
    (folder / "stranger").write_text("")
    assert "stranger" in coldread("replay", str(copied_served_run), code=20).stderr
    shutil.rmtree(folder)
    for command in ("replay", "score", "pipelines"):
        assert "pipelines" in coldread(command, str(copied_served_run), code=20).stderr


def reseal(run: Path, **changes: Any) -> None:
    """Forge: make the manifests and the seal fit the files as they are now; `changes` are further ones of the seal."""

    def remake(folder: Path, **inputs: str) -> str:
        old = read_manifest(folder)
        made = make_manifest(folder, old.step, {**old.inputs, **inputs}, [entry.name for entry in old.files])
        write_record(folder / "manifest.json", made)
        return made.digest

    reads = run / READS
    seal = msgspec.json.decode((reads / "seal.json").read_bytes(), type=Seal)
    changes = {"pipelines": remake(run / SERVED), "predictions": file_digest(reads / "predictions.jsonl"), **changes}
    seal = close(msgspec.structs.replace(seal, **changes))
    write_record(reads / "seal.json", seal)
    remake(reads, seal=seal.root)
    remake(run / "scores", seal_tiny=seal.root)


def append(run: Path, name: str) -> None:
    path = run / SERVED / name
    path.write_bytes(path.read_bytes() + b"x")


def flip_ids(run: Path) -> None:
    path = run / SERVED / "calls/inputs.u32"
    data = bytearray(path.read_bytes())
    data[4 * 30] ^= 1
    path.write_bytes(bytes(data))


def edit(name: str, number: int, change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    return lambda run: edit_line(run / SERVED / name, number, change)


def counts(run: Path, **changes: int) -> dict[str, Any]:
    """The seal's counts with some of those of pipelines changed."""
    found = msgspec.json.decode((run / READS / "seal.json").read_bytes(), type=Seal).counts
    assert found.pipelines
    return {"counts": msgspec.structs.replace(found, pipelines=msgspec.structs.replace(found.pipelines, **changes))}


def empty(path: Path) -> None:
    path.write_bytes(b"")


def double(path: Path) -> None:
    path.write_bytes(2 * path.read_bytes())


def forge_inputs(folder: Path) -> None:
    old = read_manifest(folder)
    made = make_manifest(folder, old.step, dict.fromkeys(old.inputs, "0" * 64), [entry.name for entry in old.files])
    write_record(folder / "manifest.json", made)


# In traces.jsonl sh_conflict begins at line 10; answers.jsonl begins with those to direct calls.
FORGERIES: dict[str, tuple[int, str, Callable[[Path], None]]] = {
    "a call's ids": (23, "calls.jsonl", flip_ids),
    "a call's stage": (23, "calls.jsonl", edit("calls/calls.jsonl", 0, lambda r: r.update(stage="choose"))),
    "the decodings": (23, "decodings.jsonl", edit("calls/decodings.jsonl", 0, lambda r: r.update(output_cap=63))),
    "an answer's text": (24, "answers.jsonl, line 1", edit("calls/answers.jsonl", 0, lambda r: r.update(text="Paris"))),
    "a trace's answer": (24, "traces.jsonl, line 11", edit("traces.jsonl", 10, lambda r: r.update(answer="Rome"))),
    "a trace's calls": (
        24,
        "traces.jsonl, line 11",
        edit("traces.jsonl", 10, lambda r: r["calls"].reverse() or r.update(calls=[])),
    ),
    "a candidate": (24, "candidates.jsonl", edit("candidates.jsonl", 0, lambda r: r["candidates"][0].update(entity="Oslo"))),
    "an answer's ids": (20, "answers.jsonl", edit("calls/answers.jsonl", 0, lambda r: r.update(output_ids=[-5]))),
    "no environment": (20, "environments.jsonl", lambda run: empty(run / SERVED / "environments.jsonl")),
    "an environment twice": (20, "environments.jsonl", lambda run: double(run / SERVED / "environments.jsonl")),
    "what it was made from": (23, "pipelines/manifest.json", lambda run: forge_inputs(run / SERVED)),
    "an answer beyond its cap": (
        24,
        "answers.jsonl, line 1, stage 'direct': it has more output ids than its cap",
        edit("calls/answers.jsonl", 0, lambda r: r.update(output_ids=[5] * 64 + r["output_ids"])),
    ),
    "bytes behind the lists": (24, "candidates.jsonl, line", lambda run: append(run, "candidates.jsonl")),
    "bytes behind the traces": (20, "traces.jsonl, line", lambda run: append(run, "traces.jsonl")),
    "the weights": (
        20,
        "settings.json",
        edit("calls/settings.json", 0, lambda r: r["model"]["files"][-1].update(sha256="0" * 64)),
    ),
    "a file more": (20, "stranger", lambda run: add_file(run / SERVED)),
    "an environment": (26, "seal.json", edit("environments.jsonl", 0, lambda r: r.update(engine="another"))),
}


@pytest.mark.parametrize("link", FORGERIES)
def test_a_forgery_with_fitting_hashes_breaks_its_own_link(copied_served_run: Path, link: str) -> None:
    code, named, forge = FORGERIES[link]
    forge(copied_served_run)
    reseal(copied_served_run)
    assert named in coldread("replay", str(copied_served_run), code=code).stderr


def forge_traces(run: Path, forge: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Other traces, with fitting hashes and counts, so that nothing but the plan itself knows what is missing."""
    path = run / SERVED / "traces.jsonl"
    made = forge(lines(path))
    path.write_bytes(b"".join(msgspec.json.encode(trace, order="sorted") + b"\n" for trace in made))
    reseal(run, **counts(run, questions=len(made)))


def _without(key: str, value: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda traces: [trace for trace in traces if trace[key] != value]


@pytest.mark.parametrize(
    ("forge", "named"),
    [
        (lambda traces: traces[1:], "line 1: 'direct', question 'ada/1', where"),
        (lambda traces: traces[:-1], "line 35: none"),
        (_without("pipeline", "car"), "line 31: none"),
        (_without("question", "ada/1"), "question 'ada/1'"),
        (lambda traces: [*traces, traces[-1]], "line 36: 'car', question 'carl/1', where"),
        (lambda traces: [traces[1], traces[0], *traces[2:]], "line 1: 'direct', question 'ada/1', where"),
        (lambda traces: [{**traces[0], "pipeline": "direct_x"}, *traces[1:]], "line 1: 'direct_x'"),
        (lambda traces: [{**traces[0], "question": "zz"}, *traces[1:]], "line 1: 'direct', question 'zz'"),
    ],
)
def test_traces_that_are_not_those_of_the_plan_are_refused(
    copied_served_run: Path, forge: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], named: str
) -> None:
    forge_traces(copied_served_run, forge)
    shutil.rmtree(copied_served_run / "scores")
    for command in ("replay", "score"):
        more = ["--no-tokens"] if command == "replay" else []
        assert named in coldread(command, str(copied_served_run), *more, code=20).stderr
    assert not (copied_served_run / "scores").exists()


def test_everything_that_counts_traces_refuses_those_that_lack_one(served_run: Path, copied_served_run: Path) -> None:
    forge_traces(copied_served_run, lambda traces: traces[:-1])
    run = str(copied_served_run)
    for command in (["pipelines"], ["table"], ["report"], ["show", "ada/0"], ["score"], ["replay"]):
        assert "line 35: none" in coldread(command[0], run, *command[1:], code=20).stderr
    assert "line 35: none" in coldread("compare", str(served_run), "tiny", "tiny", "--other", run, code=20).stderr


def test_resealing_an_honest_run_still_replays(copied_served_run: Path) -> None:
    reseal(copied_served_run)
    coldread("replay", str(copied_served_run))


@pytest.mark.parametrize(("stage", "code", "named"), [("direct", 24, "traces.jsonl, line 1"), ("candidates", 23, "'choose'")])
def test_an_answer_exchanged_for_anothers_as_ids_and_text_leads_elsewhere(
    copied_served_run: Path, stage: str, code: int, named: str
) -> None:
    # Ada's home is answered as Carl's is: the trace no longer follows, or the model would have chosen among other candidates.
    calls = lines(copied_served_run / SERVED / "calls/calls.jsonl")
    answers = lines(copied_served_run / SERVED / "calls/answers.jsonl")
    of_stage = [number for number, call in enumerate(calls) if call["stage"] == stage]
    first, fourth = of_stage[0], of_stage[3]
    assert ("Rome" in answers[first]["text"], "Oslo" in answers[fourth]["text"]) == (True, True)
    other = {name: answers[fourth][name] for name in ("text", "output_ids")}
    edit_line(copied_served_run / SERVED / "calls/answers.jsonl", first, lambda r: r.update(other))
    reseal(copied_served_run)
    assert named in coldread("replay", str(copied_served_run), code=code).stderr


@pytest.mark.parametrize(
    "untrue",
    [
        lambda run: {"sampled": msgspec.UNSET},
        lambda run: {"sampled": ("direct",)},
        lambda run: counts(run, failed=1),
        lambda run: counts(run, calls=30),
        lambda run: {"pipelines": "0" * 64},
    ],
)
def test_a_seal_that_states_something_else_breaks_the_seal_link(
    copied_served_run: Path, untrue: Callable[[Path], dict[str, Any]]
) -> None:
    reseal(copied_served_run, **untrue(copied_served_run))
    coldread("replay", str(copied_served_run), code=26)


def test_a_seal_and_a_folder_of_pipelines_go_together(copied_served_run: Path, copied_run: Path) -> None:
    shutil.copytree(copied_served_run / SERVED, copied_run / SERVED)
    assert "pipelines" in coldread("replay", str(copied_run), code=26).stderr
    reseal(copied_served_run, pipelines=msgspec.UNSET)
    shutil.rmtree(copied_served_run / SERVED)
    assert "does not cover the pipelines" in coldread("score", str(copied_served_run), code=26).stderr


def test_forged_scores_of_a_pipeline_break_the_score_link(copied_served_run: Path) -> None:
    edit_line(copied_served_run / "scores/tiny/scores.jsonl", 5, lambda r: r["metrics"].update(subem=True))
    reseal(copied_served_run)
    assert "view 'direct'" in coldread("replay", str(copied_served_run), code=25).stderr


def test_a_sealed_reader_is_never_extended(
    served_run: Path, copied_served_run: Path, tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(ANSWER)
    fewer = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model, pipelines=["direct"]))
    more = ("--data", str(write_rows(tmp_path)), "--out", str(copied_served_run))
    assert "sealed" in coldread("run", str(fewer), *more, code=10).stderr
    # The engine has no `complete` now, which nothing needs any more.
    assert "tiny: up to date" in coldread("read", str(copied_served_run)).stderr
    assert file_digest(copied_served_run / READS / "seal.json") == file_digest(served_run / READS / "seal.json")


def test_reading_waits_for_the_pipelines(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(*engine())
    run = make_served_run(tmp_path, tiny_model, "--until", "freeze")
    experiment = OpenRun(run).experiment
    with pytest.raises(StateError, match="pipelines of reader 'tiny' have not run"):
        read(OpenRun(run), experiment.readers[0], Commitment("", 0))
    assert not (run / READS).exists()


def test_a_reader_may_serve_pipelines_and_read_no_view(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(*engine())
    run = make_served_run(tmp_path, tiny_model, readers=serving_reader(tiny_model, views=[], pipelines=["sh_conflict"]))
    seal = json.loads((run / READS / "seal.json").read_text())
    assert (seal["counts"]["scheduled"], seal["counts"]["pipelines"]["questions"]) == (0, 5)
    assert not {"certificate", "sampled"} & seal.keys()
    assert [environment["engine"] for environment in seal["environments"]] == ["theirs"]
    coldread("replay", str(run))
    assert [(row["view"], row["requests"]) for row in printed("table", str(run))["rows"]] == [("sh_conflict", 5)]
    coldread("report", str(run))
    assert "reads no view" in coldread("probe", str(run), code=10).stderr
    # No view was read, so that every environment of the seal is one that answered pipelines.
    reseal(run, environments=(*seal["environments"], {"engine": "theirs", "gpu": "none"}))
    assert "answered nothing" in coldread("replay", str(run), "--no-tokens", code=26).stderr


def test_a_question_that_no_request_can_carry_is_refused_before_any_call_of_a_pipeline_is_made(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(*engine())
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path / "calls"))
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["text"] += " <|user|>"
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model))
    more = ("--data", str(write_rows(tmp_path, rows)), "--out", str(tmp_path / "run"))
    assert "a special token of the model" in coldread("run", str(experiment), *more, code=6).stderr
    assert not (tmp_path / "run" / SERVED).exists()
    assert not (tmp_path / "calls").exists()


def test_pipelines_that_fail_are_taken_up_again_over_the_requests_that_were_frozen_before_them(
    served_run: Path, tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(*engine())
    with monkeypatch.context() as patch:
        patch.setattr("eval.run.serve_pipelines", lambda *given: (_ for _ in ()).throw(EngineError("stopped here")))
        experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model))
        more = ("--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"))
        coldread("run", str(experiment), *more, code=8)
    requests = tmp_path / "run" / READS / "requests"
    frozen = requests.stat().st_ino
    coldread("run", str(experiment), *more)
    assert requests.stat().st_ino == frozen, "they were up to date"
    for name in ("predictions.jsonl", "pipelines/traces.jsonl"):
        assert (tmp_path / "run" / READS / name).read_bytes() == (served_run / READS / name).read_bytes()
    coldread("replay", str(tmp_path / "run"))


def test_pipelines_that_an_earlier_experiment_named_are_put_away(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(*engine())
    with monkeypatch.context() as patch:
        patch.setattr("eval.run.read", lambda *given: (_ for _ in ()).throw(StateError("stopped here")))
        experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model))
        more = ("--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"))
        coldread("run", str(experiment), *more, code=10)
    assert (tmp_path / "run" / SERVED).is_dir()
    reader = [{**serving_reader(tiny_model)[0], "pipelines": []}]
    coldread("run", str(write_experiment(tmp_path, tiny_model, views=["cmc"], readers=reader)), *more)
    assert not (tmp_path / "run" / SERVED).exists()
    coldread("replay", str(tmp_path / "run"))


@pytest.mark.parametrize("after", ["", " Done."])
def test_an_honest_empty_list_is_an_answer_whatever_is_said_after_it(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], after: str
) -> None:
    plugin(engine()[0], SPEAKS + f"\ndef say(self, text):\n    return '{{\"candidates\": []}}{after}'\n")
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["answers"] = ["no answer"]
    pipelines = serving_reader(tiny_model, pipelines=["sh_conflict"])
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=pipelines)
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path, rows)), "--out", str(run))
    scores = [score for score in lines(run / "scores/tiny/scores.jsonl") if score["view"] == "sh_conflict"]
    assert [(score["finish_reason"], score["metrics"]["subem"]) for score in scores] == [("stop", True)] + [("stop", False)] * 4
    (row,) = (row for row in printed("table", str(run))["rows"] if row["view"] == "sh_conflict")
    assert row["failed"] == 0
    coldread("replay", str(run))
    assert ("text after the JSON" in coldread("show", str(run), "ada/0").stdout) is bool(after)


FAILS = """
def complete(self, batch, decoding):
    return [Output(ids=(), finish_reason="error", error="the engine is tired") for _ in batch]
"""


def test_a_fault_that_leaves_no_answer_is_wrong_and_stays_in_every_denominator(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(ANSWER, FAILS)
    # A gold that a scorer would find in what an abstention says.
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["answers"] = ["no answer"]
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model))
    run = tmp_path / "run"
    coldread("run", str(experiment), "--data", str(write_rows(tmp_path, rows)), "--out", str(run))
    scores = [score for score in lines(run / "scores/tiny/scores.jsonl") if score["view"] != "cmc"]
    assert len(scores) == 35
    assert {score["finish_reason"] for score in scores} == {"error"}
    assert not any(any(score["metrics"].values()) for score in scores)
    assert json.loads((run / READS / "seal.json").read_text())["counts"]["pipelines"]["failed"] == 35
    rows_of = printed("table", str(run))["rows"]
    assert [row["failed"] for row in rows_of if row["view"] != "cmc"] == [5] * 7
    coldread("replay", str(run))
    coldread("report", str(run))
    assert "the engine is tired" in coldread("show", str(run), "ada/0").stdout


def test_an_abstention_is_right_where_a_gold_is_what_it_says_and_not_where_one_stands_inside(served_run: Path) -> None:
    run, metrics = OpenRun(served_run), find_metrics()
    for gold, right in (("No", False), ("answer", False), ("Seine", False), ("No answer.", True)):
        # sh_conflict and its like abstain on two questions, car on one; the direct answer "I do not know" is no abstention.
        scores = score_reader(run, "tiny", dict.fromkeys(QUESTIONS, (gold,)), metrics)
        abstained = [score for score in scores if score.prediction == NONE]
        assert len(abstained) == 7
        assert {verdict for score in abstained for verdict in score.metrics.values()} == {right}
    direct = next(
        score
        for score in score_reader(run, "tiny", dict.fromkeys(QUESTIONS, ("No",)), metrics)
        if score.view == "direct" and score.prediction == UNKNOWN
    )
    assert direct.metrics == {"subem": True, "subem_words": False, "strict_em": False}


def two_caps(model: Path, wide: int, narrow: int, *pipelines: str) -> list[dict[str, Any]]:
    """Two readers of one model, `wide` and `narrow`; a byte is a token."""
    (use,) = their_reader(model, model / "tokenizer.json", output_cap=64)
    return [
        {"use": {**use["use"], "name": name, "input_cap": cap}, "views": [], "pipelines": list(pipelines)}  # type: ignore[dict-item]
        for name, cap in (("wide", wide), ("narrow", narrow))
    ]


def test_evidence_that_no_call_had_room_for_is_counted_and_keeps_two_readers_from_being_compared(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(*engine())
    # One of the two has no room for five records and a prompt.
    run = make_served_run(tmp_path, tiny_model, readers=two_caps(tiny_model, 2_000, 400, "direct"))
    dropped = {
        name: [trace.get("dropped", 0) for trace in lines(run / f"reads/{name}/pipelines/traces.jsonl")]
        for name in ("wide", "narrow")
    }
    assert dropped["wide"] == [0] * 5
    assert max(dropped["narrow"]) > 0
    scores = {name: lines(run / f"scores/{name}/scores.jsonl") for name in dropped}
    assert {name: [score["cut"] for score in own] for name, own in scores.items()} == dropped
    cut = {row["reader"]: row["cut"] for row in printed("table", str(run))["rows"]}
    assert cut == {"wide": 0, "narrow": sum(count > 0 for count in dropped["narrow"])}
    count = next(filter(None, dropped["narrow"]))
    for command in (
        ("compare", str(run), "wide", "narrow"),
        ("contrast", str(run), "--a", "wide", "--b", "narrow", "--view", "direct"),
    ):
        said = coldread(*command, code=10).stderr
        assert "view 'direct'" in said
        assert f"the first calls left out 0 and {count} of the records retrieved" in said
    question = QUESTIONS[dropped["narrow"].index(max(dropped["narrow"]))]
    assert f"{max(dropped['narrow'])} left out" in coldread("show", str(run), question).stdout
    coldread("replay", str(run))


@pytest.mark.parametrize(
    ("pipeline", "stage"), [("sh_conflict", "candidates"), ("sh_conflict_llm", "candidates"), ("car", "decompose")]
)
def test_a_first_call_that_was_refused_to_one_of_two_readers_keeps_them_from_being_compared(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path], pipeline: str, stage: str
) -> None:
    plugin(*engine())
    # A budget that has no room for any record leaves none to the caps, so that the refusal alone tells the two apart.
    readers = two_caps(tiny_model, 4_000, 120, pipeline)
    run = make_served_run(tmp_path, tiny_model, readers=readers, settings={"budget": 1})
    refused = {
        name: [call["stage"] for call in lines(run / f"reads/{name}/pipelines/calls/calls.jsonl") if call.get("refused")]
        for name in ("wide", "narrow")
    }
    assert refused["wide"] == []
    assert refused["narrow"][0] == stage
    for pair in (("wide", "narrow"), ("narrow", "wide")):
        said = coldread("compare", str(run), *pair, code=10).stderr
        assert f"the first call to 'narrow' in {run} could not be made" in said


def test_what_was_cut_and_what_failed_stands_beside_each_pipeline_that_is_set_against_another(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(*engine())
    # Neither has room for all records of a direct answer, nor for any list.
    run = make_served_run(tmp_path, tiny_model, readers=two_caps(tiny_model, 400, 400, "direct", "sh_conflict"))
    traces = lines(run / "reads/wide/pipelines/traces.jsonl")
    cut = {name: sum(t.get("dropped", 0) > 0 for t in traces if t["pipeline"] == name) for name in ("direct", "sh_conflict")}
    assert 0 < cut["direct"] <= cut["sh_conflict"] == 5
    faults = sum(t["pipeline"] == "direct" and t.get("fault") is not None for t in traces)
    assert faults < 5
    told = {"direct": {"cut": cut["direct"], "failed": faults}, "sh_conflict": {"cut": 5, "failed": 5}}
    found = printed("compare", str(run), "wide", "narrow")
    assert found["a"]["views"] == found["b"]["views"] == told
    shown = coldread("compare", str(run), "wide", "narrow").stdout
    assert shown.count(f"direct: cut {cut['direct']}, failed {faults}") == shown.count("sh_conflict: cut 5, failed 5") == 2
    asked = ("contrast", str(run), "--a", "direct", "--b", "sh_conflict", "--reader", "wide")
    rows = printed(*asked)["contrasts"]
    assert [rows[-1][name] for name in ("cut_a", "cut_b", "failed_a", "failed_b")] == [cut["direct"], 5, faults, 5]
    assert sum(row["failed_b"] for row in rows[:-1]) == 5
    assert f"A cut {cut['direct']}, failed {faults}; B cut 5, failed 5, of 5 questions" in coldread(*asked).stdout


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pipelines": {"seed": -1}}, "seed -1"),
        ({"pipelines": {"seed": 1 << 63}}, "seed"),
        *(
            ({"pipelines": {"temperature": text}}, f"temperature {text!r} is no plain decimal from 0.01 to below 100")
            for text in ("0", "0_7", " 0.7 ", "0.009", "7e-1", "+1", ".7", "1.", "nan", "inf", "100", "٠.٧", "")
        ),
        ({"readers": ["[/b]"]}, "pipeline name '[/b]'"),
    ],
)
def test_settings_and_names_that_cannot_mean_what_they_say_are_refused(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    names = changes.pop("readers", ["direct_sampled"])
    experiment = write_experiment(tmp_path, tiny_model, readers=serving_reader(tiny_model, pipelines=names), **changes)
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        make_plan(str(experiment), None, None)


def test_what_cannot_be_served_is_refused(tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]) -> None:
    plugin(engine()[0])
    data, out = ("--data", str(write_rows(tmp_path))), tmp_path / "run"
    unknown = write_experiment(
        tmp_path, tiny_model, readers=serving_reader(tiny_model, pipelines=["sh_conflit"]), views=["cmc"]
    )
    assert "sh_conflit" in coldread("run", str(unknown), *data, "--out", str(out), code=3).stderr
    assert not out.exists()
    # A plug-in's engine is not made before something is asked of it; then it says so, and nothing is left half-written.
    only_reads = write_experiment(tmp_path, tiny_model, readers=serving_reader(tiny_model), views=["cmc"])
    assert "has no `complete`" in coldread("run", str(only_reads), *data, "--out", str(out), code=3).stderr
    assert not (out / SERVED).exists()
    assert not (out / READS / "seal.json").exists()


def test_a_dry_run_counts_the_calls_that_hang_on_no_answer(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(ANSWER)
    experiment = write_experiment(tmp_path, tiny_model, views=["cmc"], readers=serving_reader(tiny_model))
    command = ["run", str(experiment), "--data", str(write_rows(tmp_path)), "--dry-run"]
    # Five questions each: direct, sampled, lists, lists again, plans.
    assert printed(*command)["readers"]["tiny"]["pipelines"] == {"pipelines": 7, "questions": 5, "calls_at_least": 25}
    assert "at least 25 calls" in coldread(*command).stdout.replace("\n", " ")


def test_diagnostics_by_hand_open_no_label(copied_served_run: Path) -> None:
    ledger = (copied_served_run / "labels/ledger.jsonl").read_bytes()
    found = printed("pipelines", str(copied_served_run))["readers"]["tiny"]
    assert (copied_served_run / "labels/ledger.jsonl").read_bytes() == ledger
    assert (found["sampled"], found["unit"]) == (["direct_sampled"], "tokens")
    single, car = found["pipelines"]["sh_conflict"], found["pipelines"]["car"]
    names = ("questions", "abstained", "lists", "empty", "candidates", "contested")
    assert [single[name] for name in names] == [5, 2, 5, 2, 5, 2]
    # The plan of ada/1 has two hops; of carl/1 the first has no answer.
    assert [car[name] for name in ("planned", "executed", "first_failed", "contested")] == [6, 6, {"1": 1}, 3]
    assert found["pipelines"]["sh_conflict_fallback"]["fallbacks"] == 2
    assert {stage: cost["calls"] for stage, cost in found["stages"].items()} == {
        **{"direct": 5, "direct sampled": 5, "candidates": 6, "candidates again": 5, "decompose": 5, "choose": 3}
    }
    assert all(float(cost["seconds"]) >= 0 for cost in found["stages"].values())
    assert found["agreement"] == [{"pipeline": "sh_conflict_rerun", "against": "sh_conflict", "lists": 5, "same": 5}]


def test_the_isolation_table_sets_code_and_model_over_the_same_candidates(served_run: Path) -> None:
    rows = printed("pipelines", str(served_run))["readers"]["tiny"]["isolation"]
    cells = {(row["code"], row["population"], row["hop_class"]): row for row in rows}
    contested = cells["sh_conflict", "contested", "sh"]
    # Ada and Carl moved: code takes the newer home, the model the older one.
    right = (contested["right_code"]["correct"], contested["right_model"]["correct"], contested["same_position"])
    assert (contested["questions"], *right) == (2, 2, 0, 0)
    # Wilson 95 % of 2/2 is [34.24, 100], of 0/2 [0, 65.76].
    assert (contested["right_code"]["low"], contested["right_model"]["high"]) == ("34.24", "65.76")
    whole = cells["sh_conflict", "all", "all"]
    assert (whole["questions"], whole["right_code"]["correct"], whole["right_model"]["correct"]) == (5, 3, 1)
    # Bob has one home; where nothing was listed, nothing was chosen.
    assert whole["same_position"] == 1
    assert ("sh_conflict", "contested", "mh") not in cells
    # Carl's history is three statements long: he moved, and nobody is nobody.
    short = cells["sh_conflict", "length:3", "sh"]
    assert (short["questions"], short["right_code"]["correct"], short["right_model"]["correct"]) == (2, 1, 0)
    for length in (5, 3):
        moved = cells["sh_conflict", f"contested:{length}", "sh"]
        assert (moved["questions"], moved["right_code"]["correct"], moved["right_model"]["correct"]) == (1, 1, 0)


def test_how_much_there_was_to_choose_from_stands_beside_the_choices(served_run: Path) -> None:
    rows = printed("pipelines", str(served_run))["readers"]["tiny"]["isolation"]
    cells = {(row["population"], row["hop_class"]): (row["listed"], row["positions"], row["took_none"]) for row in rows}
    # Two homes of Ada, two of Carl, one of Bob.
    assert cells["all", "all"] == (3, 5, 0)
    assert cells["contested", "sh"] == (2, 4, 0)
    assert cells["length:3", "sh"] == (1, 2, 0)
    assert "chose none" not in coldread("pipelines", str(served_run)).stdout


def test_a_model_that_chooses_nothing_is_wrong_and_its_fallback_is_not_taken_for_its_choice(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    body, says = engine()
    assert '"value": value}' in says
    plugin(body, says.replace('"value": value}', '"value": " "}'))
    arms = ["direct", "sh_conflict", "sh_conflict_llm", "sh_conflict_fallback", "sh_conflict_llm_fallback"]
    run = make_served_run(tmp_path, tiny_model, readers=serving_reader(tiny_model, pipelines=arms))
    rows = printed("pipelines", str(run))["readers"]["tiny"]["isolation"]
    # Bob's one home is the direct answer too, so the arm with a fallback is right there, having chosen nothing.
    scores = {(score["view"], score["question"]): score for score in lines(run / "scores/tiny/scores.jsonl")}
    assert scores["sh_conflict_llm_fallback", "ada/2"]["metrics"]["subem"]
    assert {(row["code"], row["model"]) for row in rows} == {("sh_conflict", "sh_conflict_llm")}
    (whole,) = [row for row in rows if (row["population"], row["hop_class"]) == ("all", "all")]
    assert (whole["questions"], whole["right_code"]["correct"], whole["right_model"]["correct"]) == (5, 3, 0)
    assert (whole["listed"], whole["same_position"], whole["took_none"]) == (3, 0, 3)
    shown = coldread("pipelines", str(run)).stdout
    assert "sh_conflict_llm: on 3 of 3 questions with candidates it chose none of them" in shown


def test_complementarity_with_the_direct_answer(served_run: Path) -> None:
    rows = printed("pipelines", str(served_run))["readers"]["tiny"]["complementarity"]
    (car,) = [row for row in rows if (row["pipeline"], row["hop_class"]) == ("car", "all")]
    assert [car[name] for name in ("both", "only_pipeline", "only_direct", "neither")] == [1, 3, 0, 1]
    assert (car["direct_where_right"]["correct"], car["direct_where_right"]["questions"]) == (1, 4)
    assert {row["pipeline"] for row in rows} == {name for name in PIPELINES if not name.startswith("direct")}


def test_complementarity_says_on_how_many_questions_both_were_shown_the_same_records(
    served_run: Path, tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    def same(run: Path) -> int:
        rows = printed("pipelines", str(run))["readers"]["tiny"]["complementarity"]
        return next(row["same_evidence"] for row in rows if (row["pipeline"], row["hop_class"]) == ("sh_conflict", "all"))

    assert same(served_run) == 5
    plugin(*engine())
    # A byte is a token: a direct question about five records takes some 510, a list some 1,050, so the latter loses records.
    (use,) = serving_reader(tiny_model, pipelines=["direct", "sh_conflict"])
    narrow = {**use, "use": {**use["use"], "input_cap": 1_030}}  # type: ignore[dict-item]
    run = make_served_run(tmp_path, tiny_model, readers=[narrow])
    dropped = [trace["dropped"] for trace in lines(run / SERVED / "traces.jsonl")]
    assert [count > 0 for count in dropped] == [False] * 5 + [True] * 3 + [False] * 2
    assert same(run) == 2


def test_an_unscored_run_is_diagnosed_without_labels(copied_served_run: Path) -> None:
    shutil.rmtree(copied_served_run / "scores")
    found = printed("pipelines", str(copied_served_run))
    assert found["metric"] is None
    assert not {"isolation", "complementarity"} & found["readers"]["tiny"].keys()
    assert "sh_conflict" in coldread("pipelines", str(copied_served_run)).stdout


def test_seconds_are_marked_as_unsealed_and_a_damaged_file_of_them_is_as_good_as_none(copied_served_run: Path) -> None:
    found = printed("pipelines", str(copied_served_run))["readers"]["tiny"]
    assert found["seconds_sealed"] is False
    assert "seconds are not covered by the seal" in " ".join(coldread("pipelines", str(copied_served_run)).stdout.split())
    for damaged in (b"{}", b"\xff\n", b""):
        (copied_served_run / SERVED / "timings.json").write_bytes(damaged)
        stages = printed("pipelines", str(copied_served_run))["readers"]["tiny"]["stages"]
        assert {stage["seconds"] for stage in stages.values()} == {None}
    coldread("replay", str(copied_served_run))


def test_the_printed_diagnostics_fit_and_cut_no_number(served_run: Path) -> None:
    shown = coldread("pipelines", str(served_run)).stdout
    assert max(map(len, shown.splitlines())) <= 100
    for number in ("2 (100.00 %, 34.24-100.00)", "length:5", "sh_conflict_fallback", "first without an answer"):
        assert number in shown


def test_a_length_that_looks_like_markup_is_printed_as_it_is(served_run: Path) -> None:
    told = coldread("pipelines", str(served_run), "--json").stdout.replace("length:5", "length:[/b]")
    console = Console(record=True, width=100, file=io.StringIO())
    pipeline_tables.pipelines(console, msgspec.json.decode(told, type=PipelineReport))
    assert "length:[/b]" in console.export_text()


def test_a_run_without_pipelines_says_so(copied_run: Path, served_run: Path) -> None:
    assert "no reader that serves pipelines; name some" in coldread("pipelines", str(copied_run), code=10).stderr
    assert "those that do: tiny" in coldread("pipelines", str(served_run), "--reader", "other", code=2).stderr


def test_the_main_table_has_a_row_for_each_pipeline_and_marks_what_sampled(served_run: Path) -> None:
    table = printed("table", str(served_run))
    rows = {row["view"]: row for row in table["rows"]}
    assert list(rows) == ["cmc", *PIPELINES]
    assert [name for name, row in rows.items() if row.get("sampled")] == ["direct_sampled"]
    calls = {call["digest"]: call["length"] for call in lines(served_run / SERVED / "calls/calls.jsonl")}
    for name in PIPELINES:
        traces = [trace for trace in lines(served_run / SERVED / "traces.jsonl") if trace["pipeline"] == name]
        named = [call for trace in traces for call in trace["calls"]]
        assert rows[name]["requests"] == len(set(named))
        assert rows[name]["input_mean"] == round(sum(calls[call] for call in named) / 5, 1)
    assert "Sampled, where all else is decoded greedily: direct" in coldread("table", str(served_run)).stdout
    assert [line.split(",")[0] for line in coldread("table", str(served_run), "--format", "csv").stdout.splitlines()[1:]] == [
        "cmc",
        *PIPELINES,
    ]


def test_the_legend_says_of_a_pipeline_that_the_budget_cuts_it_too(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(*engine())
    # The budget has no room for a record, and no input is near a cap: the view's packets are truncated, not cut further.
    readers = serving_reader(tiny_model, pipelines=["direct"])
    run = make_served_run(tmp_path, tiny_model, readers=readers, settings={"budget": 1})
    view, pipeline = printed("table", str(run))["rows"]
    assert (view["truncated"], view["cut"]) == (5, 0)
    assert (pipeline["truncated"], pipeline["cut"]) == (0, 5)
    legend = " ".join(coldread("table", str(run)).stdout.split())
    assert (
        "truncated: packets cut to the evidence budget. cut: questions whose packet was cut further, to the reader's" in legend
    )
    assert "left out records retrieved for it, be it to the evidence budget or to the input cap." in legend


def test_a_view_and_a_pipeline_are_contrasted_and_the_contrast_can_be_declared(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(*engine())
    declared = {"contrasts": [{"a": "cmc", "b": "sh_conflict_llm"}, {"a": "cmc", "b": "car", "population": "key_change"}]}
    run = make_served_run(tmp_path, tiny_model, analysis=declared)
    found = printed("contrast", str(run))["contrasts"]
    (whole,) = [row for row in found if (row["b"], row["hop_class"]) == ("sh_conflict_llm", "all")]
    # cmc shows current records only, so its reader is right on Ada, Bob and Carl; the model's choice on Bob alone.
    assert [whole[name] for name in ("both", "only_a", "only_b", "neither", "declared")] == [1, 2, 0, 2, True]
    # Previous values lead elsewhere from Ada: to Rome and the Tiber. Of her two questions car alone finds the river.
    changed = [row for row in found if row["b"] == "car"]
    assert [(row["hop_class"], row["questions"], row["only_b"]) for row in changed] == [
        ("sh", 1, 0),
        ("mh", 1, 1),
        ("all", 2, 1),
    ]
    asked = ("contrast", str(run), "--a", "car", "--b", "direct")
    assert {row["declared"] for row in printed(*asked)["contrasts"]} == {False}
    assert "'car' is a pipeline" in coldread(*asked, "--evidence", code=3).stderr
    assert set(printed("labels", str(run))["sensitivity"]["tiny"]) == {"cmc", *PIPELINES}


def test_two_readers_pipelines_are_compared_only_if_they_are_the_same_algorithm(
    tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(*engine())
    (use,) = their_reader(tiny_model, tiny_model / "tokenizer.json", output_cap=64)
    two = [{"use": {**use["use"], "name": name}, "views": ["cmc"], "pipelines": ["car"]} for name in ("tiny", "other")]  # type: ignore[dict-item]
    run = make_served_run(tmp_path, tiny_model, readers=two)
    cell = printed("compare", str(run), "tiny", "other")["views"]["car"]["all"]
    assert (cell["both"], cell["neither"], cell["questions"]) == (4, 1, 5)
    assert printed("contrast", str(run), "--a", "tiny", "--b", "other", "--view", "car")["contrasts"]
    (tmp_path / "second").mkdir()
    narrow = make_served_run(tmp_path / "second", tiny_model, readers=two, pipelines={"k": 3})
    errors = coldread("compare", str(run), "tiny", "other", "--other", str(narrow), code=10).stderr
    assert "view 'car'" in errors
    assert "settings, prompts, histories or questions of the pipeline differ" in errors


def test_show_tells_candidates_hops_and_calls(served_run: Path) -> None:
    found = printed("show", str(served_run), "ada/1")["pipelines"]["car"]["tiny"]
    assert [(hop["resolved"], hop["answer"]) for hop in found["hops"]] == [
        ("Where does Ada live?", "Paris"),
        ("On which river lies Paris?", "Seine"),
    ]
    first = json.loads((served_run / "data/histories.jsonl").read_text().splitlines()[0])["statements"][0]["position"]
    assert [each["position"] for each in found["hops"][0]["candidates"]] == [first, first + 4]
    assert [call["stage"] for call in found["calls"]] == ["decompose", "candidates", "candidates"]
    assert json.loads(found["calls"][0]["text"])["hops"][1] == "On which river lies {hop_1}?"
    assert "hop 2: 'On which river lies Paris?' answered Seine" in coldread("show", str(served_run), "ada/1").stdout


def test_the_shipped_assembly_experiment_resolves_with_its_declared_contrasts() -> None:
    experiment = make_plan("assembly", None, None).experiment
    (plan,) = experiment.readers
    assert plan.answered[:2] == ("cmc", "direct")
    assert len(plan.answered) == 11
    declared = [(contrast.a, contrast.b) for contrast in experiment.analysis.contrasts]  # type: ignore[union-attr]
    assert declared == [("sh_conflict", "direct"), ("sh_conflict", "sh_conflict_llm"), ("cmc", "car")]
