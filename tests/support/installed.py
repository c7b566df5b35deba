"""What tests find installed or install for themselves: a Chromium, third parties' packages."""

import importlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import write_engine

# The folder of packages that are installed in every test.
SITE = Path(__file__).parent / "site"

Install = Callable[..., None]


def chromium() -> str | None:
    """The Chromium that tests marked `browser` drive; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def install_engine(patch: pytest.MonkeyPatch, folder: Path, body: str, more: str = "") -> Path:
    """Install a third party's package with an engine called `theirs` (tiny.write_engine), for reader processes too."""
    site = write_engine(folder, body, more)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ["PYTHONPATH"]]))
    patch.syspath_prepend(site)
    return site


def install_distribution(
    patch: pytest.MonkeyPatch, folder: Path, distribution: str, group: str, points: dict[str, str], code: str
) -> None:
    """Install a distribution into a folder of the import path: its code, and its entry points in one group."""
    site = folder / distribution
    site.mkdir()
    information = site / f"{distribution}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (site / f"{distribution}_code.py").write_text(code)
    patch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    patch.delitem(sys.modules, f"{distribution}_code", raising=False)
