"""The packages' names are generic: a folder on Python's path may hold others of the same names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import ANSWER, frozen_run, their_reader

from offline.packages import NAMES

GOLDEN = Path(__file__).parent / "golden" / "format-1"
TABLE = ("-m", "coldread", "table")
Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Runs Python in a folder that comes first on its path, and in which each of our packages' names is one that raises."""
    here = tmp_path / "here"
    for name in NAMES:
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text("raise RuntimeError('a decoy')")

    def run(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        path = os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, *arguments], cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def test_commands_work_beside_packages_of_the_same_names(python: Python, tmp_path: Path) -> None:
    assert "coverage" in python("-m", "coldread", "--help").stdout
    run = shutil.copytree(GOLDEN, tmp_path / "run")
    assert python(*TABLE, str(run)).stdout == subprocess.check_output([sys.executable, "-P", *TABLE, str(run)], text=True)


def test_python_code_that_imports_coldread_finds_its_packages(python: Python) -> None:
    script = "import coldread, eval.metrics\nprint(coldread.substring_exact_match('It is the Seine.', ['Seine']))"
    assert python("-c", script).stdout == "True\n"


def test_a_reader_process_works_beside_packages_of_the_same_names(
    python: Python, tiny_model: Path, tmp_path: Path, plugin: Callable[..., Path]
) -> None:
    plugin(ANSWER)
    run = frozen_run(tmp_path, tiny_model, readers=their_reader(tiny_model, tmp_path))
    assert "tiny: sealed" in python("-m", "coldread", "read", str(run)).stderr


def test_a_retrieval_models_process_works_beside_packages_of_the_same_names(python: Python) -> None:
    script = (
        "import collections, coldread\nfrom readers.encoders.process import model_process\n"
        "with model_process(collections.Counter, 'aab', whose='counter') as call:\n    print(call('most_common'))\n"
    )
    assert python("-c", script).stdout == "[('a', 2), ('b', 1)]\n"


def test_a_package_that_was_imported_before_is_one_error_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "__init__.py").touch()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import eval; sys.argv = sys.argv[1:]; import coldread"
    found = (
        f"a package 'eval', and another one of that name was imported before, from {tmp_path / 'eval'}; import coldread first"
    )
    for name, code in (("notebook", 1), ("coldread", 3)):
        done = subprocess.run([sys.executable, "-P", "-c", script, name, "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert done.stdout == ""
        assert found in done.stderr.splitlines()[-1]
        assert ("Traceback" in done.stderr) == (code == 1)
