"""Writing the steps that need neither model nor label: data, extraction's storage, packets."""

from collections.abc import Sequence
from pathlib import Path

from offline.canonical import write_lines
from offline.freeze import Frozen, freeze
from offline.loaders import load
from offline.loaders.raw import RawSource
from offline.memory import Measure
from offline.records import Evidence, Extraction, Packet
from offline.run.opened import OpenRun
from offline.run.steps import EXTRACTION_FILES, data_inputs


def load_step(run: OpenRun, source: RawSource | None) -> bool:
    """Write data/: histories and questions. True if it was written, False if it was up to date."""

    def write(folder: Path) -> None:
        loaded = load(run.experiment.data, source, run.experiment.limit)
        write_lines(folder / "histories.jsonl", loaded.histories)
        write_lines(folder / "questions.jsonl", loaded.questions)

    return run.step("data", data_inputs(run.experiment, source), write)


def write_extraction(folder: Path, extraction: Extraction) -> None:
    """Store an extraction: statements in order of first appearance, and the relation catalogue."""
    for name, records in zip(EXTRACTION_FILES, (extraction.statements, extraction.relations), strict=True):
        write_lines(folder / name, records)


def freeze_run(run: OpenRun, measure: Measure) -> Frozen:
    """Derive the packets of a run from its data and extraction."""
    data = run.data
    return freeze(
        data.histories,
        data.questions,
        run.extraction,
        run.experiment.settings,
        run.experiment.prompt,
        run.experiment.views,
        measure,
        run.retrieval,
    )


def packet_files(frozen: Frozen) -> dict[str, Sequence[Packet] | Sequence[Evidence]]:
    """The files of packets/ and their records."""
    return {**{f"{view}.jsonl": packets for view, packets in frozen.packets.items()}, "evidence.jsonl": frozen.evidence}


def freeze_step(run: OpenRun, measure: Measure, measure_name: str) -> bool:
    """Write packets/; True if it was written. `measure_name` names the unit in which random_disjoint measures a record."""

    def write(folder: Path) -> None:
        for name, records in packet_files(freeze_run(run, measure)).items():
            write_lines(folder / name, records)

    return run.step("packets", {**run.upstream("packets"), "measure": measure_name}, write)
