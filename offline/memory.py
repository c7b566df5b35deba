"""A compiled memory: one history, its graph, and the indexes that views share, built on first use."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from offline.config.experiment import ViewSettings
from offline.errors import ConfigurationError
from offline.graph import Edge, Graph, Key, assertions, compile_graph
from offline.passages import WINDOW_CHARACTERS, WINDOW_OVERLAP, Chunk, Passage, cut_characters, passages
from offline.records import Extraction, Fallback, History, Statement
from offline.render import Line, Rendered, record_line, render
from offline.retrievers import Corpus
from offline.vectors import Retrieval

Measure = Callable[[str], int]


@dataclass(frozen=True)
class Selection:
    """The records that a view chose."""

    positions: tuple[int, ...]  # in any order
    structured: bool = True  # chosen by parsed facts: unresolved records are added, an incomplete parse falls back
    may_fall_back: bool = True  # an empty choice falls back as the regime says; False for a negative control
    fallback: Fallback | None = None  # set where the choice is a fallback

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", tuple(self.positions))


class Records:
    """One history's records as lines and passages, without facts or answers; `asked`: coming questions, a hint for speed."""

    def __init__(
        self, history: History, settings: ViewSettings, retrieval: Retrieval | None = None, asked: Sequence[str] = ()
    ) -> None:
        self.history = history
        self.settings = settings
        self.retrieval = retrieval or Retrieval()
        self._asked = asked
        self._statements = {statement.position: statement for statement in history.statements}
        self._lines: dict[int, Line] = {}
        self._corpora: dict[str, Corpus] = {}

    def statement(self, position: int) -> Statement:
        """The record at a position; ConfigurationError if there is none."""
        if position not in self._statements:
            raise ConfigurationError(f"history {self.history.id!r} has no record at position {position!r}; mend the view")
        return self._statements[position]

    def line(self, position: int) -> str:
        """The rendered line of a record."""
        return self._line(position).text

    def lines_of(self, positions: Iterable[int]) -> list[Line]:
        """The rendered lines of these records, each once, in order."""
        return [self._line(position) for position in sorted(set(positions))]

    def _line(self, position: int) -> Line:
        """Rendered on first use: most views show few of a long history's records."""
        line = self._lines.get(position)
        if line is None:
            line = self._lines[position] = Line(position, record_line(self.statement(position)))
        return line

    @cached_property
    def lines(self) -> list[Line]:
        """The rendered lines of all records, in order."""
        return [self._line(position) for position in self._statements]

    def corpus(self, unit: str) -> Corpus:
        """The passages of one unit, newest first, and the retrievers over them.

        unit: `statement`, `fact` (current edges), `chunk` (tokens of the encoder), `chunkN` (N characters) or `window`
        (sliding).
        """
        if unit not in self._corpora:
            self._corpora[unit] = Corpus(unit, self._passages(unit), self.settings, self.retrieval, self._asked)
        return self._corpora[unit]

    def _passages(self, unit: str) -> list[Passage]:
        if unit == "statement":
            return [Passage((s.position,), s.text, s.text) for s in reversed(self.history.statements)]
        return passages(self._chunks(unit), self.lines)

    def _chunks(self, unit: str) -> list[Chunk]:
        if unit == "chunk":
            return self.retrieval.need_vectors().chunks.get(self.history.id, [])
        if unit == "window":
            return cut_characters(self.history.id, self.lines, WINDOW_CHARACTERS, WINDOW_OVERLAP)
        return cut_characters(self.history.id, self.lines, int(unit.removeprefix("chunk")))


class Memory(Records):
    """Everything that a view may use for one history; no answer is known here."""

    def __init__(
        self,
        history: History,
        extraction: Extraction,
        settings: ViewSettings,
        heading: str,
        measure: Measure = len,
        retrieval: Retrieval | None = None,
        asked: Sequence[str] = (),
    ) -> None:
        super().__init__(history, settings, retrieval, asked)
        self.heading = heading
        self.measure = measure
        self._extraction = extraction
        self.graph: Graph = compile_graph(history, extraction)
        self._relation_words = {relation.name: relation.words for relation in extraction.relations}
        self._closures: dict[tuple[str, int, bool], list[Key]] = {}
        self._rendered: dict[Selection, Rendered] = {}

    def closure(self, question: str, hops: int | None = None, *, previous: bool = False) -> list[Key]:
        """The keys that the question's anchors reach in the current (or previous-value) graph."""
        depth = self.settings.hops if hops is None else hops
        found = self._closures.get((question, depth, previous))
        if found is None:
            found = self.graph.closure(self.graph.subjects.anchors(question), depth, previous=previous)
            self._closures[question, depth, previous] = found
        return found

    def positions(self, keys: Iterable[Key], *, previous: bool = False) -> tuple[int, ...]:
        """The records that state the current (or previous) value of these keys."""
        edges = self.graph.previous if previous else self.graph.current
        return tuple(edges[key].position for key in keys)

    @cached_property
    def stated(self) -> dict[Key, tuple[Edge, ...]]:
        """Every assertion of each key, in position order; the last one is the current edge."""
        found: dict[Key, list[Edge]] = {}
        for edge in assertions(self.history, self._extraction):
            found.setdefault(edge.key, []).append(edge)
        return {key: tuple(edges) for key, edges in found.items()}

    @cached_property
    def raw_history(self) -> Selection:
        """Every statement."""
        return Selection(tuple(self._statements), structured=False)

    @cached_property
    def latest_state(self) -> Selection:
        """The record of every current edge."""
        return Selection(self.positions(self.graph.current))

    @cached_property
    def stale_state(self) -> Selection:
        """The record of every key's previous value."""
        return Selection(self.positions(self.graph.current, previous=True))

    @cached_property
    def facts(self) -> list[Edge]:
        """Current edges, newest first; edges of one record in key order."""
        return sorted(self.graph.current.values(), key=lambda edge: (-edge.position, edge.key))

    @cached_property
    def values(self) -> dict[str, Edge]:
        """Each current value as written, once, with the newest edge that holds it."""
        return {edge.value: edge for edge in reversed(self.facts)}

    def _passages(self, unit: str) -> list[Passage]:
        return self._facts() if unit == "fact" else super()._passages(unit)

    def _facts(self) -> list[Passage]:
        """Current facts: a model ranks the statement; BM25 its text, subject, object and the relation's words."""
        texts, words = self._statements, self._relation_words
        return [
            Passage((e.position,), text, f"{text} {e.surface} {e.value} {words[e.relation]}")
            for e in self.facts
            for text in (texts[e.position].text,)
        ]

    def settle(self, selection: Selection) -> Selection:
        """Apply the regime's fallbacks to a view's choice."""
        if not selection.structured or not selection.may_fall_back:
            return selection
        if self.graph.unresolved and self.settings.incomplete_parse == "raw_history":
            return Selection(self.raw_history.positions, structured=False, fallback="raw_history")
        if selection.positions:
            return selection
        if self.settings.empty_selection == "latest_state" and self.latest_state.positions:
            return Selection(self.latest_state.positions, fallback="latest_state")
        return Selection(self.raw_history.positions, structured=False, fallback="raw_history")

    def render(self, selection: Selection) -> Rendered:
        """The evidence text of a settled choice; equal choices are rendered once."""
        rendered = self._rendered.get(selection)
        if rendered is None:
            chosen = self.lines_of(selection.positions)
            unresolved = [self._line(p) for p in self.graph.unresolved] if selection.structured else []
            rendered = render(chosen, unresolved, self.heading, self.settings.budget, self.settings.unresolved_percent)
            self._rendered[selection] = rendered
        return rendered
