"""Transcripts: every distinct call of an algorithm to a model, with its answer, as a run stores them."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from offline.canonical import digest_of, encode, read_lines, write_lines, write_record
from offline.errors import AlteredError
from readers.records import Call, Decoding, Prediction, Settings, StageCounts
from readers.requests import SETTINGS, read_settings
from readers.tokens.id_arrays import INPUTS, read_ids, write_ids

CALLS, DECODINGS, ANSWERS = "calls.jsonl", "decodings.jsonl", "answers.jsonl"
TRANSCRIPT_FILES = (SETTINGS, CALLS, DECODINGS, INPUTS, ANSWERS)  # files of `write_transcript`


@dataclass
class Transcript:
    """Every distinct call of an algorithm, in the order in which it was first made, and its answer."""

    settings: Settings
    calls: list[Call] = field(default_factory=list)
    ids: list[Sequence[int]] = field(default_factory=list)
    decodings: dict[str, Decoding] = field(default_factory=dict)
    predictions: list[Prediction] = field(default_factory=list)

    def counts(self, among: Container[str] | None = None) -> dict[str, StageCounts]:
        """Cost by stage; tokens are bytes for a served model. among: digests of the calls that count, None = all."""
        found: dict[str, StageCounts] = {}
        for call, prediction in zip(self.calls, self.predictions, strict=True):
            if among is not None and call.digest not in among:
                continue
            before = found.get(call.stage, StageCounts(0, 0, 0, 0))
            found[call.stage] = StageCounts(
                calls=before.calls + 1,
                failed=before.failed + (prediction.finish_reason == "error"),
                input_tokens=before.input_tokens + call.length,
                output_tokens=before.output_tokens + len(prediction.output_ids),
            )
        return found


def write_transcript(folder: Path, transcript: Transcript) -> None:
    """Store a transcript; its ids as little-endian uint32 in one file, in call order."""
    write_record(folder / SETTINGS, transcript.settings)
    write_lines(folder / CALLS, transcript.calls)
    write_lines(folder / DECODINGS, transcript.decodings.values())
    write_ids(folder, transcript.ids)
    write_lines(folder / ANSWERS, transcript.predictions)


def read_transcript(folder: Path) -> Transcript:
    """Read a stored transcript; AlteredError if its parts do not fit each other."""
    calls, predictions = list(read_lines(folder / CALLS, Call)), list(read_lines(folder / ANSWERS, Prediction))
    if [call.digest for call in calls] != [prediction.request for prediction in predictions]:
        raise AlteredError(f"{folder / ANSWERS}: not the answers to the calls in {CALLS}")
    decodings = list(read_lines(folder / DECODINGS, Decoding))
    by_digest = {digest_of(decoding): decoding for decoding in decodings}
    if len(by_digest) != len(decodings):
        raise AlteredError(f"{folder / DECODINGS}: holds one decoding twice")
    return Transcript(
        settings=read_settings(folder / SETTINGS),
        calls=calls,
        ids=read_ids(folder, calls, CALLS),
        decodings=by_digest,
        predictions=predictions,
    )


def check_environments(path: Path, environments: Sequence[dict[str, str]], transcript: Transcript) -> None:
    """AlteredError unless `path` can hold the environments of the engines that answered these calls.

    They are distinct, in canonical order, with the coldread version; none only if no call was made. The rest, about a machine,
    follows from no other file: the seal covers it through the manifest's digest.
    """
    lines = [encode(environment) for environment in environments]
    made = any(call.refused is None for call in transcript.calls)
    if lines != sorted({*lines}) or bool(lines) != made or not all("coldread" in environment for environment in environments):
        raise AlteredError(f"{path}: not what engines resolved that answered the calls beside it; the file was altered")
