"""Fixtures that several test files share."""

import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import worlds
from filelock import FileLock
from hypothesis import HealthCheck, settings
from installed import SITE, Install, chromium, install_distribution, install_engine
from tiny import coldread, make_folder, make_model, write_experiment, write_rows
from tiny_pipelines import engine, make_served_run
from tiny_retrieval import make_causal_reranker, make_cross_encoder, make_encoder
from worlds import RealWorld, real_file

# A slow machine is no failure: no deadline for an example.
settings.register_profile("coldread", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coldread")

# Tiny models gain nothing from threads, and threads of several processes fight for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The engine `digest` is installed for this process and for those that it starts.
sys.path.insert(0, str(SITE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))

# Fixtures that make or load a model of random weights.
TORCH = {"tiny_llama", "tiny_encoder", "tiny_cross_encoder", "tiny_causal_reranker", "warm"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `real_data` are skipped only where COLDREAD_DATA is unset; a missing file makes them fail.

    Those marked `browser` are skipped only where there is no Chromium. Tests that use a model of random weights are `torch`.
    """
    for item in items:
        if TORCH.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.torch)
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


@pytest.fixture(scope="session")
def real_world() -> RealWorld:
    """The same for all tests of a process."""
    return worlds.real_world()


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


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Makes a folder once for all processes of a test session, whichever asks first (as pytest-xdist documents it)."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def of(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return of


@pytest.fixture(scope="session")
def tiny_model(once: Once) -> Path:
    """A model folder without weights, which the engine `digest` reads with."""
    return once("model", make_folder)


@pytest.fixture(scope="session")
def tiny_llama(once: Once) -> Path:
    """A randomly initialised model folder that the transformers engine really reads with."""
    return once("llama", make_model)


@pytest.fixture(scope="session")
def tiny_encoder(once: Once) -> Path:
    """A randomly initialised embedding model in the form of BGE-M3."""
    return once("encoder", make_encoder)


@pytest.fixture(scope="session")
def tiny_cross_encoder(once: Once) -> Path:
    """A randomly initialised reranker in the form of bge-reranker-v2-m3."""
    return once("cross-encoder", make_cross_encoder)


@pytest.fixture(scope="session")
def tiny_causal_reranker(once: Once) -> Path:
    """A randomly initialised reranker in the form of Qwen3-Reranker."""
    return once("causal-reranker", make_causal_reranker)


@pytest.fixture(scope="session")
def scored_run(once: Once, tiny_model: Path) -> Path:
    """A run read without weights, sealed and scored, made by the command line. Tests work on copies."""

    def make(folder: Path) -> None:
        command = ["run", str(write_experiment(folder, tiny_model)), "--data", str(write_rows(folder))]
        coldread(*command, "--out", str(folder / "run"))

    return once("scored", make) / "run"


@pytest.fixture
def copied_run(scored_run: Path, tmp_path: Path) -> Path:
    """A copy of the scored run."""
    return Path(shutil.copytree(scored_run, tmp_path / "copied"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of models are kept apart for each test: installed engines of one name answer as the test says."""
    monkeypatch.setenv("COLDREAD_CALLS", str(tmp_path_factory.getbasetemp() / "calls" / uuid4().hex))


@pytest.fixture(scope="session")
def served_run(once: Once, tiny_model: Path) -> Path:
    """A run of cmc and every pipeline, by the reader without a model of tiny_pipelines, scored. Tests work on copies."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLDREAD_CALLS", str(folder / "calls"))
            install_engine(patch, folder, *engine())
            make_served_run(folder, tiny_model)

    return once("served", make) / "run"


@pytest.fixture
def copied_served_run(served_run: Path, tmp_path: Path) -> Path:
    """A copy of the served run."""
    return Path(shutil.copytree(served_run, tmp_path / "copied-served"))


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """Processes of encoders and rerankers are forked from one that has imported their libraries, instead of starting cold."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("readers.encoders.process.get_context", lambda method: context)
        yield


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Installs an engine as `install_engine` does."""

    def install(body: str, more: str = "") -> Path:
        return install_engine(monkeypatch, tmp_path, body, more)

    return install


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution as `install_distribution` does."""

    def put(distribution: str, group: str, points: dict[str, str], code: str = "") -> None:
        install_distribution(monkeypatch, tmp_path, distribution, group, points, code)

    return put
