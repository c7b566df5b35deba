"""Output of `coldread pipelines`, within 100 columns."""

from collections.abc import Collection, Iterable
from itertools import groupby

from rich.console import Console
from rich.markup import escape

from eval.analysis.accuracy import Accuracy
from eval.analysis.pipelines import Complementarity, Isolation, PipelineReport, ServedReader
from eval.console.layout import new_table
from eval.wording import blind_text, percent
from readers.records import StageCounts

_ANSWERS = ("\nasked", "\nfaults", "\nnotes", "ab-\nstained", "fall-\nbacks")
_LISTS = ("\nlists", "\nempty", "mean of\na list", "for-\neign", "con-\ntested")
_COSTS = ("calls", "failed", "input", "output")


def pipelines(console: Console, result: PipelineReport) -> None:
    """Print what each reader's pipelines did and cost and, on a scored run, the contribution of each part."""
    for name, found in result.readers.items():
        sampled = f"; sampled: {', '.join(found.sampled)}" if found.sampled else ""
        _line(console, f"{name}: {blind_text(found.sealed_blind)}{sampled}")
        _did(console, found)
        _cost(console, found)
        for row in found.agreement:
            same = f"{row.same} of {row.lists} ({percent(row.same, row.lists)} %)"
            _line(console, f"{row.pipeline}: {same} of the lists that it asked for again are as in {row.against}")
        if result.metric is not None:
            _isolation(console, found.isolation or (), result.metric)
            _complementarity(console, found.complementarity or (), result.metric)


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _did(console: Console, found: ServedReader) -> None:
    table = new_table("what they found", ("\npipeline",), (*_ANSWERS, *_LISTS))
    hops = new_table("hops", ("pipeline",), ("planned", "without a plan", "executed", "first without an answer"))
    for name, row in found.pipelines.items():
        mean = f"{row.candidates / row.lists:.2f}" if row.lists else "-"
        counts = (row.questions, row.faults, row.noted, row.abstained, row.fallbacks, row.lists, row.empty)
        table.add_row(name, *map(str, counts), mean, str(row.foreign), str(row.contested))
        if row.planned or row.unplanned:
            first = ", ".join(f"hop {number}: {count}" for number, count in row.first_failed.items())
            hops.add_row(name, str(row.planned), str(row.unplanned), str(row.executed), first or "-")
    console.print(table)
    if hops.rows:
        console.print(hops)


def _cost(console: Console, found: ServedReader) -> None:
    title = f"distinct calls that answers rest on, and {found.unit}; shared ones count for each"
    table = new_table(title, ("pipeline",), _COSTS)
    for name, row in found.pipelines.items():
        table.add_row(name, *_counts(row.costs.values()))
    console.print(table)
    title = f"calls and {found.unit} by stage, each once; the seconds are not covered by the seal"
    stages = new_table(title, ("stage",), (*_COSTS, "seconds"))
    for stage, costs in found.stages.items():
        stages.add_row(stage, *_counts([costs]), costs.seconds or "-")
    console.print(stages)


def _counts(costs: Collection[StageCounts]) -> Iterable[str]:
    """The sums, in the order of `_COSTS`."""
    calls, failed = sum(cost.calls for cost in costs), sum(cost.failed for cost in costs)
    sizes = sum(cost.input_tokens for cost in costs), sum(cost.output_tokens for cost in costs)
    return map(str, (calls, failed, *sizes))


def _right(found: Accuracy) -> str:
    """Counts, percentage and interval; empty without questions."""
    return f"{found.correct} ({found.percent} %, {found.interval})" if found.questions else "-"


def _isolation(console: Console, found: Iterable[Isolation], metric: str) -> None:
    headings = ("\nasked", "\ncode", "\nmodel", "same\nposition")
    for (code, model), rows in groupby(found, lambda row: (row.code, row.model)):
        title = f"the same candidates, chosen by code ({code}) and by the model ({model}): {metric}, Wilson 95 %"
        table = new_table(title, ("\nquestions", "\nhops"), headings)
        none = listed = 0
        for row in rows:
            if row.population == "all":
                none, listed = row.took_none, row.listed
            right = (_right(row.right_code), _right(row.right_model))
            table.add_row(escape(row.population), row.hop_class, str(row.questions), *right, str(row.same_position))
        console.print(table)
        if none:
            _line(console, f"{model}: on {none} of {listed} questions with candidates it chose none of them")


def _complementarity(console: Console, found: Iterable[Complementarity], metric: str) -> None:
    headings = ("\nboth", "it\nalone", "direct\nalone", "\nneither", "direct where\nit is right")
    table = new_table(f"against the direct answer: {metric}, Wilson 95 %", ("\npipeline", "\nhops"), headings)
    for row in found:
        counts = map(str, (row.both, row.only_pipeline, row.only_direct, row.neither))
        table.add_row(row.pipeline, row.hop_class, *counts, _right(row.direct_where_right))
    if table.rows:
        console.print(table)
