"""MemoryAgentBench FactConsolidation: rows of a numbered context and a hundred questions (spec §2).

The single- and the multi-hop row of one length share one context, hence one history.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from offline.canonical import digest
from offline.errors import DataError
from offline.loaders import DataSection, Loaded
from offline.loaders.raw import Columns, RawRow, RawSource
from offline.records import History, HopClass, Question, Statement

# The serial, a dot and one space. The text may hold ". " itself, so only the line's start counts. Eighteen digits are more than
# any history has, and fit 64 bits.
_STATEMENT = re.compile(r"([0-9]{1,18})\. (.*)", re.DOTALL)
_SOURCE = re.compile(r"(?P<stem>.*?)_(?P<hops>sh|mh)(?:_(?P<length>[^_]+))?$")


# FactConsolidation on the hub: MemoryAgentBench at this commit (spec §2).
HUB_REPOSITORY = "ai-hyz/MemoryAgentBench"
HUB_REVISION = "7ea066982b140a19337e17e60d45d4076e042faf"
HUB_SPLIT = "Conflict_Resolution"


class FactConsolidationData(DataSection, frozen=True, tag="factconsolidation", tag_field="kind"):
    """MemoryAgentBench FactConsolidation, from the hub or from a local JSON, JSONL or Parquet file of its shape."""

    grammar = "mquake"
    path: str | None = None
    repository: str = HUB_REPOSITORY
    revision: str = HUB_REVISION
    split: str = HUB_SPLIT
    rows: tuple[str, ...] = ()

    def hub(self) -> RawSource:
        """The rows at the pinned commit."""
        return RawSource(repository=self.repository, revision=self.revision, split=self.split)


@dataclass(frozen=True)
class RowNames:
    """The names of one row and its questions in a run."""

    row: str
    hop_class: HopClass
    length: str | None
    stem: str
    questions: tuple[str, ...]


class Metadata(msgspec.Struct):
    """The names in a row's metadata; other fields are skipped."""

    source: str | None = None
    qa_pair_ids: list[str] | None = None


def named_rows(source: RawSource, columns: Columns) -> Iterator[tuple[RawRow, RowNames]]:
    """The rows with their names and question ids, which do not depend on the columns read.

    Names and ids are unique: a repeated source name gets its row number, and every question id starts with its row's name.
    """
    seen: set[str] = set()
    for number, row in enumerate(source.rows({**columns, "questions": list[str], "metadata": Metadata})):
        metadata: Metadata = row.values["metadata"] or Metadata()
        questions: list[str] = row.need("questions")
        source_name = metadata.source or f"row{number}"
        name = source_name
        while name in seen:
            name = f"{name}@{number}"
        seen.add(name)
        ids = metadata.qa_pair_ids
        ids = ids or [f"no{index}" for index in range(len(questions))]
        if len(ids) != len(questions):
            raise DataError(f"{row.where} ({name}): {len(questions)} questions but {len(ids)} qa_pair_ids")
        match = _SOURCE.match(source_name)
        hop_class: HopClass = "all"
        if match:
            hop_class = "sh" if match["hops"] == "sh" else "mh"
        yield (
            row,
            RowNames(
                row=name,
                hop_class=hop_class,
                length=match["length"] if match else None,
                stem=f"{match['stem']}_{match['length']}" if match and match["length"] else name,
                questions=tuple(i if i.startswith(f"{name}_") else f"{name}/{i}" for i in ids),
            ),
        )


def parse_context(context: str, where: str) -> tuple[Statement, ...]:
    """The statements of one context: a heading line, `N. text` lines, a last empty line."""
    lines = [line.removesuffix("\r") for line in context.split("\n")]
    if lines[-1] == "":
        lines.pop()
    if not lines or _STATEMENT.fullmatch(lines[0]):
        raise DataError(f"{where}, line 1: the heading line is missing; a context begins with one")
    statements: list[Statement] = []
    for number, line in enumerate(lines[1:], 2):
        match = _STATEMENT.fullmatch(line)
        if not match or not match[2].strip():
            raise DataError(f"{where}, line {number}: {line[:60]!r} is not `N. text`")
        position = int(match[1])
        if statements and position <= statements[-1].position:
            word = "repeats" if position == statements[-1].position else "goes down from"
            raise DataError(
                f"{where}, line {number}: position {position} {word} {statements[-1].position}; positions must go up"
            )
        statements.append(Statement(position=position, text=match[2]))
    if not statements:
        raise DataError(f"{where}: the history has no statements")
    return tuple(statements)


def load_factconsolidation(data: FactConsolidationData, source: RawSource | None) -> Loaded:
    """Histories and questions of FactConsolidation rows; DataError names row and line."""
    assert source is not None
    histories: dict[str, History] = {}
    by_context: dict[str, str] = {}
    questions: list[Question] = []
    for row, names in named_rows(source, {"context": str}):
        where = f"{row.where} ({names.row})"
        context: str = row.need("context")
        key = digest(context.encode("utf-8", "surrogatepass"))
        if key not in by_context:
            statements = parse_context(context, where)
            more = (f"{names.row}@{number}" for number in itertools.count())
            name = next(name for name in itertools.chain((names.stem, names.row), more) if name not in histories)
            by_context[key] = name
            histories[name] = History(id=name, length=names.length or str(len(statements)), statements=statements)
        for question_id, text in zip(names.questions, row.values["questions"], strict=True):
            questions.append(
                Question(id=question_id, row=names.row, history=by_context[key], text=text, hop_class=names.hop_class)
            )
    return Loaded(tuple(histories.values()), tuple(questions))
