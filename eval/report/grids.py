"""The report's secondary tables: contrasts, declared or exploratory, and sensitivity of headlines to labels."""

from collections.abc import Iterator, Mapping

from eval.analysis.contrasts import contrasts, interactions
from eval.analysis.label_audit import LabelAudit, Sensitivity, unresolved_line
from eval.metrics import HEADLINE
from eval.report.source import Source
from eval.typeset import contrasts as grids
from eval.typeset.grid import Grid
from eval.wording import percent
from offline.config.analysis import DeclaredContrast


def contrast_grid(source: Source) -> Grid | None:
    """Declared contrasts, then exploratory ones of the first view against each other one; None without any."""
    declared = source.scored.analysis.contrasts
    known = {contrast.identity for contrast in declared}
    more = [contrast for contrast in _first_view(source) if contrast.identity not in known]
    groups = [contrasts(source.scored, asked, HEADLINE) for asked in (declared, more) if asked]
    if not groups:
        return None
    return grids.contrast_grid(groups)


def _first_view(source: Source) -> Iterator[DeclaredContrast]:
    first, *others = source.views
    for reader in source.readers:
        for view in others:
            if {(reader, first), (reader, view)} <= source.scored.scores.keys():
                yield DeclaredContrast(first, view, reader=reader)


def interaction_grid(source: Source) -> Grid | None:
    """Declared interactions; None without any."""
    rows = interactions(source.scored, source.scored.analysis.interactions, HEADLINE)
    return grids.interaction_grid(rows) if rows else None


def sensitivity_grid(audit: LabelAudit) -> Grid | None:
    """Headlines against each screen with findings; None without any."""
    screens = [name for name, by_hops in audit.screens.items() if any(by_hops.values())]
    if not screens:
        return None

    def bounds(cell: Sensitivity) -> str:
        low, high = percent(cell.lowest, cell.questions), percent(cell.highest, cell.questions)
        return f"{cell.flagged}: {low} to {high}" if cell.flagged else "0"

    def scored(cells: Mapping[str, Sensitivity]) -> str:
        cell = cells[screens[0]]
        return percent(cell.correct, cell.questions)

    rows = tuple(
        (view, reader, hop_class, scored(cells), *(bounds(cells[screen]) for screen in screens))
        for reader, views in (audit.sensitivity or {}).items()
        for view, by_hops in views.items()
        for hop_class, cells in by_hops.items()
    )
    notes = (
        "Each screen: how many questions of the row it flags, and the percentages that the row would have if every one of them "
        "were wrong, or right.",
        *filter(None, [unresolved_line(audit.unresolved)]),
    )
    return Grid(("view", "reader", "hops", f"{HEADLINE} %", *screens), (rows,), 3, notes)
