"""Results of analyses, as printed by commands: records, so every field has a name and a type."""

import json

import msgspec


class Result(msgspec.Struct, frozen=True):
    """Base of all results. They are never stored, so have no format; UNSET fields are omitted from the JSON."""


def as_json(result: object) -> str:
    """A result as `--json` prints it."""
    return json.dumps(msgspec.to_builtins(result), indent=1)
