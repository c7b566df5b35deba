"""Summary of a scored run, as printed by `coldread score`, `run` and `report`."""

from msgspec import UNSET, UnsetType

from eval.analysis.fallbacks import fallback_counts
from eval.analysis.provenance import extracted_by
from eval.records import Cell, ExtractedBy
from eval.results import Result
from eval.score import read_cells, sealed_blind
from offline.config.experiment import ReaderPlan
from offline.records import Fallback
from offline.run.opened import OpenRun
from readers.records import PipelineCounts
from readers.seal import read_seal
from readers.sealed import sealed_reader

# By view and hop class: `questions`, and right answers by metric.
Counted = dict[str, dict[str, dict[str, int]]]


class SealSummary(Result, frozen=True):
    """Summary of one sealed reader."""

    root: str
    sealed_blind: bool
    scheduled: int
    failed: int
    cut: int
    capped: dict[str, int]  # answers ended by the output cap, by view
    output_cap: int  # tokens
    pipelines: PipelineCounts | UnsetType = UNSET


class ScoreSummary(Result, frozen=True):
    """Counts of a scored run."""

    run: str
    questions: int  # of the run
    readers: dict[str, Counted]  # over all lengths
    seals: dict[str, SealSummary]
    cells: dict[str, tuple[Cell, ...]]  # by reader
    fallbacks: dict[str, int]  # questions with a fallback packet, by view
    shown_instead: dict[str, dict[Fallback, int]]  # the same by kind of fallback
    extraction: ExtractedBy


def score_summary(run: OpenRun) -> ScoreSummary:
    """The summary of a scored run."""
    plans = run.experiment.readers
    cells = {plan.reader.name: tuple(read_cells(run, plan.reader.name)) for plan in plans}
    instead = fallback_counts(run, list(dict.fromkeys(view for plan in plans for view in plan.views)))
    return ScoreSummary(
        run=str(run.path),
        questions=len(run.data.questions),
        readers={name: _counted(own) for name, own in cells.items()},
        seals={plan.reader.name: _seal(run, plan) for plan in plans},
        cells=cells,
        fallbacks={view: sum(counts.values()) for view, counts in instead.items()},
        shown_instead=instead,
        extraction=extracted_by(run),
    )


def _counted(cells: tuple[Cell, ...]) -> Counted:
    found: Counted = {}
    for cell in cells:
        if cell.length is None:
            found.setdefault(cell.view, {})[cell.hop_class] = {"questions": cell.questions, **cell.correct}
    return found


def _seal(run: OpenRun, plan: ReaderPlan) -> SealSummary:
    seal = read_seal(run, plan.reader.name)
    return SealSummary(
        root=seal.root,
        sealed_blind=sealed_blind(seal),
        scheduled=seal.counts.scheduled,
        failed=seal.counts.failed,
        cut=seal.counts.cut,
        capped=dict(sealed_reader(run, plan.reader.name).ended_by_cap),
        output_cap=plan.reader.output_cap,
        pipelines=seal.counts.pipelines or UNSET,
    )
