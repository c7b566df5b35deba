"""Pipeline diagnostics: label-free counts and, on a scored run, the contribution of each part."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from eval.analysis.accuracy import Accuracy, accuracy
from eval.analysis.populations import LENGTH
from eval.analysis.scored import ScoredRun, Scores, by_hops, open_scored
from eval.metrics import HEADLINE
from eval.results import Result
from eval.score import sealed_blind
from eval.statistics import count_pairs
from eval.verify import verify_run
from extract.pipelines.candidates import usable_positions
from extract.pipelines.compose import Direct, Structured, parse
from extract.pipelines.diagnostics import agreement, by_pipeline, diagnose
from extract.pipelines.records import Diagnosis, Trace
from extract.pipelines.results import Stored, read_stored
from extract.pipelines.sh_conflict import LLM
from extract.pipelines.step import read_spent
from offline.config.calls import PipelineNumbers, PipelineSettings
from offline.config.experiment import ReaderPlan
from offline.errors import CommandError, StateError
from offline.records import HopClass
from offline.run.opened import OpenRun
from readers.records import Seal, StageCounts

Traces = dict[str, dict[str, Trace]]  # by pipeline, then question


class StageCosts(StageCounts, frozen=True):
    """The costs of one stage."""

    seconds: str | None  # of generation, decimal; None if the run does not record it


class ListAgreement(Result, frozen=True):
    """How often a candidate list that was requested again matched that of the pipeline `against`, candidate by candidate."""

    pipeline: str
    against: str
    lists: int
    same: int


class Isolation(Result, frozen=True):
    """Code against the model as executor of one policy over identical candidate lists.

    Pipelines with a direct fallback are excluded: where the model fails to choose, its direct answer would count as a choice.
    """

    code: str
    model: str
    population: str
    hop_class: HopClass
    questions: int
    right_code: Accuracy
    right_model: Accuracy
    listed: int  # questions with a candidate to choose
    positions: int  # of their candidates, in all
    same_position: int
    took_none: int  # of `listed`, where the model chose none: truncated, refused, malformed or unknown position


class Complementarity(Result, frozen=True):
    """A structured pipeline against the direct answer from the same kind of records."""

    pipeline: str
    direct: str
    hop_class: HopClass
    questions: int
    both: int
    only_pipeline: int
    only_direct: int
    neither: int
    same_evidence: int  # both were shown the same records; hops and longer prompts can differ
    direct_where_right: Accuracy
    direct_where_wrong: Accuracy


class ServedReader(Result, frozen=True):
    """The pipelines of one reader."""

    root: str
    sealed_blind: bool
    sampled: tuple[str, ...]
    unit: Literal["tokens", "bytes"]
    pipelines: dict[str, Diagnosis]
    seconds_sealed: Literal[False]  # seconds are outside the seal, so they can be edited
    stages: dict[str, StageCosts]  # each distinct call once, in `unit`
    agreement: tuple[ListAgreement, ...]
    isolation: tuple[Isolation, ...] | UnsetType = UNSET  # this and complementarity: unset without stored scores
    complementarity: tuple[Complementarity, ...] | UnsetType = UNSET


class PipelineReport(Result, frozen=True):
    """The pipelines of a run."""

    run: str
    settings: PipelineNumbers
    metric: str | None  # None without stored scores
    readers: dict[str, ServedReader]


def pipelines(run: OpenRun, reader: str | None) -> PipelineReport:
    """Diagnose a run's pipelines without opening labels; with stored scores, also compare them.

    StateError unless the run is sealed and a reader of it serves pipelines; CommandError if the named reader serves none.
    """
    experiment = run.experiment
    plans = [plan for plan in experiment.readers if plan.pipelines and reader in (None, plan.reader.name)]
    if not plans:
        able = ", ".join(plan.reader.name for plan in experiment.readers if plan.pipelines)
        if not able:
            raise StateError(
                f"{run.path} has no reader that serves pipelines; name some under a reader's `pipelines` and start another run"
            )
        raise CommandError(f"{run.path} has no reader {reader!r} that serves pipelines; those that do: {able}")
    scored = open_scored(run) if run.has("scores") else None
    seals = verify_run(run) if scored is None else scored.seals
    assert experiment.pipelines  # resolved wherever a reader serves any
    return PipelineReport(
        run=str(run.path),
        settings=msgspec.convert(experiment.pipelines, PipelineNumbers, from_attributes=True),
        metric=None if scored is None else HEADLINE,
        readers={plan.reader.name: _reader(run, plan, experiment.pipelines, seals[plan.reader.name], scored) for plan in plans},
    )


def _reader(run: OpenRun, plan: ReaderPlan, settings: PipelineSettings, seal: Seal, scored: ScoredRun | None) -> ServedReader:
    stored = read_stored(run, plan.reader.name)
    traces = {name: {trace.question: trace for trace in own} for name, own in by_pipeline(stored.traces).items()}
    diagnosed = diagnose(stored.traces, stored.candidates, stored.transcript, settings)
    found = ServedReader(
        root=seal.root,
        sealed_blind=sealed_blind(seal),
        sampled=seal.sampled or (),
        unit=stored.transcript.settings.unit,
        pipelines={found.pipeline: found for found in diagnosed},
        seconds_sealed=False,
        stages=_stages(run, plan.reader.name, stored),
        agreement=tuple(_agreement(stored, traces)),
    )
    if scored is None:
        return found
    scores = {name: scored.scores[plan.reader.name, name] for name in traces}
    return msgspec.structs.replace(
        found,
        isolation=tuple(_isolation(stored, settings, traces, scores)),
        complementarity=tuple(_complementarity(traces, scores)),
    )


def _stages(run: OpenRun, reader: str, stored: Stored) -> dict[str, StageCosts]:
    """Distinct calls of each stage, their costs, and seconds of generation if recorded."""
    spent = read_spent(run, reader)
    return {
        stage: StageCosts(**msgspec.structs.asdict(counts), seconds=spent.seconds.get(stage) if spent else None)
        for stage, counts in stored.transcript.counts().items()
    }


def _structured(names: Iterable[str]) -> Iterator[tuple[str, Structured]]:
    """The built-in pipelines that choose among candidates."""
    for name in names:
        arm = parse(name)
        if isinstance(arm, Structured):
            yield name, arm


def _agreement(stored: Stored, traces: Traces) -> Iterator[ListAgreement]:
    single = [(name, arm.method) for name, arm in _structured(traces) if not arm.chain]
    first = {method.unit: name for name, method in reversed(single) if not method.again}
    for name, method in single:
        if method.again and method.unit in first:
            same, lists = agreement(stored.traces, stored.candidates, stored.transcript, first[method.unit], name)
            yield ListAgreement(name, first[method.unit], lists, same)


def _isolation(stored: Stored, settings: PipelineSettings, of: Traces, scores: dict[str, Scores]) -> Iterator[Isolation]:
    arms = dict(_structured(of))
    by_model = [name for name, arm in arms.items() if arm.method.policy == LLM and not (arm.chain or arm.fallback)]
    for name, code in ((name, code) for name in by_model for code in arms if _executes(arms[code], arms[name])):
        traces, others = of[name], of[code]
        shared = frozenset(q for q, trace in traces.items() if trace.candidates == others[q].candidates)
        given = {q: usable_positions(stored.candidates[traces[q].candidates or ""], settings) for q in shared}
        contested = frozenset(q for q in shared if len(given[q]) > 1)
        lengths = (*_by_length(scores[name], shared, LENGTH), *_by_length(scores[name], contested, "contested:"))
        for population, members in (("all", shared), ("contested", contested), *lengths):
            for hop_class, questions in by_hops(scores[name], members, population) if members else ():
                right = [(scores[code][q].metrics[HEADLINE], scores[name][q].metrics[HEADLINE]) for q in questions]
                chosen = [(others[q].chosen, traces[q].chosen) for q in questions]
                listed = [q for q in questions if given[q]]
                yield Isolation(
                    code=code,
                    model=name,
                    population=population,
                    hop_class=hop_class,
                    questions=len(questions),
                    right_code=accuracy(sum(one for one, _ in right), len(right)),
                    right_model=accuracy(sum(other for _, other in right), len(right)),
                    listed=len(listed),
                    positions=sum(len(given[q]) for q in questions),
                    same_position=sum(one is not None and one == other for one, other in chosen),
                    took_none=sum(traces[q].chosen is None for q in listed),
                )


def _by_length(scores: Scores, questions: frozenset[str], prefix: str) -> list[tuple[str, frozenset[str]]]:
    """Questions by history length, if there are several: the length of a stream of versions is their number."""
    lengths = dict.fromkeys(scores[question].length for question in scores)
    found = [(f"{prefix}{length}", frozenset(q for q in questions if scores[q].length == length)) for length in lengths]
    return found if len(found) > 1 else []


def _executes(code: Structured, model: Structured) -> bool:
    """Whether code executes the same policy as the model, all else equal."""
    return code == replace(model, method=replace(model.method, policy="newest"))


def _complementarity(of: Traces, scores: dict[str, Scores]) -> Iterator[Complementarity]:
    directs = {arm.unit: name for name in scores if isinstance(arm := parse(name), Direct) and not arm.sampled}
    for name, arm in _structured(scores):
        direct, ours = directs.get(arm.method.unit), scores[name]
        if direct is None:
            continue
        for hop_class, questions in by_hops(ours, frozenset(ours), "all"):
            pairs = count_pairs((ours[q].metrics[HEADLINE], scores[direct][q].metrics[HEADLINE]) for q in questions)
            yield Complementarity(
                pipeline=name,
                direct=direct,
                hop_class=hop_class,
                questions=pairs.questions,
                both=pairs.both,
                only_pipeline=pairs.only_a,
                only_direct=pairs.only_b,
                neither=pairs.neither,
                same_evidence=sum(of[name][q].evidence == of[direct][q].evidence for q in questions),
                direct_where_right=accuracy(pairs.both, pairs.correct_a),
                direct_where_wrong=accuracy(pairs.only_b, pairs.questions - pairs.correct_a),
            )
