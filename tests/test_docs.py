"""The documentation names only what exists: commands, options, links, import paths, one version."""

import importlib
import re
import tomllib
from functools import reduce
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from eval.commands.main import app

TOP = Path(__file__).parents[1]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/*.md"), TOP / "tests" / "golden" / "README.md"])
# Options by command.
COMMANDS = {
    name: {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    for name, command in get_command(app).commands.items()
}
OPTIONS = set().union({"--help", "--version"}, *COMMANDS.values())


def named(page: Path) -> list[tuple[str, set[str]]]:
    """Every `coldread COMMAND` in code on a page, with the options behind it on its line."""
    code = "\n".join(re.findall(r"`[^`\n]+`|^ {4,}.*|^\$ .*", page.read_text(), re.MULTILINE))
    found = re.findall(r"\bcoldread (?![A-Z])([a-z][a-z-]*)\b([^`\n#]*)", code)
    return [(command, set(re.findall(r"--[a-z][a-z-]*", rest))) for command, rest in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_in_the_docs_has_the_options_named_behind_it(page: Path) -> None:
    for command, options in named(page):
        assert command in COMMANDS, command
        assert options <= COMMANDS[command], (command, options)


@pytest.mark.parametrize("page", [TOP / "README.md", TOP / "docs" / "commands.md"], ids=lambda page: page.name)
def test_an_option_in_the_docs_is_one_of_some_command(page: Path) -> None:
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page.read_text())) <= OPTIONS


def test_the_page_of_commands_has_all_of_them_with_all_their_options() -> None:
    text = (TOP / "docs" / "commands.md").read_text()
    sections = {part.split()[0].strip("`"): part for part in text.split("### `coldread ")[1:]}
    assert sections.keys() == COMMANDS.keys()
    for command, options in COMMANDS.items():
        assert {option for option in options if option.startswith("--")} - {"--json", "--tokens"} <= set(
            re.findall(r"--[a-z-]+", sections[command])
        ), command
    assert all(f"`{command}`" in (TOP / "README.md").read_text() for command in COMMANDS)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize(
    "page", [TOP / "README.md", TOP / "docs" / "extensions.md", TOP / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_an_import_path_in_the_docs_imports(page: Path) -> None:
    text = page.read_text()
    dotted = set(re.findall(r"(?<![\w./])(?:offline|readers|extract|eval)(?:\.\w+)+", text))
    imported = {
        f"{module}.{name.strip()}"
        for module, names in re.findall(r"^\s*from ((?:offline|readers|extract|eval)[\w.]*) import (.+)$", text, re.MULTILINE)
        for name in names.split(",")
    }
    for path in dotted | imported:
        assert found(path) is not None, path


def found(path: str) -> object:
    """The module or the attribute that a dotted path names."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise AssertionError(path)


def test_one_version_everywhere() -> None:
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    cited = yaml.safe_load((TOP / "CITATION.cff").read_text())
    changes = re.findall(r"^## (\S+)$", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (cited["cff-version"], cited["version"], cited["license"]) == ("1.2.0", version, "Apache-2.0")
    assert changes[0] == version
