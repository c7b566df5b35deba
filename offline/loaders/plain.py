"""The plain JSONL form for a user's own histories: one history a line (docs/data.md).

    {"history": "alice", "statements": ["She lives in Rome.", ...], "questions": [{"id": "1", "text": "...", "hops": 2}]}

A statement is a string, or an object with `text` and either `position` (an integer) or `time` (ISO 8601). Times give the
order, ties keep the file's order, and the position is the rank. A question's `answers` are read by eval/ alone.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from offline.errors import DataError
from offline.loaders import DataSection, Loaded
from offline.loaders.raw import RawSource
from offline.records import History, HopClass, Question, Statement


class PlainData(DataSection, frozen=True, tag="plain", tag_field="kind"):
    """A user's own histories in the plain JSONL form (docs/data.md)."""

    needs_file = True
    path: str | None = None
    rows: tuple[str, ...] = ()


class PlainStatement(msgspec.Struct, forbid_unknown_fields=True):
    """A statement with its position or its time, or neither."""

    text: str
    position: int | None = None
    time: str | None = None


class PlainQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A question. Its answers stay undecoded bytes here; only eval/ reads them."""

    id: str
    text: str
    hops: Annotated[int, msgspec.Meta(ge=1)] | None = None
    answers: msgspec.Raw = msgspec.Raw()


def question_id(history: str, question: str) -> str:
    """A question's id in a run, unique even where two histories have a question `0`."""
    return f"{history}/{question}"


def _time(text: str, where: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise DataError(f"{where}: time {text!r} is not ISO 8601 (2026-01-31 or 2026-01-31T12:00:00+00:00)") from error


def _statements(raw: Sequence[str | PlainStatement], where: str) -> tuple[Statement, ...]:
    parsed: list[PlainStatement] = []
    for index, item in enumerate(raw):
        place = f"{where}, statement {index}"
        statement = PlainStatement(text=item) if isinstance(item, str) else item
        if not statement.text.strip():
            raise DataError(f"{place}: the text is empty")
        parsed.append(statement)
    forms = {(s.position is not None, s.time is not None) for s in parsed}
    if len(forms) > 1 or (True, True) in forms:
        raise DataError(f"{where}: statements must all have a position, or all a time, or all neither")
    if forms == {(False, True)}:
        times = [_time(str(s.time), f"{where}, statement {i}") for i, s in enumerate(parsed)]
        try:
            order = sorted(range(len(parsed)), key=lambda i: times[i])
        except TypeError as error:
            raise DataError(f"{where}: some times have a zone and some have none; give all or none") from error
        return tuple(Statement(position=rank, text=parsed[i].text, time=parsed[i].time) for rank, i in enumerate(order))
    return tuple(Statement(position=index if s.position is None else s.position, text=s.text) for index, s in enumerate(parsed))


def load_plain(data: PlainData, source: RawSource | None) -> Loaded:
    """Histories and questions of the plain form; DataError names line and statement."""
    assert source is not None
    histories, questions = [], []
    columns = {"history": str, "statements": list[str | PlainStatement], "questions": list[PlainQuestion]}
    for row in source.rows(columns):
        name: str = row.need("history")
        statements = _statements(row.need("statements"), row.where)
        histories.append(History(id=name, length=str(len(statements)), statements=statements))
        for question in row.need("questions"):
            hop_class: HopClass = "all" if question.hops is None else "sh" if question.hops == 1 else "mh"
            questions.append(
                Question(
                    id=question_id(name, question.id),
                    row=name,
                    history=name,
                    text=question.text,
                    hop_class=hop_class,
                    hops=question.hops,
                )
            )
    return Loaded(tuple(histories), tuple(questions))
