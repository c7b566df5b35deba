"""The report: a self-contained page with a scored run's tables, plots and questions; it makes no network request.

Questions, evidence, outputs and names are data: the content security policy allows only the page's own script, which writes
text and never markup, and packed data cannot end an element. Without times or paths, equal runs give equal bytes.
"""

import base64
import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from eval.analysis.coverage import Judged
from eval.analysis.label_audit import audit_labels
from eval.analysis.main_table import MainTable, main_table
from eval.analysis.provenance import extracted_by, extraction_words
from eval.metrics import HEADLINE
from eval.report.figures import HOPS, figures
from eval.report.grids import contrast_grid, interaction_grid, sensitivity_grid
from eval.report.islands import Islands
from eval.report.source import Source, read_source
from eval.results import Result
from eval.typeset.grid import Grid
from eval.typeset.main_table import grids
from offline.canonical import write_bytes
from offline.errors import needs
from offline.loaders import kind_of
from offline.run.folder import REPORT
from offline.run.opened import OpenRun

_PAGE = Path(__file__).with_name("assets")
_SCRIPTS = ("page.js", "questions.js", "answers.js", "evidence.js", "pipelines.js", "start.js")


class Report(Result, frozen=True):
    """A written page: its path, size and contents."""

    run: str
    report: str
    bytes: int
    questions: int
    views: int
    readers: int
    answers: int


def write_report(run: OpenRun, out: Path | None = None) -> Report:
    """Write a run's report to `out` (default: report.html in the run) and return its contents. Opens no label."""
    source = read_source(run)
    page = make_page(source)
    place = run.path / REPORT if out is None else out
    write_bytes(place, [page])
    return Report(
        run=str(run.path),
        report=str(place),
        bytes=len(page),
        questions=len(source.questions),
        views=len(source.views),
        readers=len(source.readers),
        answers=len(source.all_scores),
    )


def make_page(source: Source) -> bytes:
    """The page of a scored run."""
    run = source.scored.run
    table = main_table(source.scored, HEADLINE, by_length=True)
    audit = audit_labels(run, source.golds, (), source.all_scores)
    islands = Islands(source, audit.findings)
    return _render(
        title=source.scored.experiment.name,
        facts=_facts(source),
        readers=table.readers,
        tables=_tables(source, table),
        figures=figures(source, table.rows, _gold_shown(islands.judged)),
        series=range(1, 7),
        reader_names=source.readers,
        sensitivity=sensitivity_grid(audit),
        screens=audit.screens,
        islands=islands.packed,
        hops={name: HOPS[name] for name in source.hop_classes},
        views=source.views,
        lengths=list(dict.fromkeys(history.length for history in source.histories)),
        metric=HEADLINE,
    )


def _render(**content: Any) -> bytes:
    with needs("report", "a report"):
        from jinja2 import Environment, StrictUndefined
    read = {name: (_PAGE / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", *_SCRIPTS)}
    script = '"use strict";\n(() => {\n' + "\n".join(read[name] for name in _SCRIPTS) + "})();\n"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(read["page.html"])
    page = template.render(
        script=script, style=read["page.css"], script_digest=_digest(script), style_digest=_digest(read["page.css"]), **content
    )
    return page.encode()


def _digest(text: str) -> str:
    """The digest of an inline script or style in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(source: Source) -> list[tuple[str, str]]:
    asked = ", ".join(
        f"{sum(question.hop_class == name for question in source.questions)} {HOPS[name]}" for name in source.hop_classes
    )
    lengths = ", ".join(dict.fromkeys(history.length for history in source.histories))
    experiment = source.scored.experiment
    run = source.scored.run
    made = extracted_by(run)
    environments = [
        ", ".join(f"{name}: {value}" for name, value in environment.items())
        for environment in (made.extractor.environments if made.extractor else ())
    ]
    sampled = dict.fromkeys(name for seal in source.scored.seals.values() for name in seal.sampled or ())
    return [
        ("data", kind_of(source.scored.experiment.data)),
        ("questions", f"{len(source.questions)} ({asked})" if "all" not in source.hop_classes else str(len(source.questions))),
        ("histories", f"{len(source.histories)}, of length {lengths}"),
        ("views", ", ".join(experiment.views)),
        *([("pipelines", ", ".join(experiment.served))] if experiment.served else []),
        *([("pipelines that sampled", ", ".join(sampled))] if sampled else []),
        ("extraction", extraction_words(made)),
        *(("environment of the extraction", environment) for environment in environments),
        *((f"digest of {step}", run.need(step).digest) for step in ("data", "extraction", "packets", "labels")),
    ]


def _tables(source: Source, table: MainTable) -> list[tuple[str, Grid]]:
    pooled = tuple(row for row in table.rows if row.length is None)
    views, readers = grids(msgspec.structs.replace(table, rows=pooled))
    found = [("Main table", views), ("Readers", readers)]
    if len({row.length for row in table.rows}) > 2:  # None, and more than one length
        found.insert(1, ("Main table by history length", grids(table)[0]))
    more = (("Contrasts", contrast_grid(source)), ("Interactions", interaction_grid(source)))
    return found + [(heading, grid) for heading, grid in more if grid is not None]


def _gold_shown(judged: list[Judged]) -> dict[tuple[str, str], tuple[int, int]]:
    counts: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for item in judged:
        key = (item.view, item.question.hop_class)
        shown, of = counts[key]
        counts[key] = (shown + item.counts.gold_in_evidence, of + 1)
    return counts
