"""Loaders: raw rows to histories and questions. None parses an answer column; eval/ reads that separately.

A module here defines the kind of data that it is named after: a `DataSection` (its section of an experiment) and a loader
`load_KIND(data, source) -> Loaded`. Other packages declare loaders in the entry point group `coldread.loaders`.
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
    """The data section of an experiment; its tag tells the kinds of data apart."""

    drawn: ClassVar[bool] = False  # drawn from a seed, without raw rows
    needs_file: ClassVar[bool] = False  # raw rows come only from a file
    grammar: ClassVar[str | None] = None  # the shipped one that fits its statements

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows to keep; all rows if empty."""
        return ()

    def hub(self) -> RawSource | None:
        """The data set on the hub that it comes from, unless a file is given."""
        return None

    def check(self, where: str) -> None:
        """ConfigurationError for impossible numbers; `where` names the experiment's file."""


class PluginData(DataSection, frozen=True, tag="plugin", tag_field="kind"):
    """A third party's loader (entry point group `coldread.loaders`)."""

    loader: str
    path: str | None = None
    options: dict[str, str] = {}
    rows: tuple[str, ...] = ()


# The built-in kinds of data: every module here except raw.
KINDS = tuple(module.name for module in iter_modules(__path__) if module.name != "raw")
Loader = Callable[[Any, RawSource | None], Loaded]
LOADERS: Registry[Loader] = Registry(
    "loader", "coldread.loaders", {kind: f"offline.loaders.{kind}:load_{kind}" for kind in KINDS}
)


def kind_of(data: DataSection) -> str:
    """The name under which a data section's loader is registered."""
    return data.loader if isinstance(data, PluginData) else str(data.__struct_config__.tag)


def load(data: DataSection, source: RawSource | None, limit: int | None) -> Loaded:
    """Load the named rows and the first `limit` questions of each; drop histories without a question."""
    if isinstance(data, PluginData) and data.loader in LOADERS.built_in():
        raise ConfigurationError(f"the loader {data.loader!r} is built in, not a plug-in; write `kind: {data.loader}`")
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
    """The source of the raw rows, to open an error message with; empty for drawn data."""
    if source is None:
        return ""
    return f"{source.path or f'{source.repository}@{source.revision}'}: "


def _check(loaded: Loaded) -> None:
    """DataError unless a loader, built in or not, keeps its contract."""
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
            raise DataError(f"question {question.id!r} asks about the history {question.history!r}, which does not exist")
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
