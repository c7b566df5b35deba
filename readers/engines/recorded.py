"""The recorded engine: plays a sealed run back. No model, no GPU; also the test double of every other engine.

Options: `run`, the folder of a sealed run, and `reader`, whose predictions to play (its only one, if left out). An input
that the record does not hold ends as a failed generation, never as a guess.
"""

from collections.abc import Sequence
from pathlib import Path

from offline.canonical import Record
from offline.errors import StateError
from offline.run_folder import RunFolder
from readers.engines import ENGINES, OPTIONS, EngineStart, engine_options
from readers.records import Output
from readers.requests import read_requests
from readers.seal import read_predictions, verify_reads


class RecordedOptions(Record, frozen=True):
    """A sealed run to play back, and whose predictions."""

    run: str
    reader: str = ""


OPTIONS["recorded"] = RecordedOptions


class RecordedEngine:
    """Answers by looking inputs up."""

    def __init__(self, start: EngineStart) -> None:
        options = engine_options(start.settings.reader, RecordedOptions)
        run = RunFolder(Path(options.run).expanduser())
        sealed = run.sealed_readers()
        name = options.reader or (sealed[0] if len(sealed) == 1 else "")
        if name not in sealed:
            raise StateError(
                f"{run.path} has the sealed readers {', '.join(sealed) or 'none'}; name one in options: {{reader: NAME}}"
            )
        seal = verify_reads(run, name)
        requests = read_requests(run.step_folder(f"reads/{name}/requests"))
        predictions = {p.request: p for p in read_predictions(run, name)}
        self._root = seal.root
        self._outputs = {
            ids: Output(ids=p.output_ids, finish_reason=p.finish_reason, error=p.error)
            for request, ids in zip(requests.requests, requests.ids, strict=True)
            for p in [predictions[request.digest]]
        }

    def environment(self) -> dict[str, str]:
        """Which seal is played back."""
        return {"engine": "recorded", "seal": self._root}

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """The recorded outputs."""
        missing = Output(ids=(), finish_reason="error", error="the recorded run holds no such input")
        return [self._outputs.get(tuple(ids), missing) for ids in batch]


@ENGINES.register("recorded")
def recorded_engine(start: EngineStart) -> RecordedEngine:
    """Open the recorded run."""
    return RecordedEngine(start)
