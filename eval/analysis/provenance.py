"""Provenance of a run's triples, for all tables, summaries and pages."""

from typing import get_args

from eval.records import AskedExtractor, ExtractedBy
from extract.step import CALLS, read_environments, statuses
from offline.canonical import digest_of
from offline.config.calls import Extractor
from offline.config.models import pin_text
from offline.records import Status
from offline.run.opened import OpenRun
from readers.transcript import read_transcript


def extracted_by(run: OpenRun) -> ExtractedBy:
    """Provenance of a run's verified extraction."""
    experiment, counted = run.experiment, statuses(run)
    return ExtractedBy(
        frontend=experiment.frontend.kind,
        grammar=experiment.frontend.grammar,
        statements={status: counted.get(status, 0) for status in get_args(Status)},
        extractor=_extractor(run),
    )


def _extractor(run: OpenRun) -> AskedExtractor | None:
    extractor = run.experiment.extractor
    if not isinstance(extractor, Extractor):
        return None
    folder = run.step_folder("extraction")
    transcript = read_transcript(folder / CALLS)
    return AskedExtractor(
        name=extractor.reader.name,
        model=pin_text(extractor.reader.model),
        fingerprint=transcript.settings.model.fingerprint,
        engine=extractor.reader.engine,
        stages=transcript.counts(),
        unit=transcript.settings.unit,
        catalogue=None if extractor.catalogue is None else digest_of(extractor.catalogue),
        environments=read_environments(folder),
    )


def extraction_words(found: ExtractedBy) -> str:
    """The record as one line; of each environment only engine, version, dtype and device."""
    kind = found.frontend if found.grammar is None else f"{found.frontend} {found.grammar}"
    counts = f"statements: {', '.join(f'{count} {status}' for status, count in found.statements.items())}"
    asked = found.extractor
    if asked is None:
        return f"{kind}; {counts}"
    stages = asked.stages.values()
    calls, failed = sum(cost.calls for cost in stages), sum(cost.failed for cost in stages)
    given, made = sum(cost.input_tokens for cost in stages), sum(cost.output_tokens for cost in stages)
    parts = (
        f"{kind} by {asked.name} ({asked.model}, fingerprint {asked.fingerprint[:12]}…)",
        *dict.fromkeys(map(_environment_words, asked.environments)),
        counts,
        f"{calls} calls ({failed} failed), {given} {asked.unit} in, {made} out",
        *((f"names by a catalogue edited by hand, {asked.catalogue[:12]}…",) if asked.catalogue else ()),
    )
    return "; ".join(parts)


def _environment_words(environment: dict[str, str]) -> str:
    engine = environment.get("engine", "")
    return "engine " + " ".join(environment[name] for name in ("engine", engine, "dtype", "device") if name in environment)
