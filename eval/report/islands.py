"""Data of the report's question browser, as compressed islands of the page, each decoded on demand.

`index` holds the list and its filters. `answers-N` holds evidence and answers of a block of questions. `history-N` holds each
record of one history once, and the record numbers of every evidence text: evidence consists of whole records under the
experiment's heading, so its text is not stored again.
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

BLOCK = 20  # questions per island; with 10 views and 3 readers, 600 answers


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One key of a chain; a list in the page."""

    depth: int
    subject: str
    relation: str
    value: str
    position: int  # of its record
    earlier: tuple[tuple[int, str], ...]  # (position, value) before the current one


class Said(msgspec.Struct, frozen=True, array_like=True):
    """One answer; a list in the page."""

    output: str
    finish_reason: str
    cut: int
    error: str | None
    whole: str  # normalised output
    parsed: str | None  # normalised parsed output; None if the same


def pack(value: object) -> str:
    """Canonical JSON, raw deflate, base64; cannot contain the end of a script element."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(encode(value)) + compressor.flush()).decode()


class Islands:
    """The islands of a report by name, and the counts of what each packet's evidence contains."""

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
        """By question, the records that pipelines retrieved or took candidates from."""
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
            # metric -> reader -> view -> one character per question: right, wrong, not asked
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
        """Each pipeline's story; None for those that the reader does not serve."""
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
    """The keys that cmc traverses, breadth-first."""
    depth = dict.fromkeys(memory.graph.subjects.anchors(question.text), 0)
    for key in memory.closure(question.text):
        edge = memory.graph.current[key]
        depth.setdefault(edge.target, depth[edge.subject] + 1)
        earlier = tuple((e.position, e.value) for e in memory.stated[key] if e.target != edge.target)
        yield Step(depth[edge.subject], edge.surface, edge.relation, edge.value, edge.position, earlier)


def _history(memory: Memory, steps: Iterable[Step], shown: Mapping[str, Evidence], told: set[int]) -> dict[str, object]:
    """Records as [position, line, status], limited to those in evidence, chains or traces (`told`); evidence as runs."""
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
    """By record with facts: None if all its values are current, else the record that replaced one of them.

    Values count: a record whose value was replaced and later stated again is current.
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
    """The first assertion of a key whose value differs from the first one's."""
    return next(edge.position for edge in edges if edge.target != edges[0].target)


def _runs(numbers: Sequence[int]) -> list[int]:
    """Ascending numbers as [start, length, gap, length, gap, length...]; the start is a gap from 0."""
    runs: list[int] = []
    end = 0
    for number in numbers:
        if runs and number == end:
            runs[-1] += 1
        else:
            runs += [number - end, 1]
        end = number + 1
    return runs
