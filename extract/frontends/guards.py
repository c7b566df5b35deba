"""What code holds a model's facts to, whatever the model says: literal spans, and statements that are left to the reader."""

import re
from collections.abc import Sequence

from offline.asking import ExtractionPrompt
from offline.normalise import entity_key
from offline.records import Triple

# A name longer than this is a sentence.
LONGEST_NAME = 60


def relation_name(raw: str) -> str:
    """The one spelling of a relation name: lower case, underscores and runs of white space as one space."""
    return " ".join(raw.casefold().replace("_", " ").split())


def span_fault(text: str, triple: Triple) -> str | None:
    """Why a triple cannot have been copied from this text, in words that the model can use; None if it can.

    Subject and object stand in the text letter by letter, not inside a longer word (of a script that has upper and lower
    case, or of a number), have a letter or digit, and can be found in two places that do not overlap.
    """
    places = []
    for part, span in (("subject", triple.subject), ("object", triple.object)):
        if span not in text or not span:
            return f"the {part} {_short(span)} does not stand in the text"
        if span != span.strip() or not entity_key(span):
            return f"the {part} {_short(span)} is no name"
        found = _ends(text, span)
        if found is None:
            return f"the {part} {_short(span)} is only part of a word"
        places.append(found)
    (first_s, last_s), (first_o, last_o) = places
    if first_s + len(triple.subject) > last_o and first_o + len(triple.object) > last_s:
        return f"subject {_short(triple.subject)} and object {_short(triple.object)} are the same words of the text"
    if not triple.relation or len(triple.relation) > LONGEST_NAME or not entity_key(triple.relation):
        return f"the relation {_short(triple.relation)} is no short name"
    if not _is_text(triple.relation):
        return "the relation holds what is no character"
    return None


def _short(text: str) -> str:
    shown = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…"
    return repr(shown.encode("utf-8", "replace").decode())


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cased(character: str) -> bool:
    return character.isdigit() or character.lower() != character.upper()


def _ends(text: str, span: str) -> tuple[int, int] | None:
    """Where a span begins first and last, places inside a longer word left out; None if there is no other."""

    def whole(at: int) -> bool:
        end = at + len(span)
        before = at > 0 and _cased(text[at - 1]) and _cased(text[at])
        after = end < len(text) and _cased(text[end]) and _cased(text[end - 1])
        return not before and not after

    first = text.find(span)
    while first >= 0 and not whole(first):
        first = text.find(span, first + 1)
    if first < 0:
        return None
    last = text.rfind(span)
    while not whole(last):
        last = text.rfind(span, 0, last + len(span) - 1)
    return first, last


def left_to_reader(text: str, triples: Sequence[Triple], prompt: ExtractionPrompt) -> str | None:
    """Why a statement with these facts stays unresolved all the same; None if it does not.

    A pronoun for a subject or object names nobody without its context; a denial states no value; a key with two values at once
    has no single one.
    """
    for triple in triples:
        for span in (triple.subject, triple.object):
            if _plain(span) in prompt.pronouns:
                return f"the pronoun {span!r} names nobody by itself"
    rest = text
    for span in sorted({s for t in triples for s in (t.subject, t.object)}, key=lambda s: (-len(s), s)):
        rest = rest.replace(span, "\n")
    rest = _plain(rest)
    for word in prompt.negations:
        if word in rest and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", rest):
            return f"a denial: {word!r}"
    return two_values(triples)


def two_values(triples: Sequence[Triple]) -> str | None:
    """Why these facts of one statement contradict each other; None if they do not."""
    values: dict[tuple[str, str], str] = {}
    for triple in triples:
        value = entity_key(triple.object)
        if values.setdefault((entity_key(triple.subject), triple.relation), value) != value:
            return f"two values at once for {triple.relation!r} of {triple.subject!r}"
    return None


def _plain(text: str) -> str:
    return text.casefold().replace("’", "'")
