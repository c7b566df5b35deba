"""The main table as grids: two to be read (views and readers), and one flat for programs."""

from typing import Any

import msgspec

from eval.analysis.provenance import extraction_words
from eval.records import ExtractedBy
from eval.typeset.grid import Entry, Grid, Row

# From the costs of a row in JSON to their headings, which also name what input and output are counted in. Those of `_RARE` have
# a column only where a row counts any.
_COSTS = {
    "input_mean": "input",
    "output_mean": "output",
    "requests": "requests",
    "truncated": "truncated",
    "fallbacks": "fallback",
    "cut": "cut",
    "failed": "failed",
    "capped": "capped",
}
_SIZES = ("input_mean", "output_mean")
_RARE = {
    "fallbacks": "fallback: questions for which the view chose nothing, or might not choose because a record is unresolved; "
    "they were shown latest_state or raw_history instead, and their answers are not of the view's own choice.",
    "capped": "capped: answers that ended by the reader's output cap; one that was still thinking, or had not come to the "
    "point, is scored as it stands.",
}
_NUMBERS = ("questions", "correct", "percent", "low", "high")


def grids(result: dict[str, Any]) -> tuple[Grid, Grid]:
    """The table of views and hop classes, published rows below this run's, and that of readers."""
    ours, theirs = result["rows"], _published(result)
    lengths = any(row["length"] for row in ours)
    of = {name: _same_questions(name, [*ours, *theirs]) for name in result["hop_classes"]}

    units = sorted({row["unit"] for row in ours})
    mixed = len(units) > 1

    there = _costs(result)

    def cost(row: dict[str, Any], name: str) -> Entry:
        return f"{row[name]} {row['unit']}" if mixed and name in _SIZES and name in row else row.get(name)

    def line(row: dict[str, Any]) -> Row:
        length = [row["length"] or "all"] * lengths
        accuracies = (_shown(row["accuracy"].get(name), of[name]) for name in of)
        return (row["view"], row["reader"], *length, _seal(row), *accuracies, *(cost(row, name) for name in there))

    percents = (f"{name} % (n = {questions})" if questions else f"{name} %" for name, questions in of.items())
    costs = (heading if mixed or name not in _SIZES else f"{heading} {units[0]}" for name, heading in there.items())
    headings = ("view", "reader", *["length"] * lengths, "sealed", *percents, *costs)
    groups = tuple(tuple(map(line, rows)) for rows in (ours, theirs) if rows)
    return Grid(headings, groups, 3 + lengths, _notes(result)), _readers(result)


def flat(result: dict[str, Any]) -> Grid:
    """Every number of the table in a column of its own; `source` tells this run's rows from published ones."""
    classes, there = result["hop_classes"], _costs(result)

    def line(row: dict[str, Any]) -> Row:
        numbers = [row["accuracy"].get(name, {}).get(number) for name in classes for number in _NUMBERS]
        facts = {} if "where" in row else result["readers"][row["reader"]]
        source = f"published: {result['published']['source']}, {row['where']}" if "where" in row else "this run"
        extraction = row["extraction"] if "where" in row else _extraction(result)
        whole: tuple[Entry, ...] = (_seal(row), facts.get("requests"), facts.get("seconds"), source, extraction)
        key = (row["view"], row["reader"], row["length"] or "all", result["metric"])
        return (*key, *numbers, row.get("unit"), *(row.get(name) for name in there), *whole)

    numbers = (f"{name}_{number}" for name in classes for number in _NUMBERS)
    whole = ("sealed", "reader_requests", "reader_seconds", "source", "extraction")
    headings = ("view", "reader", "length", "metric", *numbers, "unit", *there, *whole)
    return Grid(headings, (tuple(map(line, [*result["rows"], *_published(result)])),), 4)


def _costs(result: dict[str, Any]) -> dict[str, str]:
    return {name: heading for name, heading in _COSTS.items() if name not in _RARE or _any(result, name)}


def _any(result: dict[str, Any], name: str) -> bool:
    return any(row.get(name) for row in result["rows"])


def _published(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Published rows in the shape of this run's, without costs; only they have a `where`."""
    given = result["published"] or {"rows": ()}
    return [
        {
            "view": row["view"],
            "reader": f"{row['reader']}, {row['extraction']} extraction",
            "length": None,
            "extraction": row["extraction"],
            "where": row["where"],
            "accuracy": {
                name: {"questions": given["questions"][name], "percent": shown} for name, shown in row["percent"].items()
            },
        }
        for row in given["rows"]
    ]


def _readers(result: dict[str, Any]) -> Grid:
    calls = any(facts["calls"] for facts in result["readers"].values())
    rows = tuple(
        (
            *(name, facts["model"], _seal(facts), f"{facts['root'][:12]}…", facts["requests"]),
            *((facts["calls"],) if calls else ()),
            facts["seconds"],
        )
        for name, facts in result["readers"].items()
    )
    note = "requests, seconds: of all views of a reader together; views share requests, and their seconds cannot be told apart."
    more = " calls: of all its pipelines together; `coldread pipelines` tells what they took." if calls else ""
    headings = ("reader", "model", "sealed", "seal", "requests", *["calls"] * calls, "seconds")
    return Grid(headings, (rows,), 4, (note + more,))


def _extraction(result: dict[str, Any]) -> str:
    return extraction_words(msgspec.convert(result["extraction"], ExtractedBy))


def _same_questions(hop_class: str, rows: list[dict[str, Any]]) -> int | None:
    """How many questions of a hop class every row is of; None if that differs."""
    counts = {row["accuracy"][hop_class]["questions"] for row in rows if hop_class in row["accuracy"]}
    return counts.pop() if len(counts) == 1 else None


def _shown(accuracy: dict[str, Any] | None, of: int | None) -> str | None:
    """Percent and interval, and of how many questions where the heading cannot say it."""
    if accuracy is None:
        return None
    interval = f" ({accuracy['low']}-{accuracy['high']})" if "low" in accuracy else ""
    questions = "" if of else f" of {accuracy['questions']}"
    return f"{accuracy['percent']}{interval}{questions}"


def _seal(row: dict[str, Any]) -> str:
    if "where" in row:
        return f"published, {row['where']}"
    return "blind" if row["sealed_blind"] else "after labels were opened"


def _notes(result: dict[str, Any]) -> tuple[str, ...]:
    ours = (
        f"{result['experiment']}: {result['metric']}, percent (Wilson 95 %). input, output: means over questions. requests: "
        "distinct ones that the model was given. truncated: packets cut to the evidence budget. cut: questions whose packet "
        "was cut further, to the reader's input cap. failed: questions that a fault left without an answer, counted as wrong."
    )
    pipelines = (
        "A pipeline asks several times: its input and output are those of all calls that an answer rests on, shared ones "
        "counted for each; its requests are distinct calls. It has no packets, so none are truncated; cut are questions with a "
        "call that left out records retrieved for it, be it to the evidence budget or to the input cap."
    )
    sampled = ", ".join(dict.fromkeys(row["view"] for row in result["rows"] if row.get("sampled")))
    given = result["published"]
    notes = (
        ours,
        *(note for name, note in _RARE.items() if _any(result, name)),
        f"extraction: {_extraction(result)}.",
        any("sampled" in row for row in result["rows"]) and pipelines,
        sampled and f"Sampled, where all else is decoded greedily: {sampled}.",
        given and f"published: substring match as reported in {given['source']}; not measured here.",
    )
    return tuple(note for note in notes if note)
