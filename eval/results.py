"""Results: what an analysis gives, and a command prints. They are records, so that every field has a name and a type."""

import json

import msgspec


class Result(msgspec.Struct, frozen=True):
    """Base of all results. Nothing stores them, so they have no format; a field that is UNSET is left out of the JSON."""


def as_json(result: object) -> str:
    """A result as `--json` prints it."""
    return json.dumps(msgspec.to_builtins(result), indent=1)
