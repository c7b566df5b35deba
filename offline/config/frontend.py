"""Configuration of the frontend: how statements become triples."""

from offline.canonical import Record


class Frontend(Record, frozen=True):
    """How statements become triples. `grammar` names the forms of the grammar frontend."""

    kind: str = "grammar"
    grammar: str | None = None


class GrammarForms(Record, frozen=True):
    """The sentence forms of one grammar.

    `relations` maps a relation name to forms with `{subject}` and `{object}`; `no_fact` and `unresolved` list forms, plain
    sentences or with `{any}` in them, whose texts carry no fact, or must be left to the reader.
    """

    name: str
    relations: dict[str, tuple[str, ...]]
    no_fact: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
