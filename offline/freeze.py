"""Freezing: each view's records for each question, rendered and content-addressed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offline.canonical import digest, digest_of
from offline.config.experiment import Prompt, ViewSettings
from offline.errors import ConfigurationError, guarded
from offline.memory import Measure, Memory, Selection
from offline.records import Evidence, Extraction, History, Packet, Question
from offline.render import Rendered
from offline.vectors import Retrieval
from offline.views import View, find_view


@dataclass(frozen=True)
class Frozen:
    """Packets by view, in question order, and each evidence text once, in order of first use."""

    packets: dict[str, tuple[Packet, ...]]
    evidence: tuple[Evidence, ...]


def freeze(
    histories: Sequence[History],
    questions: Sequence[Question],
    extraction: Extraction,
    settings: ViewSettings,
    prompt: Prompt,
    views: Sequence[str],
    measure: Measure = len,
    retrieval: Retrieval | None = None,
) -> Frozen:
    """Freeze the packets of these views. The same arguments give the same packets, byte for byte."""
    found = [(name, find_view(name)) for name in views]
    frozen: dict[tuple[str, str], tuple[Packet, Evidence]] = {}
    for memory, about in memories(histories, questions, extraction, settings, prompt.heading, measure, retrieval):
        for packet, evidence in freeze_memory(memory, about, found, prompt):
            frozen[packet.view, packet.question] = (packet, evidence)
    ordered = {view: [frozen[view, question.id] for question in questions] for view in views}
    texts = {evidence.digest: evidence for pairs in ordered.values() for _, evidence in pairs}
    packets = {view: tuple(packet for packet, _ in pairs) for view, pairs in ordered.items()}
    return Frozen(packets, tuple(texts.values()))


def memories(
    histories: Sequence[History],
    questions: Sequence[Question],
    extraction: Extraction,
    settings: ViewSettings,
    heading: str,
    measure: Measure = len,
    retrieval: Retrieval | None = None,
) -> Iterator[tuple[Memory, list[Question]]]:
    """Each compiled history with the questions about it, in order; one at a time, so that its indexes are freed."""
    by_text = {statement.text: statement for statement in extraction.statements}
    by_history: dict[str, list[Question]] = {history.id: [] for history in histories}
    for question in questions:
        by_history[question.history].append(question)
    for history in histories:
        part = Extraction(tuple({s.text: by_text[s.text] for s in history.statements}.values()), extraction.relations)
        about = by_history[history.id]
        yield Memory(history, part, settings, heading, measure, retrieval, [question.text for question in about]), about


def freeze_memory(
    memory: Memory, questions: Sequence[Question], views: Sequence[tuple[str, View]], prompt: Prompt
) -> Iterator[tuple[Packet, Evidence]]:
    """The packets of questions about one compiled history, question by question, each with its evidence."""
    history_digest, prompt_hash = digest_of(memory.history), digest_of(prompt)
    stored: dict[int, Evidence] = {}
    for question in questions:
        question_digest = digest_of(question)
        for name, view in views:
            selection, rendered = _choose(memory, question, name, view)
            # Equal choices share one rendered text, kept alive by memory's cache, so its identity is a key.
            shown = stored.get(id(rendered))
            if shown is None:
                shown = Evidence(digest=digest(rendered.text.encode()), positions=rendered.positions, text=rendered.text)
                stored[id(rendered)] = shown
            packet = Packet(
                question=question.id,
                question_digest=question_digest,
                history_digest=history_digest,
                view=name,
                prompt=prompt_hash,
                evidence=shown.digest,
                records=len(rendered.positions),
                characters=len(rendered.text),
                dropped=rendered.dropped,
                truncated=rendered.truncated,
                fallback=selection.fallback,
            )
            yield packet, shown


def _choose(memory: Memory, question: Question, name: str, view: View) -> tuple[Selection, Rendered]:
    """A view's settled choice, rendered; ConfigurationError for a view that breaks its contract."""
    where = f"view {name!r}, question {question.id!r}"
    with guarded(where, cure="; mend the view"):
        chosen = view(memory, question)
        if not isinstance(chosen, Selection):
            raise ConfigurationError(f"{where}: a view returns a Selection, not {type(chosen).__name__}")
        selection = memory.settle(chosen)
        return selection, memory.render(selection)
