"""The records of reading."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from offline.canonical import Record
from offline.config.models import Encoder, Reader, Reranker

FinishReason = Literal["stop", "length", "error"]
MOST_ID = (1 << 32) - 1  # the largest token id that a tokenizer can decode
TokenId = Annotated[int, Meta(ge=0, le=MOST_ID)]


class ModelFile(Record, frozen=True):
    """A file of a pinned model."""

    name: str
    sha256: str
    size: int


class Model(Record, frozen=True):
    """A pinned model as found on this machine."""

    fingerprint: str  # digest of `files`, or of the name of a served model
    files: tuple[ModelFile, ...]


class Settings(Record, frozen=True):
    """Everything that decides a reader's requests and their generation, frozen before generation."""

    reader: Reader
    model: Model
    window: int  # positions, -1 if the model's configuration gives none
    input_cap: int  # tokens: the smaller of the reader's cap and the window minus the output cap
    stop_ids: tuple[int, ...]  # of tokenizer, config and generation_config together, ascending
    pad_id: int
    thinking: Literal["off", "on", "no switch", "unknown"]  # no switch: it changes nothing; unknown: a server's template
    fingerprint: str  # of all that can change an output: model, engine, dtype, device, attention, batch size, options
    format: Literal[1] = 1
    transport: Literal["messages"] | UnsetType = UNSET  # messages: ids and input_cap are in bytes (models/served.py)

    def exceeds(self, ids: Sequence[int], cap: int) -> bool:
        """Whether an answer has more tokens than its cap; False for a served model, whose tokens only the server counts."""
        return self.transport is UNSET and len(ids) > cap

    @property
    def unit(self) -> Literal["tokens", "bytes"]:
        """The unit of input and output sizes."""
        return "tokens" if self.transport is UNSET else "bytes"


class Request(Record, frozen=True):
    """One distinct request: `length` token ids at `offset` of inputs.u32."""

    digest: str  # of ids, output cap, stop ids and reader fingerprint
    offset: int
    length: int
    too_long: bool  # exceeds the input cap even without evidence, so nothing is generated
    format: Literal[1] = 1


class Scheduled(Record, frozen=True):
    """One scheduled question: the packet that it reads, and the request that asks it."""

    view: str
    question: str
    packet: str  # digest
    request: str  # digest
    cut: int  # oldest evidence records left out to meet the input cap
    shared_with: str | None  # view and question that scheduled this request first; None for the first itself
    format: Literal[1] = 1


class Output(Record, frozen=True):
    """An engine's output for one request."""

    ids: tuple[int, ...]  # new token ids, a stop id included
    finish_reason: FinishReason
    error: str | None = None
    reported: dict[str, str] | UnsetType = UNSET  # by a server, of this response: model id, usage


class Decoding(Record, frozen=True):
    """The decoding of a call's answer."""

    output_cap: int  # new tokens
    schema: str | None = None  # a JSON Schema that constrains the answer, in field order; None = free text
    temperature: str = "0"  # a decimal; 0 is greedy, anything else samples
    seed: int = 0
    again: int = 0  # counts deliberate repeats of a call, which no earlier answer may serve
    format: Literal[1] = 1
    seeds: Literal["input"] | UnsetType = UNSET  # input: one per call, by `seed_of`; UNSET: greedy, or `seed` for all calls

    @property
    def samples(self) -> bool:
        """Whether it samples instead of decoding greedily."""
        return float(self.temperature) > 0


class Call(Record, frozen=True):
    """One distinct call of an algorithm to a model: `length` token ids at `offset` of inputs.u32."""

    digest: str  # of ids (of the chat if refused), decoding, stop ids and reader fingerprint
    stage: str  # of the algorithm, when it first made the call
    decoding: str  # digest of its `Decoding`
    offset: int
    length: int
    refused: str | None = None  # why it was not made, its ids then not stored; None if it was
    format: Literal[1] = 1


class StageCounts(Record, frozen=True):
    """Cost of one stage of an algorithm: distinct calls, failed or refused ones, and tokens in and out."""

    calls: int
    failed: int
    input_tokens: int
    output_tokens: int


class Spent(Record, frozen=True):
    """Cost of an algorithm's calls, stored beside the manifest of its step."""

    seconds: dict[str, Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]{3}\Z")]]  # of generation, by stage, cached calls included
    cached: int  # calls
    generated: int  # calls


class Prediction(Record, frozen=True):
    """One request's answer: output ids, their text without special tokens, finish reason, what a server reported."""

    request: str
    output_ids: tuple[TokenId, ...]
    text: str
    finish_reason: FinishReason
    error: str | None
    format: Literal[1] = 1
    reported: dict[str, str] | UnsetType = UNSET


def predicted(request: str, output: Output, text: str) -> Prediction:
    """The prediction for a request, from its output and the decoded text."""
    return Prediction(
        request=request,
        output_ids=output.ids,
        text=text,
        finish_reason=output.finish_reason,
        error=output.error,
        reported=output.reported,
    )


class JournalEntry(Record, frozen=True):
    """One finished batch."""

    batch: str  # digest of its requests
    outputs: tuple[Output, ...]
    environment: dict[str, str]
    seconds: str
    check: str = ""  # digest of this entry with an empty check
    format: Literal[1] = 1


Condition = Literal["alone", "batch", "shuffled", "warm", "run"]


class Probe(Record, frozen=True):
    """One request of the certificate's sample under one condition."""

    request: str
    condition: Condition
    output_ids: tuple[int, ...]
    finish_reason: FinishReason
    token: int  # index of the first output id that differs from the one read alone, -1 if none does
    margin: str | None  # absolute difference of the two ids' log probabilities there, a decimal; None if none or unknown
    environment: str  # digest of the engine's environment
    format: Literal[1] = 1


class Divergence(Record, frozen=True):
    """Where an output first differs from the one read alone; `token` and `margin` as in Probe."""

    condition: Condition
    request: str
    token: int
    margin: str | None


class Certificate(Record, frozen=True):
    """Run-to-run agreement of a sample of requests with their outputs read alone."""

    sample: int
    probed: dict[str, int]  # requests by condition; `run` compares the sealed outputs
    matched: dict[str, int]  # those with the same ids as alone
    first: Divergence | None  # the one with the smallest token index
    batch_invariance: str
    environment: str  # digest of the probed one; a resumed read may have changed it
    probes: str  # digest of all probes


class PipelineCounts(Record, frozen=True):
    """Counts of the pipelines that a seal covers."""

    questions: int  # once for each pipeline
    failed: int  # questions that a fault left without an answer
    calls: int  # distinct, which pipelines may share
    input_tokens: int  # of these calls, as in `Counts`
    output_tokens: int


class Counts(Record, frozen=True):
    """Counts of what a seal covers."""

    scheduled: int  # questions of views
    generated: int  # distinct requests
    failed: int  # scheduled questions without an answer
    cut: int  # scheduled questions with evidence left out to meet the input cap
    input_tokens: int  # ids; bytes for a served model
    output_tokens: int  # likewise
    pipelines: PipelineCounts | UnsetType = UNSET  # counted apart from views; UNSET if there are none


class Seal(Record, frozen=True):
    """Closes a reader's predictions before labels are opened."""

    reader: str  # its name in the experiment
    experiment: str  # digests of everything upstream, down to `tokenizer`
    data: str
    extraction: str
    packets: str
    requests: str
    tokenizer: str
    predictions: str  # sha256 of predictions.jsonl
    fingerprint: str  # of the reader's settings
    environments: tuple[dict[str, str], ...]  # distinct, of all engines that answered
    counts: Counts
    labels: str  # sha256 of the label file, which stays unopened
    ledger: int  # label openings of the run before sealing; 0 means sealed blind
    root: str = ""  # digest of this record with an empty root
    format: Literal[1] = 1
    certificate: Certificate | UnsetType = UNSET  # UNSET if the reader asked for no probe
    pipelines: str | UnsetType = UNSET  # digest of their calls and traces; UNSET if the reader served none
    sampled: tuple[str, ...] | UnsetType = UNSET  # pipelines that sampled instead of decoding greedily


class Timings(Record, frozen=True):
    """Reading time, stored beside the seal and not covered by it."""

    seconds: str  # a decimal
    batches: int
    format: Literal[1] = 1


class Encoded(Record, frozen=True):
    """Provenance of stored vectors."""

    encoder: Encoder
    model: Model
    environment: dict[str, str]
    passages: int  # distinct texts
    queries: int  # distinct texts
    dimension: int
    cut: int  # texts truncated by the window
    format: Literal[1] = 1


class RerankedBy(Record, frozen=True):
    """Provenance of stored rerank scores."""

    reranker: Reranker
    model: Model
    environment: dict[str, str]
    pairs: int
    cut: int  # pairs that filled the window, so that their end may be missing
    format: Literal[1] = 1
