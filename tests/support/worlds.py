"""Small hand-made worlds that several tests share: a tiny grammar, histories, memories, one question's evidence.

Nothing here computes an expected value; tests write those beside their own cases.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from eval.labels import factconsolidation_labels
from extract.frontends import extract
from offline.config.experiment import REGIMES, Prompt, ReaderPlan, ResolvedExperiment, RetrievalSettings, ViewSettings
from offline.config.frontend import Frontend, GrammarForms
from offline.config.yaml import find_config, load_yaml
from offline.freeze import freeze
from offline.loaders import load
from offline.loaders.factconsolidation import FactConsolidationData
from offline.loaders.plain import PlainData
from offline.loaders.raw import RawSource
from offline.memory import Memory
from offline.passages import Chunk, cut_characters, passages
from offline.records import Evidence, Extraction, History, Packet, Question, Statement
from offline.vectors import PairScores, Retrieval, Role, Scores, TextRow, Vectors, text_digest

# Eight characters, so that a budget can be counted by hand.
HEADING = "Records:"

GRAMMAR = GrammarForms(
    name="tiny",
    relations={
        "capital": ("The capital of {subject} is {object}.",),
        "next": ("{subject} leads to {object}.",),
        "spouse": ("{subject} is married to {object}.",),
    },
    no_fact=("{any} had lunch with {any}.",),
    unresolved=("Perhaps {any} moved to {any}.",),
)

PROMPT = Prompt(
    name="tiny",
    system="Answer from the records.",
    user="{evidence}\n\nQuestion: {question}",
    heading=HEADING,
    no_evidence="No records.",
)


def history(*statements: str | tuple[int, str], name: str = "world") -> History:
    """A history of these texts at positions 0, 1, 2, …, or at given ones where a pair (position, text) is passed."""
    given = [(index, item) if isinstance(item, str) else item for index, item in enumerate(statements)]
    return History(
        id=name,
        length=str(len(given)),
        statements=tuple(Statement(position=position, text=text) for position, text in given),
    )


def question(text: str, name: str = "q", of: str = "world") -> Question:
    """A question about the history called `of`."""
    return Question(id=name, row=of, history=of, text=text)


def settings(regime: str = "shared", **changes: object) -> ViewSettings:
    """The view settings of a regime with some of them changed."""
    return msgspec.structs.replace(REGIMES[regime], **changes)


def experiment(
    views: Sequence[str] = ("cmc",),
    grammar: GrammarForms = GRAMMAR,
    view_settings: ViewSettings | None = None,
    readers: Sequence[ReaderPlan] = (),
    name: str = "tiny",
) -> ResolvedExperiment:
    """A resolved experiment over plain data with this grammar."""
    return ResolvedExperiment(
        name=name,
        data=PlainData(),
        limit=None,
        frontend=Frontend(kind="grammar", grammar=grammar.name),
        grammar=grammar,
        views=tuple(views),
        settings=view_settings or ViewSettings(),
        prompt=PROMPT,
        readers=tuple(readers),
    )


def extraction(*histories: History, grammar: GrammarForms = GRAMMAR) -> Extraction:
    """What the grammar frontend makes of these histories."""
    return extract(histories, experiment(grammar=grammar))


def memory(
    statements: Sequence[str | tuple[int, str]],
    regime: str = "shared",
    grammar: GrammarForms = GRAMMAR,
    retrieval: Retrieval | None = None,
    **changes: object,
) -> Memory:
    """The compiled memory of these statements; `changes` are view settings."""
    world = history(*statements)
    return Memory(world, extraction(world, grammar=grammar), settings(regime, **changes), HEADING, retrieval=retrieval)


def vectors(
    passage: Mapping[str, Sequence[float]], query: Mapping[str, Sequence[float]], chunks: Sequence[Chunk] = ()
) -> Vectors:
    """Frozen vectors made by hand, by text."""
    given: list[tuple[Role, str, Sequence[float]]] = [("passage", text, vector) for text, vector in passage.items()]
    given += [("query", text, vector) for text, vector in query.items()]
    rows = [TextRow(role, text_digest(text)) for role, text, _ in given]
    return Vectors(rows, np.array([vector for _, _, vector in given], dtype=np.float32), chunks)


def _drawn(*texts: str) -> list[float]:
    """A vector of length 1 that depends on nothing but these texts."""
    raw = np.frombuffer(hashlib.sha256("\n".join(texts).encode()).digest(), dtype=np.uint8)[:8] - 127.5
    return [float(coordinate) for coordinate in raw / np.linalg.norm(raw)]


def drawn_retrieval(
    statements: Sequence[str | tuple[int, str]],
    queries: Iterable[str],
    units: Sequence[str],
    numbers: RetrievalSettings | None = None,
    chunk_characters: int = 60,
) -> Retrieval:
    """What models might have said of these units' passages: vectors and scores drawn from the texts' sha256.

    The unit `chunk` is cut by characters here.
    """
    compiled, queries = memory(statements), list(queries)
    chunks = cut_characters(compiled.history.id, compiled.lines, chunk_characters)
    cut = [
        p for unit in units for p in (passages(chunks, compiled.lines) if unit == "chunk" else compiled.corpus(unit).passages)
    ]
    texts = list(dict.fromkeys(passage.text for passage in cut))
    scores = [
        PairScores(
            query=text_digest(query),
            passages=tuple(text_digest(text) for text in texts),
            scores=tuple(str(_drawn("score", query, text)[0]) for text in texts),
        )
        for query in dict.fromkeys(queries)
    ]
    made = vectors(
        {text: _drawn("passage", text) for text in texts}, {query: _drawn("query", query) for query in queries}, chunks
    )
    return Retrieval(numbers or RetrievalSettings(), made, Scores(scores))


def show(
    statements: Sequence[str | tuple[int, str]],
    text: str,
    view: str = "cmc",
    regime: str = "shared",
    grammar: GrammarForms = GRAMMAR,
    retrieval: Retrieval | None = None,
    **changes: object,
) -> tuple[Packet, Evidence]:
    """What one view freezes for one question over these statements."""
    world, chosen = history(*statements), settings(regime, **changes)
    found = extraction(world, grammar=grammar)
    frozen = freeze([world], [question(text)], found, chosen, PROMPT, [view], retrieval=retrieval)
    (packet,) = frozen.packets[view]
    return packet, {evidence.digest: evidence for evidence in frozen.evidence}[packet.evidence]


@dataclass(frozen=True)
class RealWorld:
    """FactConsolidation, loaded, parsed and compiled."""

    histories: tuple[History, ...]
    questions: tuple[Question, ...]
    extraction: Extraction
    memories: dict[str, Memory]

    def memory(self, question: Question) -> Memory:
        """The memory that a question asks about."""
        return self.memories[question.history]


def real_world() -> RealWorld:
    """All eight rows in the shared regime, with the shipped MQuAKE grammar."""
    loaded = load(FactConsolidationData(), RawSource(path=real_file("factconsolidation.json")), None)
    grammar = load_yaml(find_config("grammars", "mquake"), GrammarForms)
    extraction = extract(loaded.histories, experiment(grammar=grammar))
    memories = {h.id: Memory(h, extraction, ViewSettings(), HEADING) for h in loaded.histories}
    return RealWorld(loaded.histories, loaded.questions, extraction, memories)


def real_file(name: str) -> Path:
    """A file of the folder that COLDREAD_DATA names; FileNotFoundError if it is not there."""
    path = Path(os.environ["COLDREAD_DATA"]) / name
    if not path.is_file():
        raise FileNotFoundError(f"COLDREAD_DATA is set, but {path} is missing")
    return path


def real_golds() -> dict[str, tuple[str, ...]]:
    """The gold answers of FactConsolidation by question id."""
    rows = factconsolidation_labels(FactConsolidationData(), RawSource(path=real_file("factconsolidation.json")))
    return {question: tuple(golds) for question, golds, _ in rows}
