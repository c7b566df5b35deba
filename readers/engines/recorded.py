"""The recorded engine: plays a sealed run back. No model, no GPU; also the test double of every other engine.

An input that was not recorded is a failed generation, never a guess.
"""

from collections.abc import Sequence
from pathlib import Path

from offline.canonical import Record, digest_of, file_digest
from offline.errors import ConfigurationError, StateError
from offline.run.opened import OpenRun
from readers.engines import EngineStart, engine_options
from readers.records import Decoding, Output, Prediction
from readers.sealed import sealed_reader
from readers.transcript import ANSWERS, read_transcript


class RecordedOptions(Record, frozen=True):
    """What is played back."""

    run: str = ""  # folder of a sealed run
    reader: str = ""  # whose predictions; default: the only sealed reader
    calls: str = ""  # folder of a transcript, for the calls of an algorithm

    def __post_init__(self) -> None:
        if not (self.run or self.calls):
            raise ValueError("name the folder of a sealed run (run), or of a transcript (calls)")


_MISSING = Output(ids=(), finish_reason="error", error="the recorded run holds no such input")


class RecordedEngine:
    """Answers by looking inputs up."""

    def __init__(self, start: EngineStart) -> None:
        options = engine_options(start.settings.reader, RecordedOptions)
        self._name = start.settings.reader.name
        self._environment = {"engine": "recorded"}
        self._reads = self._of_run(options) if options.run else None
        self._calls = self._of_calls(Path(options.calls).expanduser()) if options.calls else None

    def _of_run(self, options: RecordedOptions) -> dict[tuple[int, ...], Output]:
        run = OpenRun(Path(options.run).expanduser())
        names = run.sealed_readers()
        name = options.reader or (names[0] if len(names) == 1 else "")
        if name not in names:
            raise StateError(
                f"{run.path} has the sealed readers {', '.join(names) or 'none'}; name one in options: {{reader: NAME}}"
            )
        sealed = sealed_reader(run, name)
        self._environment["seal"] = sealed.seal.root
        kept = zip(sealed.requests.requests, sealed.requests.ids, strict=True)
        return {tuple(ids): _output(sealed.by_request[request.digest]) for request, ids in kept}

    def _of_calls(self, folder: Path) -> dict[tuple[tuple[int, ...], str], Output]:
        kept = read_transcript(folder)
        # Covers the calls too: each answer names its call by a digest of ids and decoding.
        self._environment["calls"] = file_digest(folder / ANSWERS)
        return {
            (tuple(ids), call.decoding): _output(prediction)
            for call, ids, prediction in zip(kept.calls, kept.ids, kept.predictions, strict=True)
            if call.refused is None
        }

    def environment(self) -> dict[str, str]:
        """The seal and the answers that are played back."""
        return self._environment

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """The recorded outputs; ConfigurationError if no run is played back."""
        if self._reads is None:
            raise ConfigurationError(
                f"reader {self._name!r}: reads are played back from a sealed run; options: {{run: FOLDER}}"
            )
        return [self._reads.get(tuple(ids), _MISSING) for ids in batch]

    def complete(self, batch: Sequence[Sequence[int]], decoding: Decoding) -> list[Output]:
        """The recorded answers to these calls; ConfigurationError if no transcript is played back."""
        if self._calls is None:
            raise ConfigurationError(f"reader {self._name!r}: calls are played from a transcript; options: {{calls: FOLDER}}")
        return [self._calls.get((tuple(ids), digest_of(decoding)), _MISSING) for ids in batch]


def _output(prediction: Prediction) -> Output:
    return Output(ids=prediction.output_ids, finish_reason=prediction.finish_reason, error=prediction.error)
