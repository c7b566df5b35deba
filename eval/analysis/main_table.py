"""The main table of a scored run: accuracy by view, reader and hop class, what it cost, and what others published beside it.

Everything comes from stored scores and sealed files, all verified; no label is opened and nothing is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from eval.analysis.accuracy import accuracy
from eval.analysis.exchanges import Exchange, read_exchanges
from eval.analysis.provenance import extracted_by
from eval.analysis.published import Published, published
from eval.analysis.scored import ScoredRun
from eval.score import sealed_blind
from offline.canonical import read_record
from offline.config.experiment import ReaderPlan
from offline.config.models import pin_text
from offline.errors import CommandError, ConfigurationError
from offline.loaders import kind_of
from offline.records import HopClass, Packet
from offline.run.opened import OpenRun
from readers.records import Seal, Timings
from readers.requests import SETTINGS, read_settings
from readers.seal import TIMINGS, reads_folder

PUBLISHED_METRIC = "subem"


def main_table(scored: ScoredRun, metric: str, by_length: bool, with_published: bool) -> dict[str, Any]:
    """The table as `coldread table --format json` prints it; CommandError unless the run is scored by this metric."""
    if with_published and metric != PUBLISHED_METRIC:
        raise ConfigurationError(f"published figures are of {PUBLISHED_METRIC}; leave out --metric {metric}, or --published")
    run, experiment = scored.run, scored.experiment
    if metric not in scored.metrics:
        raise CommandError(f"--metric {metric}: not stored in {run.path}; there are {', '.join(scored.metrics)}")
    given = published(kind_of(experiment.data)) if with_published else Published("", {}, ())
    packets = {view: {p.question: p for p in found} for view, found in run.packets(experiment.views).items()}
    readers = {plan.reader.name: _reader(run, plan, scored.seals[plan.reader.name]) for plan in experiment.readers}
    asked = {plan.reader.name: read_exchanges(run, plan) for plan in experiment.readers}
    rows = [
        {
            "view": view,
            "reader": name,
            "length": length,
            "sealed_blind": facts["sealed_blind"],
            **({"pipeline": True, "sampled": view in facts["sampled"]} if view in experiment.served else {}),
            **summarise(group, packets.get(view, {}), metric, facts["unit"]),
        }
        for view in experiment.answered
        for name, facts in readers.items()
        for length, group in _groups([item for item in asked[name] if item.score.view == view], by_length)
    ]
    classes = {name for row in rows for name in row["accuracy"]} | {name for row in given.rows for name in row.percent}
    return {
        "run": str(run.path),
        "experiment": experiment.name,
        "metric": metric,
        "hop_classes": [name for name in get_args(HopClass) if name in classes],
        "rows": rows,
        "readers": readers,
        "extraction": msgspec.to_builtins(extracted_by(run)),
        "published": msgspec.to_builtins(given) if given.rows else None,
    }


def _reader(run: OpenRun, plan: ReaderPlan, seal: Seal) -> dict[str, Any]:
    """A reader as a whole. `seconds` are those of all its views together: requests of several views share batches."""
    folder = reads_folder(run, plan.reader.name)
    settings = read_settings(folder / "requests" / SETTINGS)
    return {
        "model": pin_text(plan.reader.model),
        "sealed_blind": sealed_blind(seal),
        "root": seal.root,
        "unit": settings.unit,
        "requests": seal.counts.generated,
        "calls": seal.counts.pipelines.calls if seal.counts.pipelines else 0,
        "sampled": list(seal.sampled or ()),
        "seconds": read_record(folder / TIMINGS, Timings).seconds,
    }


def _groups(asked: Sequence[Exchange], by_length: bool) -> Iterator[tuple[str | None, list[Exchange]]]:
    """All of them (length None), then those of each history length in order of first appearance."""
    if asked:
        yield None, list(asked)
    lengths: dict[str, list[Exchange]] = {}
    for item in asked if by_length else ():
        lengths.setdefault(item.score.length, []).append(item)
    yield from lengths.items()


def summarise(asked: Sequence[Exchange], packets: Mapping[str, Packet], metric: str, unit: str) -> dict[str, Any]:
    """Accuracy by hop class and costs. requests: distinct ones given to the model; failed: questions that a fault left
    without an answer; capped: those whose answer the output cap ended.

    packets: by question; a pipeline has none.
    """
    classes: dict[str, list[bool]] = {}
    for item in asked:
        classes.setdefault(item.score.hop_class, []).append(item.score.metrics[metric])
    return {
        "accuracy": {name: msgspec.to_builtins(accuracy(sum(right), len(right))) for name, right in classes.items()},
        "unit": unit,
        "input_mean": round(sum(item.input_size for item in asked) / len(asked), 1),
        "output_mean": round(sum(item.output_size for item in asked) / len(asked), 1),
        "requests": len({name for item in asked for name in item.requests}),
        "truncated": sum(packets[item.score.question].truncated for item in asked if packets),
        "fallbacks": sum(packets[item.score.question].fallback is not None for item in asked if packets),
        "cut": sum(item.score.cut > 0 for item in asked),
        "failed": sum(item.score.finish_reason == "error" for item in asked),
        "capped": sum(item.score.finish_reason == "length" for item in asked),
    }
