"""Checks of a model's facts by code: exact substrings, and statements that are left to the reader."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from offline.config.calls import ExtractionPrompt
from offline.entity_keys import entity_key
from offline.records import Triple

# A name longer than this is a sentence.
LONGEST_NAME = 60
# Characters between the end of a sentence and the first word of the next.
_OPENING = " \t\n\"'“„‘«(["


def relation_name(raw: str) -> str:
    """The normal form of a relation name: NFC, lower case, underscores and runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFC", raw.casefold()).replace("_", " ").split())


def span_fault(text: str, triple: Triple) -> str | None:
    """The reason, worded for the model, why a triple cannot have been copied from this text; None if it can.

    Subject and object must each be an exact substring with its combining marks, on word boundaries (in cased scripts and
    numbers), contain a letter or digit, and occur at positions that do not overlap.
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
    """A text with lone surrogates, which JSON can spell and UTF-8 cannot hold, replaced by question marks."""
    return text.encode("utf-8", "replace").decode()


def _cased(text: str) -> bool:
    return text.isdigit() or text.lower() != text.upper()


def _mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _cuts(text: str, at: int) -> bool:
    """True if this place lies inside a cased word or a number, or between a letter and its marks."""
    if not 0 < at < len(text):
        return False
    return _mark(text[at]) or (_cased(text[at - 1]) and _cased(text[at]))


def _places(text: str, span: str) -> Iterator[int]:
    """The positions of a span on word boundaries, from the left."""
    at = text.find(span)
    while at >= 0:
        if not _cuts(text, at) and not _cuts(text, at + len(span)):
            yield at
        at = text.find(span, at + 1)


def _without(text: str, spans: Iterable[str]) -> str:
    """A text with these spans replaced by a bar, longer ones first."""
    for span in sorted(set(spans), key=lambda span: (-len(span), span)):
        kept, end = [], 0
        for at in _places(text, span):
            if at >= end:
                kept.append(text[end:at])
                end = at + len(span)
        text = "|".join([*kept, text[end:]])
    return text


def left_to_reader(text: str, triples: Sequence[Triple], prompt: ExtractionPrompt) -> str | None:
    """The reason why a statement with these facts stays unresolved all the same; None if it does not.

    A subject or object that is a pronoun, or begins or ends with one, names nobody without context. A denial states no value. A
    key with two values at once has no single one. Words spelt like a name are one: US, the film It.
    """
    pronouns, negations = _words(prompt.pronouns), _words(prompt.negations)
    ends = [span for triple in triples for span in (triple.subject, triple.object)]
    for span in ends:
        if (word := _pronoun(text, span, pronouns)) is not None:
            return f"the pronoun {word!r} names nobody by itself"
    # Outside of subjects and objects a denial may be in any case; within one it is lower case, in scripts with case.
    rest = _plain(_without(text, (span for span in ends if _plain(span) not in negations)))
    within = _spaced("|".join(ends))
    for word in negations:
        if _stands(word, rest) or (_stands(word, within) and _cased(word)):
            return f"a denial: {word!r}"
    return two_values(triples)


@lru_cache(maxsize=16)
def _words(listed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_plain(word) for word in listed))


def _pronoun(text: str, span: str, pronouns: Sequence[str]) -> str | None:
    """The pronoun that a subject or object is, or begins or ends with, if any.

    Capitals (two letters or more, in a text not all in capitals), or a capital within a sentence, make it a name. Capitalised
    at the start of a sentence, it begins a name if a capitalised word follows (My Fair Lady).
    """
    opens = any(_opens(text, at) for at in _places(text, span))
    if _plain(span) in pronouns:
        capitals = span.isupper() and not text.isupper()
        return None if len(span) > 1 and (capitals or (span[0].isupper() and not opens)) else span
    words = span.split()
    if opens and len(words) > 1 and words[0][0].isupper() and words[1][0].islower() and _plain(words[0]) in pronouns:
        return words[0]
    within = (word for word in (words[0], words[-1]) if len(word) > 1 and word.islower())
    return next((word for word in within if _plain(word) in pronouns), None)


def _opens(text: str, at: int) -> bool:
    """True if a sentence begins here: no letter, digit or comma precedes, apart from blanks and opening quotes."""
    before = text[:at].rstrip(_OPENING)
    return not before or not (before[-1].isalnum() or before[-1] == ",")


def _stands(word: str, text: str) -> bool:
    """True if a text holds a word as written; in scripts with case, not inside a longer word."""
    if word not in text:
        return False
    return not _cased(word) or re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def two_values(triples: Sequence[Triple]) -> str | None:
    """The contradiction between these facts of one statement; None if there is none."""
    values: dict[tuple[str, str], str] = {}
    for triple in triples:
        value = entity_key(triple.object)
        if values.setdefault((entity_key(triple.subject), triple.relation), value) != value:
            return f"two values at once for {triple.relation!r} of {triple.subject!r}"
    return None


def lower_case_words(text: str) -> set[str]:
    """The lower-case words of a text, in scripts with case."""
    return {word for word in re.findall(r"[^\W\d_]+", text) if word.islower()}


def _spaced(text: str) -> str:
    return " ".join(text.replace("’", "'").split())


def _plain(text: str) -> str:
    """A text in the form in which word lists are compared: casefolded, straight apostrophes, single spaces."""
    return _spaced(text.casefold())
