"""What code holds a model's facts to, whatever the model says: literal spans, and statements that are left to the reader."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from offline.asking import ExtractionPrompt
from offline.normalise import entity_key
from offline.records import Triple

# A name longer than this is a sentence.
LONGEST_NAME = 60


def relation_name(raw: str) -> str:
    """The one spelling of a relation name: NFC, lower case, underscores and runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFC", raw.casefold()).replace("_", " ").split())


def span_fault(text: str, triple: Triple) -> str | None:
    """Why a triple cannot have been copied from this text, in words that the model can use; None if it can.

    Subject and object stand in the text letter by letter, marks on a letter with it, not inside a longer word (of a script that
    has upper and lower case, or of a number), have a letter or digit, and can be found in two places that do not overlap.
    """
    places = []
    for part, span in (("subject", triple.subject), ("object", triple.object)):
        if span not in text or not span:
            return f"the {part} {_short(span)} does not stand in the text"
        if span != span.strip() or not entity_key(span):
            return f"the {part} {_short(span)} is no name"
        found = list(_places(text, span))
        if not found:
            return f"the {part} {_short(span)} is only part of a word"
        places.append((found[0], found[-1]))
    (first_s, last_s), (first_o, last_o) = places
    if first_s + len(triple.subject) > last_o and first_o + len(triple.object) > last_s:
        return f"subject {_short(triple.subject)} and object {_short(triple.object)} are the same words of the text"
    if not triple.relation or len(triple.relation) > LONGEST_NAME or not entity_key(triple.relation):
        return f"the relation {_short(triple.relation)} is no short name"
    if triple.relation != without_surrogates(triple.relation):
        return "the relation holds what is no character"
    return None


def _short(text: str) -> str:
    shown = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…"
    return repr(without_surrogates(shown))


def without_surrogates(text: str) -> str:
    """A text in which each lone surrogate, which JSON can spell and UTF-8 cannot hold, is a question mark."""
    return text.encode("utf-8", "replace").decode()


def _cased(character: str) -> bool:
    return character.isdigit() or character.lower() != character.upper()


def _mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _cuts(text: str, at: int) -> bool:
    """Whether a word, or a letter and its marks, goes on across this place."""
    if not 0 < at < len(text):
        return False
    return _mark(text[at]) or (_cased(text[at - 1]) and _cased(text[at]))


def _places(text: str, span: str) -> Iterator[int]:
    """Where a span begins, from the left, places inside a longer word left out."""
    at = text.find(span)
    while at >= 0:
        if not _cuts(text, at) and not _cuts(text, at + len(span)):
            yield at
        at = text.find(span, at + 1)


def _without(text: str, spans: Iterable[str]) -> str:
    """A text with a bar in the place of these spans, longer ones first."""
    for span in sorted(set(spans), key=lambda span: (-len(span), span)):
        kept, end = [], 0
        for at in _places(text, span):
            if at >= end:
                kept.append(text[end:at])
                end = at + len(span)
        text = "|".join([*kept, text[end:]])
    return text


def left_to_reader(text: str, triples: Sequence[Triple], prompt: ExtractionPrompt) -> str | None:
    """Why a statement with these facts stays unresolved all the same; None if it does not.

    A pronoun for a subject or object names nobody without its context; a denial states no value, and its word is no name; a
    key with two values at once has no single one.
    """
    for triple in triples:
        for span in (triple.subject, triple.object):
            if _plain(span) in prompt.pronouns:
                return f"the pronoun {span!r} names nobody by itself"
    ends = (span for triple in triples for span in (triple.subject, triple.object))
    rest = _plain(_without(text, (span for span in ends if _plain(span) not in prompt.negations)))
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
    """A text as lists of words are written: no capitals, straight apostrophes, single spaces."""
    return " ".join(text.casefold().replace("’", "'").split())
