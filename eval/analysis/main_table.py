"""The main table of a scored run: accuracy by view, reader and hop class, costs, and published results for comparison.

Everything comes from verified files and stored scores; no label is opened and nothing is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from eval.analysis.accuracy import Accuracy, accuracy
from eval.analysis.exchanges import Exchange, read_exchanges
from eval.analysis.provenance import extracted_by
from eval.analysis.scored import ScoredRun
from eval.metrics import HEADLINE
from eval.records import ExtractedBy
from eval.results import Result
from eval.score import sealed_blind
from offline.canonical import read_record
from offline.config.experiment import ReaderPlan
from offline.config.models import pin_text
from offline.config.yaml import configs_folder, load_yaml
from offline.errors import CommandError, ConfigurationError
from offline.loaders import kind_of
from offline.records import HopClass, Packet
from offline.run.opened import OpenRun
from readers.records import Seal, Timings
from readers.requests import SETTINGS, read_settings
from readers.seal import TIMINGS, reads_folder

Percent = Annotated[str, msgspec.Meta(pattern=r"^\d{1,3}\.\d\d$")]


class PublishedRow(Result, frozen=True, forbid_unknown_fields=True):
    """One published result."""

    view: str
    reader: str
    extraction: str
    percent: dict[HopClass, Percent]  # only the hop classes that the source gives
    where: str  # place in the source


class Published(Result, frozen=True, forbid_unknown_fields=True):
    """The published results of one source on a benchmark."""

    source: str
    questions: dict[HopClass, int]  # of each row, by hop class
    rows: tuple[PublishedRow, ...]


class TableRow(Result, frozen=True, kw_only=True):
    """A view or pipeline of a reader."""

    view: str
    reader: str
    length: str | None  # history length; None: all
    sealed_blind: bool
    pipeline: Literal[True] | UnsetType = UNSET
    sampled: bool | UnsetType = UNSET  # set for a pipeline
    accuracy: dict[HopClass, Accuracy]
    unit: Literal["tokens", "bytes"]
    input_mean: float  # per question, in `unit`
    output_mean: float
    requests: int  # distinct model inputs
    truncated: int  # packets
    fallbacks: int  # packets
    cut: int  # questions with evidence cut to the input cap
    failed: int  # questions without an answer because of a fault
    capped: int  # answers ended by the output cap


class TableReader(Result, frozen=True):
    """A reader as a whole."""

    model: str
    engine: str
    sealed_blind: bool
    root: str
    unit: Literal["tokens", "bytes"]
    requests: int
    calls: int  # of its pipelines
    sampled: tuple[str, ...]  # pipelines that did not decode greedily
    seconds: str  # of all views together: views share batches


class MainTable(Result, frozen=True):
    """The table; rows by view, reader and length."""

    run: str
    experiment: str
    metric: str
    hop_classes: tuple[HopClass, ...]
    rows: tuple[TableRow, ...]
    readers: dict[str, TableReader]  # by name
    extraction: ExtractedBy
    published: Published | None  # None unless requested


def published(kind: str) -> Published:
    """The published results for a data kind; ConfigurationError if there are none."""
    shipped = {path.stem: path for path in sorted((configs_folder() / "published").glob("*.yaml"))}
    if kind not in shipped:
        raise ConfigurationError(
            f"no published figures of {kind!r} data are known, only of {', '.join(shipped)}; leave out --published"
        )
    return load_yaml(shipped[kind], Published)


def main_table(scored: ScoredRun, metric: str, *, by_length: bool, with_published: bool = False) -> MainTable:
    """The main table of a run; CommandError unless the run is scored by this metric."""
    if with_published and metric != HEADLINE:
        raise ConfigurationError(f"published figures are of {HEADLINE}; leave out --metric {metric}, or --published")
    run, experiment = scored.run, scored.experiment
    if metric not in scored.metrics:
        raise CommandError(f"--metric {metric}: not stored in {run.path}; there are {', '.join(scored.metrics)}")
    given = published(kind_of(experiment.data)) if with_published else None
    readers = {plan.reader.name: _reader(run, plan, scored.seals[plan.reader.name]) for plan in experiment.readers}
    rows = tuple(_rows(scored, readers, metric, by_length))
    classes = {name for row in rows for name in row.accuracy}
    classes |= {name for row in given.rows for name in row.percent} if given else set()
    return MainTable(
        run=str(run.path),
        experiment=experiment.name,
        metric=metric,
        hop_classes=tuple(name for name in get_args(HopClass) if name in classes),
        rows=rows,
        readers=readers,
        extraction=extracted_by(run),
        published=given,
    )


def _rows(scored: ScoredRun, readers: Mapping[str, TableReader], metric: str, by_length: bool) -> Iterator[TableRow]:
    experiment = scored.experiment
    packets = {view: {p.question: p for p in found} for view, found in scored.run.packets(experiment.views).items()}
    asked = {plan.reader.name: read_exchanges(scored.run, plan) for plan in experiment.readers}
    for view in experiment.answered:
        for name, reader in readers.items():
            for length, group in _groups([item for item in asked[name] if item.score.view == view], by_length):
                yield table_row(group, packets.get(view), reader, metric, length)


def _reader(run: OpenRun, plan: ReaderPlan, seal: Seal) -> TableReader:
    folder = reads_folder(run, plan.reader.name)
    return TableReader(
        model=pin_text(plan.reader.model),
        engine=plan.reader.engine,
        sealed_blind=sealed_blind(seal),
        root=seal.root,
        unit=read_settings(folder / "requests" / SETTINGS).unit,
        requests=seal.counts.generated,
        calls=seal.counts.pipelines.calls if seal.counts.pipelines else 0,
        sampled=seal.sampled or (),
        seconds=read_record(folder / TIMINGS, Timings).seconds,
    )


def _groups(asked: Sequence[Exchange], by_length: bool) -> Iterator[tuple[str | None, list[Exchange]]]:
    """All items (length None), then those of each history length in order of first appearance."""
    if asked:
        yield None, list(asked)
    lengths: dict[str, list[Exchange]] = {}
    for item in asked if by_length else ():
        lengths.setdefault(item.score.length, []).append(item)
    yield from lengths.items()


def table_row(
    asked: Sequence[Exchange],
    packets: Mapping[str, Packet] | None,
    reader: TableReader,
    metric: str,
    length: str | None = None,
) -> TableRow:
    """The row of one view or pipeline. packets: by question; None for a pipeline."""
    view = asked[0].score.view
    classes: dict[HopClass, list[bool]] = {}
    for item in asked:
        classes.setdefault(item.score.hop_class, []).append(item.score.metrics[metric])
    shown = [] if packets is None else [packets[item.score.question] for item in asked]
    return TableRow(
        view=view,
        reader=asked[0].score.reader,
        length=length,
        sealed_blind=reader.sealed_blind,
        pipeline=True if packets is None else UNSET,
        sampled=view in reader.sampled if packets is None else UNSET,
        accuracy={name: accuracy(sum(right), len(right)) for name, right in classes.items()},
        unit=reader.unit,
        input_mean=round(sum(item.input_size for item in asked) / len(asked), 1),
        output_mean=round(sum(item.output_size for item in asked) / len(asked), 1),
        requests=len({name for item in asked for name in item.requests}),
        truncated=sum(packet.truncated for packet in shown),
        fallbacks=sum(packet.fallback is not None for packet in shown),
        cut=sum(item.score.cut > 0 for item in asked),
        failed=sum(item.score.finish_reason == "error" for item in asked),
        capped=sum(item.score.finish_reason == "length" for item in asked),
    )
