"""The step that encodes: what it writes, what it keeps, what it refuses, and that a kill changes no byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console
from tiny import ROWS, alive, children, coldread, start_coldread, write_experiment, write_rows
from tiny_retrieval import make_encoder

from eval.commands.shared import OBSERVER
from offline.canonical import read_lines, read_record
from offline.config.models import Encoder, Pin, Reranker
from offline.errors import AlteredError, EngineError, ModelError, StateError, StorageError
from offline.records import Evidence, Packet
from offline.run.manifest import MANIFEST, make_manifest, read_manifest
from offline.vectors import PairScores, TextRow, read_vectors, text_digest
from readers.encoders import encode as step
from readers.encoders.embedding import EmbeddingModel
from readers.encoders.journalled import in_slices
from readers.encoders.reranking import RerankingModel
from readers.records import Encoded, RerankedBy

pytestmark = pytest.mark.usefixtures("warm")

VIEWS = ["cmc", "fact_dense", "fact_hybrid", "chunk_dense_rerank", "fact_dense_rerank_k2"]
# Longer than a chunk may be, of 50 bytes.
LONG = "Nobody knows where on the long way from Oslo to Bergen Carl has stopped for the night."
# A fact said twice; a question asked of three histories; histories of one statement, one of them without a fact.
ODD_ROWS = [
    {**ROWS[0], "statements": [*ROWS[0]["statements"], "Ada lives in Paris."]},
    {**ROWS[1], "statements": [*ROWS[1]["statements"], LONG]},
    {
        "history": "dora",
        "statements": ["It is late."],
        "questions": [{"id": "0", "text": "Where does Ada live?", "answers": ["nobody says"]}],
    },
    {
        "history": "evan",
        "statements": ["Ada lives in Rome."],
        "questions": [{"id": "0", "text": "Where does Ada live?", "answers": ["Rome"]}],
    },
]


def models(encoder: Path, reranker: Path | None = None, **more: object) -> dict[str, object]:
    """The retrieval section of an experiment: batches of 3, the CPU."""
    shared = {"device": "cpu", "batch_size": 3}
    named = {"encoder": encoder, **({"reranker": reranker} if reranker else {})}
    return {
        **{kind: {"name": kind, "model": {"folder": str(folder)}, **shared} for kind, folder in named.items()},
        "chunk_tokens": 50,
        "chunk_k": 2,
        **more,
    }


def files(folder: Path) -> dict[str, bytes]:
    """What a folder holds, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def encoded_lines(ended: Any) -> list[str]:
    """What a command said of encoding."""
    return [line.split(maxsplit=1)[1] for line in ended.stderr.splitlines() if line.split()[:1] == ["encode"]]


class Home:
    """A folder with a run, its experiment and models of its own, which can be taken away."""

    def __init__(self, path: Path, run: Path) -> None:
        self.path, self.run, self.models = path, run, path / "models"
        self.said = ""

    def command(self, *more: str, code: int = 0, **changes: object) -> Any:
        """`coldread run` with this home's experiment, or one changed in some keys."""
        retrieval = models(self.models / "encoder", self.models / "reranker")
        given = {"views": VIEWS, "retrieval": retrieval, **changes}
        experiment = write_experiment(self.path, self.models / "reader", **given)
        data = write_rows(self.path, ODD_ROWS)
        return coldread("run", str(experiment), "--data", str(data), "--out", str(self.run), *more, code=code)

    @contextmanager
    def without(self, *names: str) -> Iterator[None]:
        """These models are not on this machine."""
        for name in names:
            (self.models / name).rename(self.path / name)
        try:
            yield
        finally:
            for name in names:
                (self.path / name).rename(self.models / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, tiny_encoder: Path, tiny_cross_encoder: Path) -> Home:
    """A run encoded and frozen. Tests that change it work on copies, which share its models."""
    folder = tmp_path_factory.mktemp("encode")
    home = Home(folder, folder / "run")
    for name, folder in (("reader", tiny_model), ("encoder", tiny_encoder), ("reranker", tiny_cross_encoder)):
        shutil.copytree(folder, home.models / name)
    home.said = home.command("--until", "freeze").stderr
    return home


@pytest.fixture(scope="module")
def sealed(made: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run read, sealed and scored where neither encoder nor reranker is to be had."""
    home = Home(made.path, Path(shutil.copytree(made.run, tmp_path_factory.mktemp("sealed") / "run")))
    with made.without("encoder", "reranker"):
        home.command()
    return home.run


@pytest.fixture
def copy(made: Home, tmp_path: Path) -> Home:
    """A home whose run may be changed; the models are the other's."""
    return Home(made.path, Path(shutil.copytree(made.run, tmp_path / "run")))


def test_every_distinct_text_has_one_vector_and_chunks_hold_every_record(made: Home) -> None:
    vectors = read_vectors(made.run / "vectors")
    texts: dict[str, dict[str, None]] = {"passage": {}, "query": {}}
    for row in ODD_ROWS:
        lines = [f"[{position}] {text}" for position, text in enumerate(row["statements"])]
        chunks = vectors.chunks[row["history"]]
        assert sorted({p for chunk in chunks for p in range(chunk.first, chunk.last + 1)}) == list(range(len(lines)))
        for chunk in chunks:
            whole = "\n".join(lines[chunk.first : chunk.last + 1])
            text = whole if chunk.first < chunk.last or not isinstance(chunk.begin, int) else whole[chunk.begin : chunk.end]
            assert len(text.encode()) - 2 * text.count("yes") - text.count("no") <= 50
            texts["passage"][text] = None
        texts["query"].update((question["text"], None) for question in row["questions"])
    # What is current, by hand: Ada moved to Paris, Carl to Bergen; Evan's history knows of her old home alone.
    facts = ["Ada lives in Paris.", "Rome lies on the river Tiber.", "Paris lies on the river Seine.", "Bob lives in Rome."]
    texts["passage"].update((fact, None) for fact in (*facts, "Carl lives in Bergen.", "Ada lives in Rome."))
    rows = list(read_lines(made.run / "vectors" / "texts.jsonl", TextRow))
    assert len(set(rows)) == len(rows)
    assert {(row.role, row.digest) for row in rows} == {(role, text_digest(t)) for role, some in texts.items() for t in some}
    # Two records of Carl's fit one chunk; the long one is cut.
    assert [(chunk.first, chunk.last) for chunk in vectors.chunks["carl"]] == [(0, 1), (2, 2), (3, 3), (3, 3)]
    stated = read_record(made.run / "vectors" / "encoder.json", Encoded)
    assert (stated.passages, stated.queries, stated.dimension, stated.cut) == (len(texts["passage"]), 5, 32, 0)
    assert f"{stated.passages} passages and 5 questions, 32 dimensions, 0 texts cut" in made.said


def test_stored_vectors_and_scores_are_those_of_the_models(made: Home) -> None:
    encoder = EmbeddingModel(Encoder("e", Pin(), device="cpu"), str(made.models / "encoder"))
    vectors, texts = read_vectors(made.run / "vectors"), ["Bob lives in Rome.", "Carl lives in Bergen."]
    np.testing.assert_allclose(vectors.of("passage", texts) / 2**24, encoder.encode("passage", texts, 1), atol=1e-5)
    stored = {pair.query: pair for pair in read_lines(made.run / "reranked" / "scores.jsonl", PairScores)}
    found = stored[text_digest("Where does Bob live?")]
    pairs = [("Where does Bob live?", text) for text in texts[:1]]
    place = found.passages.index(text_digest(texts[0]))
    np.testing.assert_allclose([float(found.scores[place])], scored(made, pairs), atol=1e-5)
    stated = read_record(made.run / "reranked" / "reranker.json", RerankedBy)
    assert stated.pairs == sum(len(pair.passages) for pair in stored.values())
    # Asked of three histories: the candidates of all three.
    of_all = stored[text_digest("Where does Ada live?")]
    assert {text_digest(t) for t in ("Ada lives in Paris.", "Ada lives in Rome.", "[0] It is late.")} <= set(of_all.passages)


def scored(home: Home, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    return RerankingModel(Reranker("r", Pin(), device="cpu"), str(home.models / "reranker")).score(pairs, 1)[0]


def shown(run: Path, view: str, question: str) -> tuple[int, ...]:
    """Positions of the records that a view shows."""
    texts = {evidence.digest: evidence for evidence in read_lines(run / "packets" / "evidence.jsonl", Evidence)}
    packets = read_lines(run / "packets" / f"{view}.jsonl", Packet)
    return next(texts[packet.evidence].positions for packet in packets if packet.question == question)


def test_reranked_views_show_what_the_reranker_scores_highest(made: Home) -> None:
    question = "On which river is the home of Ada?"
    facts = {5: "Ada lives in Paris.", 3: "Bob lives in Rome.", 2: "Paris lies on the river Seine."}
    facts[1] = "Rome lies on the river Tiber."
    scores = dict(zip(facts, scored(made, [(question, text) for text in facts.values()]), strict=True))
    best = sorted(facts, key=lambda position: -scores[position])[:2]
    assert shown(made.run, "fact_dense_rerank_k2", "ada/1") == tuple(sorted(best))
    # Two lines of 24 tokens fit a chunk of 50, one of them and a longer one do not.
    lines = [f"[{position}] {text}" for position, text in enumerate(ODD_ROWS[0]["statements"])]
    chunks = {(0,): lines[0], (1,): lines[1], (2,): lines[2], (3, 4): "\n".join(lines[3:5]), (5,): lines[5]}
    scores = dict(zip(chunks, scored(made, [(question, text) for text in chunks.values()]), strict=True))
    best = sorted(chunks, key=lambda positions: -scores[positions])[:2]
    assert shown(made.run, "chunk_dense_rerank", "ada/1") == tuple(sorted(sum(best, ())))


def test_a_second_encoding_has_nothing_to_do_and_frozen_packets_come_out_again(made: Home) -> None:
    before = files(made.run)
    ended = coldread("encode", str(made.run))
    assert [line.split(":")[0] for line in encoded_lines(ended)] == ["up to date", "up to date"]
    assert "all identical" in coldread("freeze", str(made.run), "--check").stderr
    assert "freeze  up to date" in coldread("freeze", str(made.run)).stderr
    assert files(made.run) == before
    assert not list(made.run.glob(".*"))


def test_a_run_is_read_sealed_and_replayed_without_its_encoder_and_reranker(made: Home, sealed: Path) -> None:
    with made.without("encoder", "reranker"):
        assert f"packets  {5 * 7} packets" in coldread("replay", str(sealed)).stderr
        coldread("freeze", str(sealed), "--check")
        assert [line.split(":")[0] for line in encoded_lines(coldread("encode", str(sealed)))] == ["up to date"] * 2
    for name in ("vectors", "reranked", "packets"):
        assert files(sealed / name) == files(made.run / name)
    coldread("coverage", str(sealed))
    coldread("show", str(sealed), "ada/1")


@pytest.mark.parametrize(
    "name",
    ["vectors/vectors.f32", "vectors/texts.jsonl", "vectors/chunks.jsonl", "vectors/encoder.json", "reranked/scores.jsonl"],
)
def test_a_changed_byte_of_vectors_or_scores_is_found_and_named(sealed: Path, tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(sealed, tmp_path / "altered"))
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    for command in (["freeze"], ["freeze", "--check"], ["replay"], ["score"], ["encode"]):
        assert name in coldread(command[0], str(run), *command[1:], code=AlteredError.exit_code).stderr


def reforge(folder: Path, inputs: Mapping[str, str]) -> None:
    """A manifest that fits what a step's folder holds, whoever put it there."""
    (folder / MANIFEST).unlink()
    names = [path.name for path in sorted(folder.iterdir())]
    step.write_record(folder / MANIFEST, make_manifest(folder, folder.name, inputs, names))


@pytest.mark.parametrize("name", ["vectors", "reranked"])
def test_vectors_and_scores_of_another_run_do_not_replay_even_with_a_manifest_that_fits(
    sealed: Path, tmp_path: Path, name: str
) -> None:
    run = Path(shutil.copytree(sealed, tmp_path / "forged"))
    inputs = read_manifest(run / name).inputs
    reforge(run / name, {**inputs, "configuration": "0" * 64})
    message = coldread("replay", str(run), code=AlteredError.exit_code).stderr
    assert f"{name}/{MANIFEST}: not made from this run's configuration" in message
    (run / name / "more.json").write_text("{}\n")
    reforge(run / name, inputs)
    message = coldread("replay", str(run), code=AlteredError.exit_code).stderr
    assert f"not made from this run's {name}" in message


def test_a_sealed_run_keeps_the_vectors_that_it_was_read_with(made: Home, sealed: Path, tmp_path: Path) -> None:
    with made.without("encoder"):
        make_encoder(made.models / "encoder", seed=9)
        message = coldread("encode", str(sealed), code=StateError.exit_code).stderr
        shutil.rmtree(made.models / "encoder")
    assert "is sealed; a sealed run is never changed" in message
    coldread("replay", str(sealed))


def test_scores_are_made_again_when_their_configuration_changes_and_are_the_same_bytes(copy: Home) -> None:
    before = files(copy.run)
    # No stage that is reranked here fuses rankings, so the constant of fusion cannot matter.
    copy.command("--until", "extract", retrieval=models(copy.models / "encoder", copy.models / "reranker", rrf=59))
    message = coldread("freeze", str(copy.run), code=StateError.exit_code).stderr
    assert "reranked was made from another configuration" in message
    assert f"run `coldread encode {copy.run}` first" in message
    ended = [line.split(":")[0] for line in encoded_lines(coldread("encode", str(copy.run))) if ", " in line]
    assert ended == ["up to date", "written"]
    after = files(copy.run)
    assert {name for name in after if after[name] != before[name]} == {"experiment.yaml", "reranked/manifest.json"}
    assert read_manifest(copy.run / "reranked").inputs["vectors"] == read_manifest(copy.run / "vectors").digest


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        ({"folder": "/nowhere/at all"}, "model folder /nowhere/at all is not there"),
        ({"repository": "nobody/nothing", "revision": "0" * 40}, "could not be fetched"),
    ],
)
def test_an_encoder_that_is_not_to_be_had_is_asked_for_where_the_vectors_are_anothers(
    copy: Home, monkeypatch: pytest.MonkeyPatch, pin: dict[str, str], words: str
) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(copy.run.parent))
    before = files(copy.run / "vectors")
    other = {**models(copy.models / "encoder", copy.models / "reranker"), "encoder": {"name": "other", "model": pin}}
    assert words in copy.command(code=ModelError.exit_code, retrieval=other).stderr
    assert words in coldread("encode", str(copy.run), code=ModelError.exit_code).stderr
    assert files(copy.run / "vectors") == before


def test_vectors_of_a_commit_are_up_to_date_without_its_files(copy: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if they had been made from a repository: a commit does not change, so nothing is looked for.
    pinned = {"name": "far", "model": {"repository": "nobody/nothing", "revision": "0" * 40}, "device": "cpu"}
    retrieval = {"encoder": pinned, "chunk_tokens": 50}
    copy.command("--until", "extract", views=["cmc", "fact_dense"], retrieval=retrieval)
    place = step.OpenRun(copy.run)
    inputs = place.upstream("vectors")
    reforge(copy.run / "vectors", {**inputs, "model": "1" * 64})
    assert encoded_lines(coldread("encode", str(copy.run)))[0].startswith("up to date")


def test_encoding_comes_after_extraction_and_a_model_that_a_view_needs_is_asked_for_at_once(made: Home, tmp_path: Path) -> None:
    home = Home(made.path, tmp_path / "early")
    home.command("--until", "load")
    assert "run `coldread extract" in coldread("encode", str(home.run), code=StateError.exit_code).stderr
    assert not (home.run / "vectors").exists()
    home.run = tmp_path / "none"
    message = home.command(code=3, retrieval={"encoder": models(home.models / "encoder")["encoder"]}).stderr
    assert "`retrieval: {reranker: NAME}`" in message
    assert not home.run.exists()


def test_a_run_without_a_model_encodes_nothing(made: Home, tmp_path: Path) -> None:
    home = Home(made.path, tmp_path / "plain")
    home.command("--until", "freeze", views=["cmc", "fact_bm25"])
    assert json.loads(coldread("encode", str(home.run), "--json").stdout) == {"run": str(home.run), "step": "encode"}
    assert sorted(path.name for path in home.run.iterdir()) == ["data", "experiment.yaml", "extraction", "labels", "packets"]


def test_a_terminal_shows_bars_of_encoders_and_of_readers_at_once(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "terminal").open("w+") as terminal:
        monkeypatch.setattr(OBSERVER, "console", Console(file=terminal, force_terminal=True))
        home = Home(made.path, tmp_path / "plain")
        home.command("--until", "extract", views=["cmc"])
        terminal.seek(0)
        assert "written: 9 facts" in terminal.read()


def doubled(some: Sequence[str]) -> tuple[NDArray[np.float32], int]:
    """A model in miniature: the length of a text and twice that; a text beyond 5 is cut."""
    return np.array([[len(text), 2 * len(text)] for text in some], dtype=np.float32), sum(len(text) > 5 for text in some)


def test_slices_take_the_longest_first_and_give_each_text_its_own_output(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    done: list[int] = []

    def work(some: list[str]) -> tuple[NDArray[np.float32], int]:
        seen.append(some)
        return doubled(some)

    texts = [f"{'x' * (i % 7)}{i}" for i in range(40)]
    made, cut = in_slices(tmp_path / "journal", "key", texts, 1, work, done.append)
    assert made.tolist() == [[len(text), 2 * len(text)] for text in texts]
    assert cut == sum(len(text) > 5 for text in texts)
    assert [len(some) for some in seen] == [16, 16, 8]
    assert done == [16, 32, 40]
    flat = [text for some in seen for text in some]
    assert flat == sorted(texts, key=lambda text: (-len(text), text))
    # What is journalled is not asked for again, in whatever order the texts come; another key's is.
    again, _ = in_slices(tmp_path / "journal", "key", texts[::-1], 1, work, done.append)
    assert again.tolist() == made.tolist()[::-1]
    assert len(seen) == 3
    in_slices(tmp_path / "journal", "other", texts, 1, work, done.append)
    assert len(seen) == 6
    assert in_slices(tmp_path / "journal", "key", [], 1, work, done.append)[0].shape == (0, 1)


def test_a_changed_byte_of_the_journal_is_found_and_named(tmp_path: Path) -> None:
    arguments = ("key", ["text", "other"], 2, doubled, lambda done: None)
    in_slices(tmp_path, *arguments)
    (path,) = tmp_path.iterdir()
    content = path.read_text()
    values = json.loads(content)["values"]
    path.write_text(content.replace(values, values.replace("A", "B", 1)))
    with pytest.raises(AlteredError, match=f"{path.name}: its check does not fit.*remove it"):
        in_slices(tmp_path, *arguments)


def test_a_full_disk_is_one_error_and_leaves_whole_slices_alone(full_disk: Path) -> None:
    def work(some: list[str]) -> tuple[NDArray[np.float32], int]:
        return np.ones((len(some), 700), dtype=np.float32), 0

    # 16 texts of 700 numbers of four bytes, in base64: 60 kB a slice.
    with pytest.raises(StorageError, match=r"cannot write .*\.json: .*then run the same command again"):
        in_slices(full_disk / "journal", "key", [f"text {i:02}" for i in range(32)], 1, work, lambda done: None)
    names = [path.name for path in (full_disk / "journal").iterdir()]
    assert len(names) <= 1
    assert all(name.endswith(".json") and not name.startswith(".") for name in names)


Watch = Callable[[], bool]


def wait_for(happened: Watch, process: Any, seconds: float = 120) -> None:
    """Until something happens while a process runs; fails if it ends before that."""
    end = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)


def test_an_encoding_that_is_killed_goes_on_and_gives_the_bytes_of_an_undisturbed_one(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {name: tmp_path / name for name in ("undisturbed", "killed")}
    encoder = {**models(made.models / "encoder")["encoder"], "batch_size": 1}
    changes = {
        "data": {"kind": "synthetic", "statements": [200], "questions": 8},
        "frontend": {"kind": "grammar", "grammar": "synthetic"},
        "views": ["fact_dense"],
        "retrieval": {"encoder": encoder},
    }
    experiment = str(write_experiment(tmp_path, made.models / "reader", **changes))
    for run in runs.values():
        coldread("run", experiment, "--out", str(run), "--until", "extract")
    written: list[Path] = []

    def count(path: Path, value: object) -> None:
        written.append(path)
        write_record(path, value)

    write_record = step.write_record
    monkeypatch.setattr("readers.encoders.journalled.write_record", count)
    coldread("encode", str(runs["undisturbed"]))
    slices = {path.name for path in written if path.parent.name == step.JOURNAL}
    run, journal = runs["killed"], runs["killed"] / step.JOURNAL

    def finished() -> set[str]:
        return {path.name for path in journal.glob("*.json")}

    with start_coldread("encode", str(run)) as parent:
        wait_for(lambda: len(finished()) >= 2, parent)
        processes = children(parent.pid)
        parent.kill()
    assert len(processes) == 2
    assert not any(map(alive, processes))
    assert not (run / "vectors").exists()
    kept = finished()
    assert kept < slices
    written.clear()
    coldread("encode", str(run))
    assert {path.name for path in written if path.parent.name == step.JOURNAL} == slices - kept
    assert files(run) == files(runs["undisturbed"])
    assert not journal.exists()


def test_a_script_of_the_users_is_not_run_again_in_the_models_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    lines = ("from pathlib import Path", "from readers.encoders.process import model_process", "print('once', flush=True)")
    call = "with model_process(Path, '/', whose='it') as call:\n    print(call('is_dir'))\n"
    script.write_text("\n".join(lines) + "\n" + call)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("once\nTrue\n", 0), done.stderr


class Dies:
    """An encoder in miniature, whose process is killed when half of its work is done."""

    def __init__(self, encoder: Encoder, folder: str) -> None:
        self.window = encoder.max_tokens

    def describe(self) -> dict[str, str]:
        return {"window": str(self.window)}

    def room(self) -> int:
        return self.window

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def spans(self, text: str, limit: int) -> list[tuple[int, int]]:
        return [(at, min(at + limit, len(text))) for at in range(0, len(text), limit)]

    def cut(self, role: str, texts: Sequence[str]) -> int:
        return 0

    def encode(self, role: str, texts: Sequence[str], batch_size: int) -> NDArray[np.float32]:
        if role == "query":
            os.kill(os.getpid(), signal.SIGKILL)
        return np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (len(texts), 1))


def test_an_encoder_whose_process_is_killed_is_one_error_and_leaves_no_vectors(
    made: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "EmbeddingModel", Dies)
    home = Home(made.path, tmp_path / "run")
    message = home.command("--until", "encode", code=EngineError.exit_code).stderr
    (line,) = [line for line in message.splitlines() if line.startswith("error: ")]
    assert "encoder 'encoder': its process was killed" in line
    assert "resumes" in line
    assert sorted(path.name for path in home.run.iterdir()) == [step.JOURNAL, "data", "experiment.yaml", "extraction", "labels"]


@pytest.mark.real_model
def test_the_embedded_encoder_knows_a_paraphrase() -> None:
    from offline.config.yaml import configs_folder, load_yaml
    from readers.models.pins import locate

    encoder = load_yaml(configs_folder() / "encoders" / "minilm.yaml", Encoder)
    model = EmbeddingModel(encoder, str(locate(encoder)))
    (query,) = model.encode("query", ["Which city is the capital of France?"], 8)
    vectors = model.encode("passage", ["Paris is the French seat of government.", "Bread is baked from flour and water."], 8)
    near, far = vectors @ query
    assert near > far + 0.2
    assert vectors.shape == (2, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    # A window of 256 tokens, <s> and </s> among them.
    assert model.room() == 254


@pytest.mark.real_model
def test_a_run_with_the_embedded_encoder_prints_its_result_alone_on_standard_output(tmp_path: Path) -> None:
    experiment = tmp_path / "small.yaml"
    experiment.write_text(
        "name: small\ndata: {kind: synthetic, statements: [60], questions: 4}\n"
        "frontend: {kind: grammar, grammar: synthetic}\nviews: [cmc, fact_dense]\nretrieval: {encoder: minilm}\n"
    )
    run = tmp_path / "run"
    with start_coldread("run", str(experiment), "--out", str(run), "--until", "freeze", "--json") as process:
        out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert json.loads(out) == {"run": str(run)}
    assert read_record(run / "vectors" / "encoder.json", Encoded).dimension == 384
    coldread("freeze", str(run), "--check")
