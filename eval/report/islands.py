"""What the report's question browser shows, as compressed islands of the page: each is decoded when something in it is opened.

`index` holds what the list and its filters need. `answers-N` holds what was shown and said of a block of questions,
`history-N` the records of one history, each once, and what every evidence text shows of them: evidence is always whole records
under the experiment's heading, so its text need not be stored beside them.
"""

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from eval.analysis.coverage import Judge, Judged
from eval.analysis.pipeline_story import PipelineStory
from eval.metrics import HEADLINE, explanation
from eval.metrics.normalise import normalise_answer, parse_answer
from eval.records import Finding
from eval.report.source import Source
from offline.canonical import encode
from offline.freeze import memories
from offline.graph import Edge
from offline.memory import Memory
from offline.records import Evidence, Question

# Questions an island; a block of 20 by 10 views and 3 readers is 600 answers.
BLOCK = 20


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One key of a chain, in the page a list. position: of its record; earlier: positions and values before the current one."""

    depth: int
    subject: str
    relation: str
    value: str
    position: int
    earlier: tuple[tuple[int, str], ...]


class Said(msgspec.Struct, frozen=True, array_like=True):
    """One answer, in the page a list. whole: the output normalised; parsed: the parsed output, None where that is the same."""

    output: str
    finish_reason: str
    cut: int
    error: str | None
    whole: str
    parsed: str | None


def pack(value: object) -> str:
    """Canonical JSON, raw deflate, base64: nothing in it can end the script element that holds it."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(encode(value)) + compressor.flush()).decode()


class Islands:
    """The islands of a report by name, and, counted on the way, what each packet's evidence holds."""

    def __init__(self, source: Source, findings: Sequence[Finding]) -> None:
        self._source = source
        self._findings: dict[str, list[Finding]] = {}
        for finding in findings:
            self._findings.setdefault(finding.question, []).append(finding)
        self.judged: list[Judged] = []
        self.packed: dict[str, str] = {}
        self._numbers = {history.id: number for number, history in enumerate(source.histories)}
        self._make()

    def _make(self) -> None:
        source = self._source
        settings, heading = source.scored.experiment.settings, source.scored.experiment.prompt.heading
        judge = Judge(source.extraction, source.golds)
        retrieved = self._retrieved()
        told: dict[str, object] = {}
        for memory, about in memories(source.histories, source.questions, source.extraction, settings, heading):
            self.judged += judge.judge(
                memory,
                (
                    (q, packets[q.id], source.evidence[packets[q.id].evidence])
                    for q in about
                    for packets in source.packets.values()
                ),
            )
            chains = {question.id: list(chain(memory, question)) for question in about}
            shown = self._shown(about)
            number = {digest: index for index, digest in enumerate(shown)}
            told |= {q.id: self._told(q, chains[q.id], number) for q in about}
            told_of = set().union(*(retrieved.get(question.id, ()) for question in about))
            steps = [step for walked in chains.values() for step in walked]
            self.packed[f"history-{self._numbers[memory.history.id]}"] = pack(_history(memory, steps, shown, told_of))
        in_order = [told[question.id] for question in source.questions]
        blocks = [in_order[start : start + BLOCK] for start in range(0, len(in_order), BLOCK)]
        self.packed |= {f"answers-{number}": pack(block) for number, block in enumerate(blocks)}
        self.packed["index"] = pack(self._index())

    def _shown(self, about: Sequence[Question]) -> dict[str, Evidence]:
        source = self._source
        digests = (packets[question.id].evidence for question in about for packets in source.packets.values())
        return {digest: source.evidence[digest] for digest in digests}

    def _retrieved(self) -> dict[str, set[int]]:
        """By question, the records that pipelines retrieved for it, or took candidates from."""
        found: dict[str, set[int]] = {}
        for (_, _, question), trace in self._source.traces.items():
            lists = [trace.candidates or (), *(hop.candidates or () for hop in trace.hops)]
            positions = {*trace.evidence, *(each.position for candidates in lists for each in candidates)}
            found.setdefault(question, set()).update(positions)
        return found

    def _index(self) -> dict[str, object]:
        source = self._source
        return {
            "views": source.views,
            "pipelines": source.scored.experiment.served,
            "readers": source.readers,
            "metrics": source.scored.metrics,
            "headline": HEADLINE,
            "reasons": {name: explanation(name) for name in source.scored.metrics},
            "relations": {relation.name: relation.words for relation in source.extraction.relations},
            "heading": source.scored.experiment.prompt.heading,
            "block": BLOCK,
            "histories": [[history.id, history.length] for history in source.histories],
            "questions": [
                [
                    q.id,
                    q.text,
                    q.hop_class,
                    q.hops,
                    self._numbers[q.history],
                    source.golds[q.id],
                    len(self._findings.get(q.id, ())),
                ]
                for q in source.questions
            ],
            # metric -> reader -> view -> a character a question: right, wrong, not asked
            "verdicts": {
                metric: [[self._verdicts(metric, reader, view) for view in source.views] for reader in source.readers]
                for metric in source.scored.metrics
            },
        }

    def _verdicts(self, metric: str, reader: str, view: str) -> str:
        scores = self._source.scored.scores.get((reader, view), {})
        found = (scores.get(question.id) for question in self._source.questions)
        return "".join("-" if score is None else str(int(score.metrics[metric])) for score in found)

    def _told(self, question: Question, walked: list[Step], number: Mapping[str, int]) -> dict[str, object]:
        source = self._source
        packets = [found[question.id] for found in source.packets.values()]
        pipelines = source.scored.experiment.served
        return {
            "golds": [normalise_answer(gold) for gold in source.golds[question.id]],
            "chain": walked,
            "packets": [[number[p.evidence], p.dropped, p.characters, p.fallback] for p in packets],
            **({"traces": [self._traces(reader, question.id) for reader in source.readers]} if pipelines else {}),
            "answers": [[self._answer(reader, view, question.id) for view in source.views] for reader in source.readers],
            "findings": [[f.screen, f.gold, f.detail] for f in self._findings.get(question.id, ())],
        }

    def _traces(self, reader: str, question: str) -> list[PipelineStory | None]:
        """How each pipeline went, None for those that the reader does not serve."""
        source = self._source
        return [source.traces.get((reader, name, question)) for name in source.scored.experiment.served]

    def _answer(self, reader: str, view: str, question: str) -> Said | None:
        score = self._source.scored.scores.get((reader, view), {}).get(question)
        if score is None:
            return None
        text = score.prediction
        whole, parsed = normalise_answer(text), normalise_answer(parse_answer(text))
        error = self._source.errors.get((reader, view, question))
        return Said(text, score.finish_reason, score.cut, error, whole, None if parsed == whole else parsed)


def chain(memory: Memory, question: Question) -> Iterator[Step]:
    """The keys that cmc walks, breadth-first."""
    depth = dict.fromkeys(memory.graph.subjects.anchors(question.text), 0)
    for key in memory.closure(question.text):
        edge = memory.graph.current[key]
        depth.setdefault(edge.target, depth[edge.subject] + 1)
        earlier = tuple((e.position, e.value) for e in memory.stated[key] if e.target != edge.target)
        yield Step(depth[edge.subject], edge.surface, edge.relation, edge.value, edge.position, earlier)


def _history(memory: Memory, steps: Iterable[Step], shown: Mapping[str, Evidence], told: set[int]) -> dict[str, object]:
    """Records as [position, line, status], those alone that some evidence, chain or trace (`told`) has.

    Evidence is in runs of their numbers.
    """
    needed = told | {position for evidence in shown.values() for position in evidence.positions}
    needed |= {position for step in steps for position in (step.position, *(earlier for earlier, _ in step.earlier))}
    status = statuses(memory)
    positions = [statement.position for statement in memory.history.statements if statement.position in needed]
    number = {position: index for index, position in enumerate(positions)}
    return {
        "records": [[position, memory.line(position), status.get(position, False)] for position in positions],
        "evidence": [_runs([number[position] for position in evidence.positions]) for evidence in shown.values()],
    }


def statuses(memory: Memory) -> dict[int, int | None]:
    """By record that states a fact: None if each value in it is current, else the record that replaced one of them.

    What counts is the value: a record whose value was replaced and later stated again is current.
    """
    found: dict[int, int | None] = {}
    for edges in memory.stated.values():
        current = edges[-1]
        for at, edge in enumerate(edges):
            if edge.target == current.target:
                found.setdefault(edge.position, None)
            else:
                found[edge.position] = _replaced(edges[at:])
    return found


def _replaced(edges: Sequence[Edge]) -> int:
    """The first of these assertions of one key that states another value than the first one."""
    return next(edge.position for edge in edges if edge.target != edges[0].target)


def _runs(numbers: Sequence[int]) -> list[int]:
    """Ascending numbers as [start, length, gap, length, gap, length...]; a start is a gap from 0."""
    runs: list[int] = []
    end = 0
    for number in numbers:
        if runs and number == end:
            runs[-1] += 1
        else:
            runs += [number - end, 1]
        end = number + 1
    return runs
