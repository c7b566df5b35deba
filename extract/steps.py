"""The extraction step of a run."""

from collections import Counter
from pathlib import Path

from extract.frontends import extract
from offline.experiment import ResolvedExperiment
from offline.run_folder import RunFolder
from offline.steps import read_data, read_extraction, upstream, write_extraction


def extract_step(run: RunFolder, experiment: ResolvedExperiment) -> tuple[bool, dict[str, int]]:
    """Write extraction/ unless it is up to date; whether it was written, and statements of all histories by status."""

    def write(folder: Path) -> None:
        write_extraction(folder, extract(read_data(run).histories, experiment))

    written = run.step("extraction", upstream(run, experiment, "extraction"), write)
    status = {statement.text: statement.status for statement in read_extraction(run).statements}
    return written, Counter(status[s.text] for history in read_data(run).histories for s in history.statements)
