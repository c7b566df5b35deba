"""A sealed reader: verified once, its files read once, its questions joined with their answers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from offline.run.opened import OpenRun
from readers.records import Prediction, Probe, Request, Scheduled, Seal
from readers.requests import Requests, read_requests
from readers.seal import read_predictions, read_probes, reads_folder, verify_reads


@dataclass(frozen=True)
class Answer:
    """One scheduled question of a view, its request, and the model's prediction."""

    scheduled: Scheduled
    request: Request
    prediction: Prediction


class SealedReader:
    """A reader whose files match its seal; the constructor raises the errors of `verify_reads`."""

    def __init__(self, run: OpenRun, name: str) -> None:
        self.run = run
        self.name = name
        self.seal: Seal = verify_reads(run, name)

    @property
    def folder(self) -> Path:
        """reads/NAME."""
        return reads_folder(self.run, self.name)

    @cached_property
    def requests(self) -> Requests:
        """The frozen requests: settings, distinct requests with their token ids, schedule."""
        return read_requests(self.folder / "requests")

    @cached_property
    def predictions(self) -> tuple[Prediction, ...]:
        """One per distinct request, in request order."""
        return read_predictions(self.run, self.name)

    @cached_property
    def by_request(self) -> Mapping[str, Prediction]:
        """Predictions by request digest."""
        return {prediction.request: prediction for prediction in self.predictions}

    @cached_property
    def probes(self) -> tuple[Probe, ...]:
        """The probes of the certificate; empty if there is none."""
        return read_probes(self.run, self.name)

    def answers(self) -> Iterator[Answer]:
        """Every scheduled question, in schedule order."""
        requests = {request.digest: request for request in self.requests.requests}
        for scheduled in self.requests.schedule:
            yield Answer(scheduled, requests[scheduled.request], self.by_request[scheduled.request])

    @cached_property
    def ended_by_cap(self) -> Mapping[str, int]:
        """Answers that the output cap ended, by view; views without any are left out."""
        return Counter(a.scheduled.view for a in self.answers() if a.prediction.finish_reason == "length")


def sealed_reader(run: OpenRun, name: str) -> SealedReader:
    """A sealed reader of this run, opened once; StateError if it is not sealed."""
    return run.once(f"reads/{name}", "sealed", lambda: SealedReader(run, name))
