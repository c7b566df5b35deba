"""Comparison of two sealed and scored readers that were given the same messages. Writes nothing; the labels stay closed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from eval.analysis.exchanges import Exchange, read_exchanges
from eval.analysis.templates import templates
from eval.score import sealed_blind, stored_metrics
from eval.statistics import Pairs, count_pairs, wilson
from eval.verify import verify_run
from offline.config.experiment import ReaderPlan
from offline.config.models import pin_text
from offline.errors import CommandError, StateError
from offline.run.opened import OpenRun
from readers.engines import asks_server
from readers.records import Seal, Settings
from readers.requests import SETTINGS, read_settings
from readers.seal import read_seal, reads_folder


@dataclass(frozen=True)
class Side:
    """One of the two readers; `items` by view and question."""

    run: OpenRun
    plan: ReaderPlan
    settings: Settings
    seal: Seal
    metrics: tuple[str, ...]
    items: Mapping[str, Mapping[str, Exchange]]


def sealed_plan(run: OpenRun, reader: str) -> ReaderPlan:
    """The plan of a sealed reader; CommandError if the run has none of that name, StateError if it is not sealed."""
    plans = {plan.reader.name: plan for plan in run.experiment.readers}
    if reader not in plans:
        raise CommandError(f"{run.path} has no reader {reader!r}; it has {', '.join(plans) or 'none'}")
    read_seal(run, reader)
    return plans[reader]


def read_side(run: OpenRun, plan: ReaderPlan, seal: Seal) -> Side:
    """A reader of a verified run; StateError unless its stored scores were made from the seals and labels that are there."""
    metrics = stored_metrics(run)
    name = plan.reader.name
    folder = reads_folder(run, name)
    items: dict[str, dict[str, Exchange]] = {view: {} for view in plan.answered}
    for asked in read_exchanges(run, plan):
        items[asked.score.view][asked.score.question] = asked
    return Side(run, plan, read_settings(folder / "requests" / SETTINGS), seal, metrics, items)


def _shared_views(a: Side, b: Side) -> list[str]:
    """The views and pipelines that both answered through, in A's order; StateError if there is none."""
    views = [view for view in a.plan.answered if view in b.plan.answered]
    if not views:
        raise StateError(
            f"{_name(a)} reads {', '.join(a.plan.answered)} and {_name(b)} reads {', '.join(b.plan.answered)}: no view is "
            "read by both; compare readers of the same views"
        )
    return views


def _check_prompts(a: OpenRun, b: OpenRun) -> None:
    one, two = a.experiment.prompt, b.experiment.prompt
    if differing := _differing(one, two):
        raise StateError(
            f"the prompts of {a.path} and {b.path} differ in {differing}, so their readers were told different things; "
            "start a run with the prompt of the other and read again"
        )


def _differing(one: msgspec.Struct, two: msgspec.Struct) -> str:
    """Names of the fields in which two records differ."""
    return ", ".join(name for name in one.__struct_fields__ if getattr(one, name) != getattr(two, name))


def check_same_messages(a: Side, b: Side, view: str) -> None:
    """StateError unless both readers were given the same messages, and are held to the same golds, on every question of a view.

    Equal packets, equal cuts and both or neither given at all suffice. System and user message are `messages` of prompt,
    evidence text and question text, and of nothing else. A packet is its canonical line, which holds the digests of all
    three (the question's whole record), so equal packet digests mean equal arguments. `_fit` alters one of them alone: the
    evidence loses its `cut` oldest lines, which text and count determine. That the digests are those of the stored texts
    is what freezing makes them and `replay` proves again.

    What a pipeline asks depends on what its reader answers; the same must be its settings, prompts, history and question, and
    what its first call left out or whether it was refused, which no answer decides.
    """
    ours, theirs = a.items[view], b.items[view]
    where = f"view {view!r} of {_name(a)} and {_name(b)}"
    if lone := sorted(ours.keys() ^ theirs.keys()):
        raise StateError(
            f"{where}: {len(lone)} questions are read by one alone, for example {lone[0]!r}; "
            "compare runs of the same data and --limit"
        )
    for question, item in ours.items():
        other = theirs[question]
        if item.given != other.given:
            raise StateError(f"{where}, question {question!r}: {_why(a, b, view, question)}")
        if item.score.golds != other.score.golds:
            raise StateError(
                f"{where}, question {question!r}: the gold answers differ, {list(item.score.golds)} and "
                f"{list(other.score.golds)}; load and score both runs with the same labels"
            )


def _why(a: Side, b: Side, view: str, question: str) -> str:
    """What makes the messages of one question differ, and what to do."""
    (packet, cut, nothing), (other_packet, other_cut, _) = (s.items[view][question].given for s in (a, b))
    short = a if nothing else b
    if view in (a.plan.pipelines or ()):
        if packet != other_packet:
            return "settings, prompts, histories or questions of the pipeline differ; start both runs from the same ones"
        if cut != other_cut:
            return (
                f"the first calls left out {cut} and {other_cut} of the records retrieved, for lack of room, so they differ; "
                "start a run with a lower k or budget, or with one reader that leaves this pipeline out, and read again"
            )
        return (
            f"the first call to {_name(short)} could not be made, as `coldread show` says why, so only the other was asked; "
            "start a run in which that reader has a higher input_cap or leaves this pipeline out"
        )
    if packet != other_packet:
        one, two = (next(p for p in s.run.packets([view])[view] if p.question == question) for s in (a, b))
        return f"the packets differ in {_differing(one, two)}; freeze both runs from the same data, settings and prompt"
    if cut != other_cut:
        return (
            f"the input caps cut {cut} and {other_cut} evidence records, so the messages differ; "
            "start a run with a lower budget, or with one reader that leaves this view out, and read again"
        )
    return (
        f"too long for {_name(short)} even without evidence, so only the other was given it; "
        "start a run in which that reader has a higher input_cap or leaves this view out"
    )


def _name(side: Side) -> str:
    return f"{side.plan.reader.name!r} in {side.run.path}"


def compare(run: OpenRun, a: str, other: OpenRun, b: str, metric: str) -> dict[str, Any]:
    """The comparison of reader `a` of `run` with reader `b` of `other`, as `coldread compare --json` prints it.

    CommandError for a reader or a metric that there is not, StateError unless both are sealed, scored and were given the same
    in every view and pipeline that both answered through. All files are verified before one is used; scores are stored ones.
    """
    plans = sealed_plan(run, a), sealed_plan(other, b)
    if read_seal(run, a).root == read_seal(other, b).root:
        raise CommandError(f"{run.path}: {a!r} and {b!r} are the same sealed reader; name two")
    seals = verify_run(run)
    other_seals = seals if other is run else verify_run(other)
    one, two = read_side(run, plans[0], seals[a]), read_side(other, plans[1], other_seals[b])
    common = [name for name in one.metrics if name in two.metrics]
    if metric not in common:
        raise CommandError(f"--metric {metric}: not stored for both readers; there are {', '.join(common) or 'none'}")
    views = _shared_views(one, two)
    _check_prompts(run, other)
    for view in views:
        check_same_messages(one, two, view)
    return {
        "metric": metric,
        "a": _facts(one, views),
        "b": _facts(two, views),
        "views": {view: paired_cells(one.items[view], two.items[view], metric) for view in views},
        "only_a_reads": [view for view in one.plan.answered if view not in views],
        "only_b_reads": [view for view in two.plan.answered if view not in views],
        "templates": templates((run, plans[0]), (other, plans[1])),
    }


def paired_cells(ours: Mapping[str, Exchange], theirs: Mapping[str, Exchange], metric: str) -> dict[str, Any]:
    """Cells by hop class, in order of first appearance, and pooled under `all`."""
    groups: dict[str, list[tuple[bool, bool]]] = {}
    pooled = []
    for question, item in ours.items():
        outcome = (item.score.metrics[metric], theirs[question].score.metrics[metric])
        pooled.append(outcome)
        groups.setdefault(item.score.hop_class, []).append(outcome)
    # Questions without a class of their own stand under `all` already.
    return {hop_class: _cell(count_pairs(found)) for hop_class, found in {**groups, "all": pooled}.items()}


def _lost(items: Iterable[Exchange]) -> dict[str, int]:
    """Questions of one view or pipeline with a `cut` above 0, and those that failed."""
    scores = [item.score for item in items]
    return {
        "cut": sum(score.cut > 0 for score in scores),
        "failed": sum(score.finish_reason == "error" for score in scores),
    }


def _cell(pairs: Pairs) -> dict[str, Any]:
    return {
        "questions": pairs.questions,
        "a": _accuracy(pairs.correct_a, pairs.questions),
        "b": _accuracy(pairs.correct_b, pairs.questions),
        "both": pairs.both,
        "only_a": pairs.only_a,
        "only_b": pairs.only_b,
        "neither": pairs.neither,
        "win_tie_loss": [pairs.only_a, pairs.ties, pairs.only_b],
        "points": round(pairs.points, 2),
        "mcnemar_p": pairs.p,
    }


def _accuracy(correct: int, questions: int) -> dict[str, Any]:
    low, high = wilson(correct, questions)
    return {"correct": correct, "low": round(100 * low, 2), "high": round(100 * high, 2)}


def _facts(side: Side, views: Sequence[str]) -> dict[str, Any]:
    """What a reader is and what it cost, over the scheduled questions of the views that both read.

    A served model's sizes are `input_bytes` and `output_bytes`, any other's `input_tokens` and `output_tokens`. `output_cap`
    counts tokens either way.
    """
    reader = side.plan.reader
    unit = side.settings.unit
    items = [item for view in views for item in side.items[view].values()]
    return {
        "run": str(side.run.path),
        "reader": reader.name,
        "sealed_blind": sealed_blind(side.seal),
        "root": side.seal.root,
        "model": pin_text(reader.model),
        "fingerprint": side.settings.model.fingerprint,
        "engine": reader.engine,
        "dtype": stated(side.seal, side.settings, "dtype"),
        "device": stated(side.seal, side.settings, "device"),
        "thinking": side.settings.thinking,
        f"input_{unit}": _spread(item.input_size for item in items),
        f"output_{unit}": _spread(item.output_size for item in items),
        "output_cap": reader.output_cap,
        "views": {view: _lost(side.items[view].values()) for view in views},
    }


def stated(seal: Seal, settings: Settings, name: Literal["dtype", "device"]) -> str:
    """What the seal saw, else what the reader asked for, else "not known": of a server, a reader asks for neither."""
    seen = sorted({environment[name] for environment in seal.environments if name in environment})
    asked: str = getattr(settings.reader, name)
    return ", ".join(seen) or ("not known" if asks_server(settings.reader) else asked)


def _spread(counts: Iterable[int]) -> dict[str, Any]:
    values = list(counts)
    return {"mean": round(sum(values) / len(values), 1) if values else 0.0, "max": max(values, default=0)}
