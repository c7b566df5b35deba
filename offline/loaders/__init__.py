"""Loaders: raw rows to histories and questions. None of them parses an answer column; eval/ reads that one apart.

A kind of data is one module here, named after it: its section of an experiment, a `DataSection`, and its loader, a function
`load_KIND(data, source) -> Loaded`. `coldread.loaders` is the entry point group of others.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import iter_modules
from typing import Any, ClassVar

from offline.canonical import Record
from offline.errors import ConfigurationError, DataError
from offline.loaders.raw import RawSource
from offline.records import History, Question
from offline.registry import Registry


@dataclass(frozen=True)
class Loaded:
    """Histories and questions in source order."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]


class DataSection(Record, frozen=True):
    """The data section of an experiment; each kind of data has its own, told apart by its tag."""

    # Drawn from its seed: there are no raw rows.
    drawn: ClassVar[bool] = False
    # There is nowhere to take raw rows from but a file.
    needs_file: ClassVar[bool] = False
    # The shipped grammar that fits its statements.
    grammar: ClassVar[str | None] = None

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows to keep, by name; all if none is named."""
        return ()

    def hub(self) -> RawSource | None:
        """The data set on the hub that it comes from, unless a file of it is given."""
        return None

    def check(self, where: str) -> None:
        """ConfigurationError for numbers that no data could have; `where` names the experiment's file."""


class PluginData(DataSection, frozen=True, tag="plugin", tag_field="kind"):
    """A third party's loader (entry point group `coldread.loaders`)."""

    loader: str
    path: str | None = None
    options: dict[str, str] = {}
    rows: tuple[str, ...] = ()


# Our own kinds of data: the modules here but the one that reads rows.
KINDS = tuple(module.name for module in iter_modules(__path__) if module.name != "raw")
Loader = Callable[[Any, RawSource | None], Loaded]
LOADERS: Registry[Loader] = Registry(
    "loader", "coldread.loaders", {kind: f"offline.loaders.{kind}:load_{kind}" for kind in KINDS}
)


def kind_of(data: DataSection) -> str:
    """The name under which a data section's loader is registered."""
    return data.loader if isinstance(data, PluginData) else str(data.__struct_config__.tag)


def load(data: DataSection, source: RawSource | None, limit: int | None) -> Loaded:
    """Load, keep the named rows, then the first `limit` questions of each row; histories without a question go."""
    if isinstance(data, PluginData) and data.loader in LOADERS.built_in():
        raise ConfigurationError(f"the loader {data.loader!r} is built in, no plug-in; write `kind: {data.loader}`")
    loaded = LOADERS.get(kind_of(data))(data, source)
    try:
        _check(loaded)
    except DataError as error:
        raise DataError(f"{_place(source)}{error}") from error
    rows = {question.row for question in loaded.questions}
    if missing := [row for row in data.rows if row not in rows]:
        raise DataError(f"no row {missing[0]!r} in the data; it has {', '.join(sorted(rows))}")
    counts: Counter[str] = Counter()
    wanted, kept = set(data.rows) or rows, []
    for question in loaded.questions:
        counts[question.row] += 1
        if question.row in wanted and (limit is None or counts[question.row] <= limit):
            kept.append(question)
    used = {question.history for question in kept}
    return Loaded(tuple(h for h in loaded.histories if h.id in used), tuple(kept))


def _place(source: RawSource | None) -> str:
    """The file of the raw rows, or their place on the hub, to open an error with; nothing for data that is drawn."""
    if source is None:
        return ""
    return f"{source.path or f'{source.repository}@{source.revision}'}: "


def _check(loaded: Loaded) -> None:
    """What every loader must hold to, a third party's too."""
    for name, ids in (("history", [h.id for h in loaded.histories]), ("question", [q.id for q in loaded.questions])):
        if repeated := [i for i, n in Counter(ids).items() if n > 1]:
            raise DataError(
                f"the {name} id {repeated[0]!r} is used {Counter(ids)[repeated[0]]} times; ids must be unique in a run"
            )
    if not loaded.questions:
        raise DataError("the data has no questions; add some")
    known = {history.id for history in loaded.histories}
    for question in loaded.questions:
        if question.history not in known:
            raise DataError(f"question {question.id!r} asks about the history {question.history!r}, which is not there")
        if not question.text.strip():
            raise DataError(f"question {question.id!r} is empty")
    for history in loaded.histories:
        if not history.statements:
            raise DataError(f"history {history.id!r} has no statements; add some, or leave it out")
        previous = None
        for statement in history.statements:
            if previous is not None and statement.position <= previous:
                raise DataError(
                    f"history {history.id!r}: position {statement.position} follows {previous}; positions must go up"
                )
            previous = statement.position
