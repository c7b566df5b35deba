"""Configuration of the frontend, which turns statements into triples."""

from offline.canonical import Record


class Frontend(Record, frozen=True):
    """The section `frontend` of an experiment."""

    kind: str = "grammar"
    grammar: str | None = None  # name of the grammar frontend's forms


class GrammarForms(Record, frozen=True):
    """The sentence forms of one grammar."""

    name: str
    relations: dict[str, tuple[str, ...]]  # by relation, forms with `{subject}` and `{object}`
    no_fact: tuple[str, ...] = ()  # forms of texts without a fact, plain or with `{any}`
    unresolved: tuple[str, ...] = ()  # the same for texts that are left to the reader
