"""A third party's engine that starts at once: it reads with no model and answers with hexadecimal digits of its input's digest.

It answers alike whatever shares a batch; some answers end by themselves, some at the cap. It is the reader of every test whose
subject is not the engine; its model is a folder of tiny.make_folder.
"""

from collections.abc import Sequence
from hashlib import sha256

from readers.engines import EngineStart
from readers.records import Decoding, Output

# The id of "0" in the tiny tokenizer, whose printable characters follow each other from "!" on, after six special tokens.
ZERO = 6 + ord("0") - ord("!")


class DigestEngine:
    """Answers of 4 to 19 digits and a stop id, cut at the cap."""

    def __init__(self, start: EngineStart) -> None:
        self._stop = start.settings.stop_ids[0]
        self._cap = start.settings.reader.output_cap

    def environment(self) -> dict[str, str]:
        """As an engine on a CPU reports itself."""
        return {"engine": "digest", "device": "cpu of no kind", "dtype": "float32"}

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """One answer for each input."""
        return [self._answer(ids, self._cap) for ids in batch]

    def complete(self, batch: Sequence[Sequence[int]], decoding: Decoding) -> list[Output]:
        """The same to an algorithm, whatever it asks for."""
        return [self._answer(ids, decoding.output_cap) for ids in batch]

    def logprobs(self, ids: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Every token is as likely as its id says."""
        return [-token / 8 for token in tokens]

    def _answer(self, ids: Sequence[int], cap: int) -> Output:
        digits = sha256(repr(list(ids)).encode()).hexdigest()
        answer = [ZERO + ord(digit) - ord("0") for digit in digits[: 4 + int(digits[0], 16)]]
        if len(answer) < cap:
            return Output(ids=(*answer, self._stop), finish_reason="stop")
        return Output(ids=tuple(answer[:cap]), finish_reason="length")
