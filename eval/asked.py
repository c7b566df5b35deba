"""What one reader was asked and gave, question by question: schedule, request, output and stored score side by side."""

from dataclasses import dataclass

from eval.records import Score
from eval.score import read_scores
from offline.canonical import read_lines
from offline.run_folder import RunFolder
from readers.records import Request, Scheduled
from readers.seal import read_predictions, reads_folder


@dataclass(frozen=True)
class Asked:
    """One scheduled question of one view. output_size: tokens of the answer; for a served model, bytes."""

    score: Score
    scheduled: Scheduled
    request: Request
    output_size: int


def read_asked(run: RunFolder, reader: str) -> list[Asked]:
    """Every scheduled question of a scored reader, in schedule order."""
    folder = reads_folder(run, reader) / "requests"
    requests = {request.digest: request for request in read_lines(folder / "requests.jsonl", Request)}
    outputs = {prediction.request: len(prediction.output_ids) for prediction in read_predictions(run, reader)}
    schedule = read_lines(folder / "schedule.jsonl", Scheduled)
    return [
        Asked(score, scheduled, requests[scheduled.request], outputs[scheduled.request])
        for scheduled, score in zip(schedule, read_scores(run, reader), strict=True)
    ]
