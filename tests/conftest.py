"""Fixtures that several test files share."""

import importlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from tiny import coldread, make_model, write_engine, write_experiment, write_rows
from tiny_pipelines import engine, make_served_run
from tiny_retrieval import make_causal_reranker, make_cross_encoder, make_encoder
from worlds import HEADING, experiment, real_file

from extract.frontends import extract
from offline.config.experiment import ViewSettings
from offline.config.frontend import GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.loaders import load
from offline.loaders.factconsolidation import FactConsolidationData
from offline.loaders.raw import RawSource
from offline.memory import Memory
from offline.records import Extraction, History, Question

# A slow machine is no failure: no deadline for an example.
settings.register_profile("coldread", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coldread")

# Tiny models gain nothing from threads, and threads of several processes fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `real_data` are skipped only where COLDREAD_DATA is unset; a missing file makes them fail.

    Those marked `browser` are skipped only where there is no Chromium.
    """
    if "COLDREAD_DATA" not in os.environ:
        skip = pytest.mark.skip(reason="COLDREAD_DATA is not set")
        for item in items:
            if item.get_closest_marker("real_data"):
                item.add_marker(skip)
    if chromium() is None:
        skip = pytest.mark.skip(reason="no Chromium on the PATH, and $CHROMIUM names none (Debian: apt install chromium)")
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(skip)


def chromium() -> str | None:
    """The Chromium that tests marked `browser` drive; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="session", autouse=True)
def _calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Answers of models are kept in a folder of this session, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLDREAD_CALLS", str(tmp_path_factory.mktemp("calls")))
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The file factconsolidation.json of the folder that COLDREAD_DATA names."""
    return real_file("factconsolidation.json")


@dataclass(frozen=True)
class RealWorld:
    """FactConsolidation, loaded, parsed and compiled once for all tests."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]
    extraction: Extraction
    memories: dict[str, Memory]

    def memory(self, question: Question) -> Memory:
        """The memory that a question asks about."""
        return self.memories[question.history]


@pytest.fixture(scope="session")
def real_world(real_data: Path) -> RealWorld:
    """All eight rows in the shared regime, with the shipped MQuAKE grammar."""
    loaded = load(FactConsolidationData(), RawSource(path=real_data), None)
    grammar = load_yaml(find_config("grammars", "mquake"), GrammarForms)
    extraction = extract(loaded.histories, experiment(grammar=grammar))
    memories = {h.id: Memory(h, extraction, ViewSettings(), HEADING) for h in loaded.histories}
    return RealWorld(loaded.histories, loaded.questions, extraction, memories)


def _mount(folder: Path, options: str) -> bool:
    """Whether a small in-memory file system could be mounted at `folder`."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no file can grow beyond 64 KiB: a tiny file system, else the process's own file size limit."""
    folder = tmp_path / "full"
    folder.mkdir()
    if _mount(folder, "size=64k"):
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nobody can make a file: a read-only mount, else one without the permission, else /proc for root."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if _mount(folder, "ro"):
        yield folder
        subprocess.run(["umount", "-l", str(folder)], check=True)
    elif os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
    else:
        yield Path("/proc")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised model folder that the transformers engine really reads with."""
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised embedding model in the form of BGE-M3."""
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised reranker in the form of bge-reranker-v2-m3."""
    return make_cross_encoder(tmp_path_factory.mktemp("tiny") / "cross-encoder")


@pytest.fixture(scope="session")
def tiny_causal_reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised reranker in the form of Qwen3-Reranker."""
    return make_causal_reranker(tmp_path_factory.mktemp("tiny") / "causal-reranker")


@pytest.fixture(scope="session")
def scored_run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A run read by the tiny model, sealed and scored, made by the command line. Tests work on copies."""
    folder = tmp_path_factory.mktemp("scored")
    command = ["run", str(write_experiment(folder, tiny_model)), "--data", str(write_rows(folder))]
    coldread(*command, "--out", str(folder / "run"))
    return folder / "run"


@pytest.fixture
def copied_run(scored_run: Path, tmp_path: Path) -> Path:
    """A copy of the scored run."""
    return Path(shutil.copytree(scored_run, tmp_path / "copied"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of models are kept apart for each test: installed engines of one name answer as the test says."""
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path_factory.getbasetemp() / "calls" / uuid4().hex))


@pytest.fixture(scope="session")
def served_run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A run of cmc and every pipeline, by the reader without a model of tiny_pipelines, scored. Tests work on copies."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLDREAD_CALLS", str(folder / "calls"))
        install_engine(patch, folder, *engine())
        return make_served_run(folder, tiny_model)


@pytest.fixture
def copied_served_run(served_run: Path, tmp_path: Path) -> Path:
    """A copy of the served run."""
    return Path(shutil.copytree(served_run, tmp_path / "copied-served"))


def install_engine(patch: pytest.MonkeyPatch, folder: Path, body: str, more: str = "") -> Path:
    """Install a third party's package with an engine called `theirs` (tiny.write_engine), for reader processes too."""
    site = write_engine(folder, body, more)
    before = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(site), *([before] if before else [])]))
    patch.syspath_prepend(site)
    return site


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Installs an engine as `install_engine` does."""

    def install(body: str, more: str = "") -> Path:
        return install_engine(monkeypatch, tmp_path, body, more)

    return install


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution into a folder of the import path: its code, and its entry points in one group."""

    def put(distribution: str, group: str, points: dict[str, str], code: str = "") -> None:
        site = tmp_path / distribution
        site.mkdir()
        information = site / f"{distribution}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
        (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (site / f"{distribution}_code.py").write_text(code)
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, f"{distribution}_code", raising=False)

    return put
