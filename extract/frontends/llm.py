"""Frontends that ask a model: `llm` about every statement, `hybrid` only where no form learnt from its answers fits.

Statements go in waves. All calls of a wave are made at once, with the catalogue of relation names as of the wave before:
engines run full, and the calls about the first statements stay the same when a history grows. Statements without a usable
answer are asked about once more, one by one; then new relation names are mapped. A statement still without a valid answer stays
unresolved, with the reason. Nothing here knows of questions: the input is statement texts alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from extract.frontends import asks_model
from extract.frontends.catalogue import Catalogue
from extract.frontends.checks import two_values
from extract.frontends.edited_catalogue import relations_of
from extract.frontends.forms import Forms
from extract.frontends.records import Draft, Extracted
from extract.frontends.statement_calls import answer_skeleton, ask, check_caps, quarter, read_answer
from offline.config.calls import EditedCatalogue, Extractor
from offline.records import Extraction, Relation, StatementExtraction, Triple
from readers.calls.caller import Ask, Caller


@asks_model
def llm(texts: Sequence[str], extractor: Extractor, caller: Caller) -> Extracted:
    """Ask the model about every statement."""
    reader = _Reader(extractor, caller)
    waiting = iter(texts)
    drafts: list[Draft] = []
    while wave := list(islice(waiting, extractor.wave * extractor.statements)):
        drafts += reader.read(wave)
    return finish(drafts, reader.catalogue, extractor.catalogue)


@asks_model
def hybrid(texts: Sequence[str], extractor: Extractor, caller: Caller) -> Extracted:
    """Ask the model about a wave of statements, learn forms, and continue with statements that no form fits."""
    reader = _Reader(extractor, caller)
    forms = Forms(extractor, caller, reader.catalogue)
    read: list[Draft] = []
    asked: dict[str, Draft] = {}
    # A form trusted early may be given up later; the statements that it alone fitted are asked about then.
    while left := [text for text in texts if text not in asked and forms.read(text) is None]:
        read += reader.read(left[: extractor.wave * extractor.statements])
        asked = {draft.text: draft for draft in forms.learn(read)}
    drafts = [draft for text in texts if (draft := asked.get(text) or forms.read(text)) is not None]
    return finish(drafts, reader.catalogue, extractor.catalogue, forms)


def plan(texts: Sequence[str], extractor: Extractor, caller: Caller) -> int:
    """Make one call about every statement, no relation known yet; return an estimate of the answers' tokens.

    Each answer counts as one fact with the whole text as its ends; repairs, mappings and catalogue growth are left out.
    """
    llm(texts, replace(extractor, repair=False, align=False), caller)
    skeleton = answer_skeleton()
    return sum(caller.count(skeleton) + caller.count(text) for text in texts)


class _Reader:
    """Reads statements wave by wave, each with the catalogue of those before."""

    def __init__(self, extractor: Extractor, caller: Caller) -> None:
        check_caps(extractor, caller)
        self._extractor = extractor
        self._caller = caller
        self.catalogue = Catalogue(extractor, caller)

    def read(self, texts: Sequence[str]) -> list[Draft]:
        """Drafts of these statements, in order."""
        found: dict[str, Draft] = {}
        for text in texts:
            if (special := self._caller.special_in(text)) is not None:
                reason = f"it spells out {special!r}, a special token of the model, which no call can carry"
                found[text] = Draft(text, "unresolved", (), reason, "code", None)
        relations = self.catalogue.shown()
        batches = list(self._batches([text for text in texts if text not in found]))
        asks = [ask(self._extractor, "extract", batch, relations=relations) for batch in batches]
        faults = self._take("model", batches, asks, found)
        if self._extractor.repair:
            alone = [[text] for text in faults]
            asks = [
                ask(self._extractor, "repair", [text], relations=relations, fault=self._told(fault))
                for text, (fault, _) in faults.items()
            ]
            faults = self._take("repair", alone, asks, found)
        for text, (fault, call) in faults.items():
            found[text] = Draft(text, "unresolved", (), f"no valid answer: {fault}", "code", call)
        drafts = [found[text] for text in texts]
        self.catalogue.add(drafts)
        return drafts

    def _take(
        self, by: Literal["model", "repair"], batches: Sequence[Sequence[str]], asks: Sequence[Ask], found: dict[str, Draft]
    ) -> dict[str, tuple[str, str]]:
        """Make the calls about these batches and put drafts into `found`; the other texts' faults, each with its call."""
        faults: dict[str, tuple[str, str]] = {}
        for batch, prediction in zip(batches, self._caller.ask(asks), strict=True):
            for text, read in zip(batch, read_answer(prediction, batch, self._extractor.prompt, by), strict=True):
                fault = read if isinstance(read, str) else self._special(read)
                if fault is not None:
                    faults[text] = (fault, prediction.request)
                elif isinstance(read, Draft):
                    found[text] = read
        return faults

    def _special(self, draft: Draft) -> str | None:
        """The reason why a draft's relation cannot be shown in later calls; None if all can."""
        for triple in draft.triples:
            if (special := self._caller.special_in(triple.relation)) is not None:
                return f"the relation spells out {special!r}, a special token of the model"
        return None

    def _told(self, fault: str) -> str:
        """The fault as told to the model: it may quote the answer, but nothing that no call can carry."""
        return fault if self._caller.special_in(fault) is None else "it spells out a special token"

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        """Batches of at most `statements` texts and a quarter of a call's room; a longer text goes alone."""
        extractor = self._extractor
        room = quarter(extractor, self._caller)
        batch: list[str] = []
        size = 0
        for text in texts:
            tokens = self._caller.count(text)
            if batch and (len(batch) == extractor.statements or size + tokens > room):
                yield batch
                batch, size = [], 0
            batch.append(text)
            size += tokens
        if batch:
            yield batch


def finish(
    drafts: Sequence[Draft], catalogue: Catalogue, edited: EditedCatalogue | None, forms: Forms | None = None
) -> Extracted:
    """Build the extraction, with relation names mapped by the model, then by a person."""
    names = catalogue.names()
    relation_of = relations_of(names, edited)
    statements = [_statement(draft, relation_of) for draft in drafts]
    used = sorted({triple.relation for statement in statements for triple in statement.triples})
    relations = tuple(Relation(name=name, words=name) for name in used)
    induced = forms.induced() if forms is not None else ()
    return Extracted(Extraction(tuple(statements), relations), tuple(drafts), names, induced)


def _statement(draft: Draft, relation_of: Mapping[str, str]) -> StatementExtraction:
    triples = tuple(dict.fromkeys(Triple(t.subject, relation_of[t.relation], t.object) for t in draft.triples))
    # Merged names may give a key two values.
    if (reason := two_values(triples)) is not None:
        return StatementExtraction(text=draft.text, status="unresolved", reason=reason)
    return StatementExtraction(text=draft.text, status=draft.status, triples=triples, reason=draft.reason)
