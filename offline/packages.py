"""The packages of this distribution, whatever other folders hold under the same generic names.

Another `eval` earlier on Python's path would be imported in place of ours. So the command line, imported as `coldread`, and
every process that we start import our packages first, from their own folder; their modules then follow.

This file is run by its path, since its own package's name cannot be trusted either: `python packages.py MODULE` calls a
module's `main`. Processes that multiprocessing spawns run it as their `__mp_main__`.
"""

import sys
from importlib import import_module
from pathlib import Path

FILE = Path(__file__).resolve()
NAMES = ("offline", "readers", "extract", "eval")


def bind() -> None:
    """Import this distribution's packages; ImportError if another package of such a name was imported before."""
    home = FILE.parents[1]
    sys.path.insert(0, str(home))
    try:
        found = {name: import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(home))
    for name, module in found.items():
        places = [Path(place).resolve() for place in getattr(module, "__path__", [str(module.__file__)])]
        if places != [home / name]:
            raise ImportError(
                f"coldread has a package {name!r}, and another one of that name was imported before, from {places[0]}; "
                "import coldread first, or rename the other package"
            )


if __name__ in ("__main__", "__mp_main__"):
    bind()
if __name__ == "__main__":
    import_module(sys.argv[1]).main()
