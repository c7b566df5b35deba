"""The command line: every documented command, its JSON, its exit codes, and what a newcomer does wrong."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import GRAMMAR, ROWS, coldread, write_experiment, write_rows

from offline.errors import ColdreadError, CommandError, ReplayError

COMMANDS = (
    *("run", "load", "extract", "encode", "freeze", "read", "probe", "score", "coverage", "labels", "table", "replay", "show"),
    *("compare", "pipelines"),
)


def subclasses(kind: type[ColdreadError]) -> set[type[ColdreadError]]:
    return {kind, *(deeper for below in kind.__subclasses__() for deeper in subclasses(below))}


def test_every_error_has_an_exit_code_of_its_own() -> None:
    codes = [kind.exit_code for kind in subclasses(ColdreadError)]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes
    assert [kind for kind in subclasses(ColdreadError) if kind.exit_code == 2] == [CommandError]  # as typer's own


def test_help_and_docs_document_the_exit_codes() -> None:
    text = coldread("--help").stdout
    page = (Path(__file__).parents[1] / "docs" / "commands.md").read_text()
    for kind in subclasses(ColdreadError) - {ColdreadError, ReplayError}:
        assert str(kind.exit_code) in text or 21 <= kind.exit_code <= 26
        assert f"| {kind.exit_code} |" in page


@pytest.mark.parametrize(
    ("option", "printed"), [("--help", (*COMMANDS, "pin")), ("--version", (f"coldread {version('coldread')}\n",))]
)
def test_help_and_version_load_no_heavy_library(option: str, printed: tuple[str, ...]) -> None:
    script = (
        f"import sys\nsys.argv = ['coldread', '{option}']\nimport coldread\n"
        "try:\n    coldread.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'datasets', 'scipy', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in printed)


def test_the_packages_are_this_distributions_wherever_one_stands(tmp_path: Path) -> None:
    # -P and a folder with decoys of the same generic names.
    for name in ("eval", "offline"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a decoy')")
    script = "import sys, offline, readers, extract, eval, coldread\n"
    script += "for name in ('offline', 'readers', 'extract', 'eval', 'coldread'): print(sys.modules[name].__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    top = Path(__file__).resolve().parents[1]
    installed = {str(file.locate()) for file in files("coldread") or []}
    assert version("coldread")
    for path in done:
        assert Path(path).is_relative_to(top) or path in installed


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def start(folder: Path, model: Path, *more: str, until: str = "freeze", code: int = 0, **changes: object) -> tuple[Path, str]:
    run = folder / "run"
    experiment, rows = write_experiment(folder, model, **changes), write_rows(folder)
    command = ["run", str(experiment), "--data", str(rows), "--out", str(run), "--until", until, *more]
    return run, coldread(*command, code=code).stderr


def test_each_step_alone_makes_the_same_run_as_run_does(scored_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    source = scored_run.parent
    coldread("load", str(run), "--experiment", str(source / "experiment.yaml"), "--data", str(source / "rows.jsonl"))
    for step in ("extract", "freeze", "read", "score"):
        coldread(step, str(run))
    for path in sorted(p for p in scored_run.rglob("*") if p.is_file() and p.name not in {"timings.json", "manifest.json"}):
        assert (run / path.relative_to(scored_run)).read_bytes() == path.read_bytes(), path
    coldread("replay", str(run))


@pytest.mark.parametrize("step", ["extract", "freeze", "read", "coverage", "labels", "score", "replay"])
def test_a_step_out_of_order_names_the_command_to_run_first(tiny_model: Path, tmp_path: Path, step: str) -> None:
    run, _ = start(tmp_path, tiny_model, until="load")
    if step == "extract":
        coldread("extract", str(run))
        return
    assert "coldread " in coldread(step, str(run), code=10).stderr


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, command: str) -> None:
    more = {"show": ["q"], "compare": ["a", "b"]}.get(command, [])
    assert coldread(command, str(tmp_path), *more, code=10).stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_skips_every_step(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()}
    _, said = start(tmp_path, tiny_model)
    assert said.count("up to date") == 3
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.rglob("*") if p.is_file()} == before


def test_a_changed_setting_makes_only_what_depends_on_it_anew(tiny_model: Path, tmp_path: Path) -> None:
    start(tmp_path, tiny_model)
    _, said = start(tmp_path, tiny_model, settings={"hops": 1})
    assert [line.split()[0] for line in said.splitlines() if "written" in line] == ["freeze"]


def test_an_altered_step_is_refused_not_overwritten(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model)
    path = run / "packets" / "cmc.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ada", b"adb"))
    altered = path.read_bytes()
    assert "cmc.jsonl" in start(tmp_path, tiny_model, code=20)[1]
    assert path.read_bytes() == altered


def test_show_tells_the_whole_story_without_opening_labels(tiny_model: Path, tmp_path: Path, copied_run: Path) -> None:
    run, _ = start(tmp_path, tiny_model, until="read")
    story = json.loads(coldread("show", str(run), "ada/1", "--json").stdout)
    assert story["golds"] is None
    assert not (run / "labels" / "ledger.jsonl").exists()
    assert story["views"]["cmc"]["evidence"].splitlines()[1:] == [
        "[2] Paris lies on the river Seine.",
        "[4] Ada lives in Paris.",
    ]
    scored = json.loads(coldread("show", str(copied_run), "ada/1", "--json").stdout)
    assert scored["golds"] == ["Seine", "La Seine"]
    assert set(scored["views"]["cmc"]["answers"]["tiny"]["metrics"]) == {"subem", "strict_em", "subem_words"}
    assert "gold: Seine | La Seine" in coldread("show", str(copied_run), "ada/1").stdout


def test_show_of_an_unknown_question_names_close_ones(copied_run: Path) -> None:
    assert "ada/1" in coldread("show", str(copied_run), "ada/11", code=2).stderr


def test_a_dry_run_counts_what_reading_then_sends_and_keeps_nothing(tiny_model: Path, tmp_path: Path, scored_run: Path) -> None:
    experiment, rows = write_experiment(tmp_path, tiny_model), write_rows(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    counted = json.loads(coldread("run", str(experiment), "--data", str(rows), "--dry-run", "--json").stdout)
    seal = json.loads((scored_run / "reads/tiny/seal.json").read_text())
    assert counted["readers"]["tiny"]["scheduled"] == seal["counts"]["scheduled"]
    assert counted["readers"]["tiny"]["requests"] == seal["counts"]["generated"]
    # The certificate comes on top: three readings of the requests that it really probed.
    sizes = {r["digest"]: r["length"] for r in lines(scored_run / "reads/tiny/requests/requests.jsonl")}
    probed = [sizes[p["request"]] for p in lines(scored_run / "reads/tiny/probes.jsonl") if p["condition"] == "alone"]
    assert counted["readers"]["tiny"]["certificate"] == {"sample": 8, "readings": 3, "input_tokens": 3 * sum(probed)}
    assert counted["readers"]["tiny"]["input_tokens"] == seal["counts"]["input_tokens"] + 3 * sum(probed)
    assert counted["readers"]["tiny"]["output_tokens_at_most"] == 12 * (seal["counts"]["generated"] + 3 * 8)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_minutes_of_a_dry_run_are_with_the_certificate_and_a_line_says_so(tmp_path: Path) -> None:
    reader = {"name": "tiny", "model": {"folder": str(tmp_path / "nowhere")}, "output_cap": 12, "batch_size": 4}

    def plan(**changes: object) -> tuple[dict[str, Any], str]:
        path = write_experiment(tmp_path, tmp_path, readers=[{"use": {**reader, **changes}}])
        command = [
            "run",
            str(path),
            "--data",
            str(write_rows(tmp_path)),
            "--dry-run",
            "--input-rate",
            "1",
            "--output-rate",
            "1",
        ]
        told = json.loads(coldread(*command, "--json").stdout)["readers"]["tiny"]
        return told, " ".join(coldread(*command).stdout.split())

    (bare, said), (two, said_of_two) = plan(engine="transformers", probe=0), plan(engine="transformers", probe=2)
    assert bare["certificate"] is None
    assert "certificate" not in said
    assert "questions x views" in said
    assert "which reads 2 requests 3 times" in said_of_two
    # A token a second both ways: three readings of two requests and of their answers, at 12 tokens each.
    more = two["certificate"]["input_tokens"]
    assert two["input_tokens"] == bare["input_tokens"] + more
    assert two["minutes"] == pytest.approx(bare["minutes"] + (more + 3 * 2 * 12) / 60, abs=0.11)
    readings = {
        "cached": plan(engine="vllm")[0],
        "uncached": plan(engine="vllm", options={"enable_prefix_caching": False})[0],
        "lone": plan(engine="transformers", batch_size=1)[0],
    }
    assert {name: told["certificate"]["readings"] for name, told in readings.items()} == {"cached": 5, "uncached": 3, "lone": 1}


def test_a_dry_run_encodes_nothing_and_reckons_a_dense_view_as_bm25_in_its_place(tiny_model: Path, tmp_path: Path) -> None:
    views, encoder = ["fact_bm25", "fact_dense", "chunk_dense"], {"name": "e", "model": {"folder": str(tmp_path / "nowhere")}}
    reader = {"name": "tiny", "engine": "transformers", "model": {"folder": str(tiny_model)}, "probe": 0}
    changes = {"views": views, "retrieval": {"encoder": encoder}, "settings": {"k": 1}, "readers": [{"use": reader}]}
    rows = write_rows(tmp_path)

    def estimate(**more: object) -> dict[str, Any]:
        path = write_experiment(tmp_path, tiny_model, **{**changes, **more})
        printed = coldread("run", str(path), "--data", str(rows), "--dry-run", "--json").stdout
        return dict(json.loads(printed))

    lexical, chunks, both = (estimate(views=v) for v in (["fact_bm25"], ["chunk2048_bm25"], views))
    sums = {
        name: 2 * lexical["readers"]["tiny"][name] + chunks["readers"]["tiny"][name] for name in ("requests", "input_tokens")
    }
    assert {name: both["readers"]["tiny"][name] for name in sums} == sums
    assert (lexical["readers"]["tiny"]["tokens_counted"], both["readers"]["tiny"]["tokens_counted"]) == (True, False)
    assert both["stand_ins"] == {"fact_dense": "fact_bm25", "chunk_dense": "chunk2048_bm25"}
    # Current facts: Ada's, Bob's and Carl's homes and two rivers, 5 texts; each history is one chunk.
    assert both["encode"] == {"e": {"passages": 7, "questions": 5, "download": None}}
    assert "stand_ins" not in lexical


def test_a_dry_run_counts_the_pairs_of_a_reranker_that_needs_no_encoder(tiny_model: Path, tmp_path: Path) -> None:
    retrieval = {"reranker": {"name": "r", "model": {"folder": str(tmp_path / "nowhere")}}}
    path = write_experiment(tmp_path, tiny_model, views=["fact_bm25_rerank"], retrieval=retrieval)
    printed = coldread("run", str(path), "--data", str(write_rows(tmp_path)), "--dry-run", "--json").stdout
    # Ada's history has four current facts and three questions, Carl's one and two.
    assert json.loads(printed)["encode"] == {"r": {"pairs": 14, "download": None}}
    assert json.loads(printed)["stand_ins"] == {"fact_bm25_rerank": "fact_bm25"}


def test_a_dry_run_refuses_what_a_run_refuses_before_it_does_anything(tiny_model: Path, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, tiny_model, views=["fact_dense"])
    refused = coldread("run", str(path), "--data", str(write_rows(tmp_path)), "--dry-run", code=3).stderr
    assert refused.startswith("error: view 'fact_dense' needs a model")


def test_a_dry_run_without_the_model_guesses_and_says_so(tmp_path: Path) -> None:
    experiment, rows = write_experiment(tmp_path, tmp_path / "nowhere"), write_rows(tmp_path)
    counted = json.loads(coldread("run", str(experiment), "--data", str(rows), "--dry-run", "--json").stdout)
    assert counted["readers"]["tiny"]["tokens_counted"] is False
    assert "is not there" in counted["readers"]["tiny"]["note"]


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"viewz": ["cmc"]}, 3, "views"),
        ({"views": ["cmc", "cmd"]}, 3, "unknown view 'cmd'"),
        ({"views": []}, 3, "views"),
        ({"regime": "huge"}, 3, "regime"),
        ({"settings": {"hopps": 3}}, 3, "hops"),
        ({"settings": {"budget": 0}}, 3, "budget"),
        ({"frontend": {"kind": "grammar", "grammar": "nope"}}, 3, "nope"),
        ({"frontend": {"kind": "oracle"}}, 3, "oracle"),
        ({"prompt": "nope"}, 3, "nope"),
        ({"readers": [{"use": "nope"}]}, 3, "nope"),
        ({"readers": [{"use": {"name": "r", "engine": "transformers", "model": {"repository": "a/b"}}}]}, 6, "not pinned"),
        ({"data": {"kind": "plain", "rows": ["bob"]}}, 4, "bob"),
    ],
)
def test_a_wrong_experiment_is_one_clear_error_and_no_partial_run(
    tiny_model: Path, tmp_path: Path, changes: dict[str, object], code: int, message: str
) -> None:
    run, errors = start(tmp_path, tiny_model, code=code, **changes)
    assert message in errors
    assert errors.count("error:") == 1
    assert not (run / "packets").exists()


def test_duplicate_keys_in_an_experiment_name_their_line(tiny_model: Path, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, tiny_model)
    path.write_text(path.read_text() + "name: again\n")
    line = len(path.read_text().splitlines())
    errors = coldread("run", str(path), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"), code=3).stderr
    assert f"line {line}" in errors
    assert not (tmp_path / "run").exists()


def test_a_missing_model_ends_reading_with_its_packets_kept(tmp_path: Path) -> None:
    run, errors = start(tmp_path, tmp_path / "nowhere", until="score", code=6)
    assert "nowhere" in errors
    assert (run / "packets" / "manifest.json").exists()


def test_a_missing_data_file_is_one_clear_error(tiny_model: Path, tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path, tiny_model)
    errors = coldread("run", str(experiment), "--data", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "r"), code=4).stderr
    assert "no such file" in errors


@pytest.mark.parametrize("until", ["reed", ""])
def test_an_unknown_step_names_the_steps(tiny_model: Path, tmp_path: Path, until: str) -> None:
    assert "load, extract, encode, freeze, read, score" in start(tmp_path, tiny_model, until=until, code=2)[1]


def test_a_full_disk_is_one_clear_error_and_leaves_no_partial_file(tiny_model: Path, tmp_path: Path, full_disk: Path) -> None:
    rows: list[dict[str, object]] = json.loads(json.dumps(ROWS))
    rows[0]["statements"] += [f"Person{i} lives in {'x' * 100}." for i in range(2000)]  # type: ignore[operator]
    experiment = write_experiment(tmp_path, tiny_model)
    run = full_disk / "run"
    data = write_rows(tmp_path, rows)
    errors = coldread("run", str(experiment), "--data", str(data), "--out", str(run), code=7).stderr
    assert "cannot write" in errors
    assert [p for p in run.rglob("*") if "partial" in p.name or p.name == "histories.jsonl"] == []


def test_a_read_only_folder_is_one_clear_error(tiny_model: Path, tmp_path: Path, read_only_folder: Path) -> None:
    experiment, rows = write_experiment(tmp_path, tiny_model), write_rows(tmp_path)
    done = coldread("run", str(experiment), "--data", str(rows), "--out", str(read_only_folder / "run"), code=7)
    assert "cannot write" in done.stderr


def test_results_that_cannot_be_printed_do_not_end_with_code_zero(scored_run: Path) -> None:
    # A full disk behind standard output.
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-P", "-m", "coldread", "show", str(scored_run), "ada/0", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 7, done.stderr


def test_a_run_limited_to_one_question_a_row_takes_the_first_of_each(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model, "--limit", "1", until="load")
    ids = [json.loads(line)["id"] for line in (run / "data" / "questions.jsonl").read_text().splitlines()]
    assert ids == ["ada/0", "carl/0"]
    assert "limit: 1" in (run / "experiment.yaml").read_text()


def test_no_path_of_this_machine_enters_data_packets_or_labels(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model)
    for path in run.rglob("*"):
        if path.is_file() and path.name != "experiment.yaml":
            assert str(tmp_path).encode() not in path.read_bytes(), path
    # The experiment names the model's folder, as the user wrote it, and no other path.
    assert (run / "experiment.yaml").read_text().count("/") == str(tiny_model).count("/")


def test_a_grammar_beside_its_experiment_is_found_from_any_folder(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    start(tmp_path, tiny_model, frontend={"kind": "grammar", "grammar": "homes.yaml"})
    assert GRAMMAR


@pytest.mark.real_model
def test_the_embedded_reader_reads_a_synthetic_run_that_replays(tmp_path: Path) -> None:
    """The shipped reader, with a certificate over two requests instead of eight."""
    reader = yaml.safe_load((Path(__file__).parents[1] / "configs" / "readers" / "smollm2-135m.yaml").read_text())
    experiment = write_experiment(
        tmp_path,
        tmp_path,
        data={"kind": "synthetic", "statements": [60], "questions": 4},
        frontend={"kind": "grammar", "grammar": "synthetic"},
        views=["cmc", "closed_book"],
        readers=[{"use": {**reader, "probe": 2}}],
    )
    run = tmp_path / "run"
    summary = json.loads(coldread("run", str(experiment), "--out", str(run), "--json").stdout)
    cells = summary["readers"]["smollm2-135m"]
    assert {view: sum(cell["questions"] for cell in cells[view].values()) for view in cells} == {"cmc": 4, "closed_book": 4}
    # Invented names cannot be known by heart: without evidence no question is answered.
    assert sum(cell["subem"] for cell in cells["closed_book"].values()) == 0
    assert sum(cell["subem"] for cell in cells["cmc"].values()) >= 1
    coldread("replay", str(run))


def test_a_wheel_carries_every_package_and_its_configuration_under_its_own_name(tmp_path: Path) -> None:
    top = Path(__file__).resolve().parents[1]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=top, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("coldread-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    tops = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"offline", "readers", "extract", "eval", "coldread.py", "coldread_configs"}
    assert (site / "eval" / "report" / "assets" / "page.html").is_file()
    assert [*site.glob("coldread-*.dist-info/licenses/LICENSE")]
    # From the wheel alone, away from the source tree: a shipped experiment runs to its packets.
    script = "import sys; sys.path.insert(0, sys.argv.pop(1)); import coldread; print(coldread.__file__); coldread.main()"
    command = [
        sys.executable,
        "-P",
        "-c",
        script,
        str(site),
        "run",
        "demo",
        "--until",
        "freeze",
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))


def rows_with(folder: Path, **answers: list[str]) -> Path:
    """The hand-made rows with other answers, question by question (`ada_0`)."""
    rows = json.loads(json.dumps(ROWS))
    for row in rows:
        for question in row["questions"]:
            question["answers"] = answers.get(f"{row['history']}_{question['id']}", question["answers"])
    path = folder / "other.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("command", ["extract", "freeze", "coverage", "labels", "show"])
def test_no_step_builds_on_labels_or_data_of_another_load(tiny_model: Path, tmp_path: Path, command: str) -> None:
    # The second load replaces the data and then finds a void gold: the labels are those of the first.
    run, _ = start(tmp_path, tiny_model)
    data = rows_with(tmp_path, ada_0=["..."])
    rows = json.loads(data.read_text().splitlines()[0])
    rows["statements"].append("Ada lives in Rome.")
    data.write_text(json.dumps(rows) + "\n")
    coldread("load", str(run), "--data", str(data), code=5)
    more = ["ada/0"] if command == "show" else []
    if command in {"extract", "freeze"}:
        coldread("extract", str(run))
        coldread("freeze", str(run))
        assert "coldread load" in coldread("coverage", str(run), code=10).stderr
    else:
        assert "was made from another data" in coldread(command, str(run), *more, code=10).stderr


def test_packets_of_another_setting_are_not_read(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model)
    experiment = write_experiment(tmp_path, tiny_model, settings={"hops": 1})
    coldread("load", str(run), "--experiment", str(experiment), "--data", str(tmp_path / "rows.jsonl"))
    assert "coldread freeze" in coldread("read", str(run), code=10).stderr
    assert not (run / "reads" / "tiny" / "seal.json").exists()


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_mistyped_run_is_said_to_be_no_run(tmp_path: Path, command: str) -> None:
    more = {"show": ["q"], "compare": ["a", "b"]}.get(command, [])
    assert "no run" in coldread(command, str(tmp_path / "nope"), *more, code=10).stderr
    assert not (tmp_path / "nope").exists()


def test_an_error_whose_reader_has_gone_ends_with_its_code_and_no_traceback(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-P", "-m", "coldread", "score", str(tmp_path / "nope"), "--json"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr.count("\n"), "no run" in done.stderr) == (10, 1, True), done.stderr


def test_an_error_under_json_is_one_json_object(tmp_path: Path) -> None:
    done = coldread("score", str(tmp_path / "nope"), "--json", code=10)
    assert json.loads(done.stdout)["exit_code"] == 10


@pytest.mark.parametrize("rows", ['{"history": 1}', "[1, 2", '{"history": "a", "statements": [], "questions": []}', "\x00"])
def test_malformed_rows_leave_no_folder(tiny_model: Path, tmp_path: Path, rows: str) -> None:
    (tmp_path / "bad.jsonl").write_text(rows + "\n")
    experiment = write_experiment(tmp_path, tiny_model)
    coldread("run", str(experiment), "--data", str(tmp_path / "bad.jsonl"), "--out", str(tmp_path / "a" / "run"), code=4)
    assert not (tmp_path / "a" / "run").exists()


def test_a_byte_order_mark_is_no_character(tiny_model: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path)
    data.write_bytes(b"\xef\xbb\xbf" + data.read_bytes())
    experiment = write_experiment(tmp_path, tiny_model)
    coldread("run", str(experiment), "--data", str(data), "--out", str(tmp_path / "run"), "--until", "load")


@pytest.mark.parametrize("hops", [0, -1, 1.5])
def test_a_number_of_hops_below_one_is_refused(tiny_model: Path, tmp_path: Path, hops: float) -> None:
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["hops"] = hops
    data = write_rows(tmp_path, rows)
    experiment = write_experiment(tmp_path, tiny_model)
    errors = coldread("run", str(experiment), "--data", str(data), "--out", str(tmp_path / "run"), code=4).stderr
    assert "hops" in errors


def test_a_misspelt_question_field_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    rows = json.loads(json.dumps(ROWS))
    rows[0]["questions"][0]["hop"] = 2
    experiment = write_experiment(tmp_path, tiny_model)
    data = write_rows(tmp_path, rows)
    assert "hop" in coldread("run", str(experiment), "--data", str(data), "--out", str(tmp_path / "run"), code=4).stderr


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", ".hidden", "a/b", "é", ""])
def test_a_reader_name_that_could_be_a_runs_own_file_is_refused(tiny_model: Path, tmp_path: Path, name: str) -> None:
    reader = {"name": name, "engine": "transformers", "model": {"folder": str(tiny_model)}}
    assert "reader name" in start(tmp_path, tiny_model, code=3, readers=[{"use": reader}])[1]


@pytest.mark.parametrize("value", ["!!bool xyz", '!!int ""', '!!float ""', "!!timestamp foo", "!!python/object:os.system x"])
def test_a_yaml_tag_that_does_not_fit_is_a_configuration_error(tiny_model: Path, tmp_path: Path, value: str) -> None:
    path = write_experiment(tmp_path, tiny_model)
    path.write_text(path.read_text().replace("name: homes", f"name: {value}", 1))
    coldread("run", str(path), "--data", str(write_rows(tmp_path)), "--out", str(tmp_path / "run"), code=3)


def test_unknown_names_are_refused_before_a_folder_is_made(tiny_model: Path, tmp_path: Path) -> None:
    reader = {"name": "r", "engine": "telepathy", "model": {"folder": str(tiny_model)}}
    run, errors = start(tmp_path, tiny_model, code=3, readers=[{"use": reader}])
    assert "telepathy" in errors
    assert not run.exists()


def test_any_question_id_can_be_printed_to_a_terminal_without_unicode(tiny_model: Path, tmp_path: Path) -> None:
    rows = json.loads(json.dumps(ROWS))
    rows[0]["history"], rows[0]["questions"][0]["text"] = "é/ü", "Où habite Ada ? \x1b[31m \u202e"
    run = tmp_path / "run"
    experiment, data = write_experiment(tmp_path, tiny_model), write_rows(tmp_path, rows)
    coldread("run", str(experiment), "--data", str(data), "--out", str(run), "--until", "freeze")
    for more in ([], ["--json"]):
        command = [sys.executable, "-P", "-m", "coldread", "show", str(run), "é/ü/0", *more]
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert (done.returncode, b"\x1b" in done.stdout) == (0, False), done.stderr


@pytest.mark.parametrize(
    "command",
    [("read", "--reader", "nobody"), ("probe", "--reader", "nobody"), ("show", "ada/9"), ("table", "--metric", "rouge")],
)
def test_a_name_on_the_command_line_that_nothing_has_is_a_wrong_command_line(
    copied_run: Path, command: tuple[str, ...]
) -> None:
    step, *more = command
    assert more[-1] in coldread(step, str(copied_run), *more, code=2).stderr


def test_encode_says_that_there_is_nothing_to_encode(copied_run: Path) -> None:
    assert "nothing to do: no view" in coldread("encode", str(copied_run)).stderr


def test_a_replay_of_a_run_without_a_seal_does_not_say_that_every_link_replays(tiny_model: Path, tmp_path: Path) -> None:
    run, _ = start(tmp_path, tiny_model, readers=[])
    said = coldread("replay", str(run)).stderr
    assert ("every link replays" in said, "no reader is sealed" in said) == (False, True)
