"""The records of reading."""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from offline.canonical import Record
from offline.config.models import Encoder, Reader, Reranker

FinishReason = Literal["stop", "length", "error"]
# Token ids of a stored answer: others no tokenizer can take back to text.
MOST_ID = (1 << 32) - 1
TokenId = Annotated[int, Meta(ge=0, le=MOST_ID)]


class ModelFile(Record, frozen=True):
    """A file of a pinned model."""

    name: str
    sha256: str
    size: int


class Model(Record, frozen=True):
    """A pinned model as found on this machine. `fingerprint` is the digest of its files' names and hashes."""

    fingerprint: str
    files: tuple[ModelFile, ...]


class Settings(Record, frozen=True):
    """Everything that decides what a reader's requests are and how they are generated, frozen before generation.

    window: the model's positions, -1 if its configuration names none.
    input_cap: tokens an input may have: the smaller of the reader's cap and the window less the output cap.
    stop_ids: of tokenizer, config and generation_config together, ascending.
    thinking: `off` or `on` if the template has the switch, `no switch` if it renders the same either way, `unknown` if the
        template is a server's.
    fingerprint: digest of all that can change an output: model, engine, dtype, device, attention, batch size, options.
    transport: `messages` if the ids of inputs and outputs are bytes of messages and text (models/served.py), and `input_cap`
        counts those; unset if they are token ids. The output cap counts tokens either way.
    """

    reader: Reader
    model: Model
    window: int
    input_cap: int
    stop_ids: tuple[int, ...]
    pad_id: int
    thinking: Literal["off", "on", "no switch", "unknown"]
    fingerprint: str
    format: Literal[1] = 1
    transport: Literal["messages"] | UnsetType = UNSET

    def exceeds(self, ids: Sequence[int], cap: int) -> bool:
        """Whether an answer is longer than its cap; a served model's tokens only the server can count, so never of one."""
        return self.transport is UNSET and len(ids) > cap

    @property
    def unit(self) -> Literal["tokens", "bytes"]:
        """What the sizes of inputs and outputs count."""
        return "tokens" if self.transport is UNSET else "bytes"


class Request(Record, frozen=True):
    """One distinct request: `length` token ids at `offset` of inputs.u32.

    `digest` covers ids, cap, stop ids and reader fingerprint. `too_long`: even without evidence the input exceeds the
    cap, so nothing is generated.
    """

    digest: str
    offset: int
    length: int
    too_long: bool
    format: Literal[1] = 1


class Scheduled(Record, frozen=True):
    """One scheduled question: which packet it reads through which request.

    `cut` counts the oldest evidence records left out to meet the input cap. `shared_with` names the view and question
    that scheduled the same request first, None for the first itself.
    """

    view: str
    question: str
    packet: str
    request: str
    cut: int
    shared_with: str | None
    format: Literal[1] = 1


class Output(Record, frozen=True):
    """What an engine made of one request: new token ids (a stop id included) and why it ended.

    `reported`: what a server said of this response (model id, usage), for an engine that asks one.
    """

    ids: tuple[int, ...]
    finish_reason: FinishReason
    error: str | None = None
    reported: dict[str, str] | UnsetType = UNSET


class Decoding(Record, frozen=True):
    """How a call's answer is decoded.

    output_cap: new tokens at most. schema: a JSON Schema that the engine holds the answer to, its fields in that order; None
    = free text. temperature: a decimal; `0` is greedy, anything else samples. again: counts up where the same call is made
    once more on purpose, so that it is not answered from what is known.
    seeds: `input` where each call sampled with a seed of its own, made of `seed` and its input (readers/engines); unset of
    what is greedy, and of runs from before, in which all calls sampled with `seed` itself, one noise for all of them.
    """

    output_cap: int
    schema: str | None = None
    temperature: str = "0"
    seed: int = 0
    again: int = 0
    format: Literal[1] = 1
    seeds: Literal["input"] | UnsetType = UNSET

    @property
    def samples(self) -> bool:
        """Whether it is not greedy."""
        return float(self.temperature) > 0


class Call(Record, frozen=True):
    """One distinct call of an algorithm to a model: `length` token ids at `offset` of inputs.u32.

    digest: of ids, decoding, stop ids and reader fingerprint; of a call that could not be made, of its chat instead of ids.
    stage: what the algorithm was doing when it first made it. decoding: digest of its `Decoding`. refused: why it was not made
    (its ids are then not kept), None if it was.
    """

    digest: str
    stage: str
    decoding: str
    offset: int
    length: int
    refused: str | None = None
    format: Literal[1] = 1


class StageCounts(Record, frozen=True):
    """What one stage of an algorithm cost: distinct calls, those that failed or were refused, and tokens in and out."""

    calls: int
    failed: int
    input_tokens: int
    output_tokens: int


class Spent(Record, frozen=True):
    """What an algorithm that asks a model took, beside the manifest of its step.

    seconds: generating, by stage, decimals; a cached call counts as it took when it was made. cached, generated: calls.
    """

    seconds: dict[str, Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]{3}\Z")]]
    cached: int
    generated: int


class Prediction(Record, frozen=True):
    """One request's answer: output ids, their text without special tokens, why generation ended, what a server reported."""

    request: str
    output_ids: tuple[TokenId, ...]
    text: str
    finish_reason: FinishReason
    error: str | None
    format: Literal[1] = 1
    reported: dict[str, str] | UnsetType = UNSET


def predicted(request: str, output: Output, text: str) -> Prediction:
    """What an engine made of a request, and the text that its ids are."""
    return Prediction(
        request=request,
        output_ids=output.ids,
        text=text,
        finish_reason=output.finish_reason,
        error=output.error,
        reported=output.reported,
    )


class JournalEntry(Record, frozen=True):
    """One finished batch. `batch` is the digest of its requests; `check` that of this entry with an empty check."""

    batch: str
    outputs: tuple[Output, ...]
    environment: dict[str, str]
    seconds: str
    check: str = ""
    format: Literal[1] = 1


Condition = Literal["alone", "batch", "shuffled", "warm", "run"]


class Probe(Record, frozen=True):
    """One request of the certificate's sample under one condition.

    token: index of the first output id that differs from the one read alone, -1 if none does. margin: absolute difference of
    the two ids' log probabilities there, a decimal; None if nothing differs or the engine does not tell. environment: digest
    of what the engine resolved.
    """

    request: str
    condition: Condition
    output_ids: tuple[int, ...]
    finish_reason: FinishReason
    token: int
    margin: str | None
    environment: str
    format: Literal[1] = 1


class Divergence(Record, frozen=True):
    """Where an output first left the one read alone; `token` and `margin` as in Probe."""

    condition: Condition
    request: str
    token: int
    margin: str | None


class Certificate(Record, frozen=True):
    """How many of `probed` requests (of a sample) gave the same ids as alone, by condition; `run` compares the sealed ones.

    first: the divergence with the smallest token index. environment: digest of the one that was probed, which a resumed
    read may have left. probes: digest of all probes.
    """

    sample: int
    probed: dict[str, int]
    matched: dict[str, int]
    first: Divergence | None
    batch_invariance: str
    environment: str
    probes: str


class PipelineCounts(Record, frozen=True):
    """What a seal covers of pipelines. questions: once for each pipeline; failed: those that a fault left without an answer.

    calls: distinct ones, which pipelines may share; input_tokens, output_tokens: theirs, as in `Counts`.
    """

    questions: int
    failed: int
    calls: int
    input_tokens: int
    output_tokens: int


class Counts(Record, frozen=True):
    """What a seal covers, counted. scheduled: questions of views; generated: distinct requests.

    failed, cut: scheduled questions without an answer, and with evidence records left out to meet the input cap.
    input_tokens, output_tokens: ids; for a served model, bytes. pipelines: what is not of views; unset if there are none.
    """

    scheduled: int
    generated: int
    failed: int
    cut: int
    input_tokens: int
    output_tokens: int
    pipelines: PipelineCounts | UnsetType = UNSET


class Seal(Record, frozen=True):
    """Closes a reader's predictions before labels are opened. `root` is the digest of this record with an empty root.

    experiment, data, extraction, packets, requests, tokenizer: digests of what lies upstream.
    predictions: sha256 of predictions.jsonl. labels: sha256 of the label file, committed to without opening it.
    ledger: how many label openings the run had seen when the seal was made; 0 means sealed blind.
    certificate: what probing the engine's determinism gave, unset if the reader asked for no probe.
    pipelines: digest of the pipelines that the reader served, their calls and traces; unset if it served none.
    sampled: those of them that sampled instead of decoding greedily; unset if none did.
    """

    reader: str
    experiment: str
    data: str
    extraction: str
    packets: str
    requests: str
    tokenizer: str
    predictions: str
    fingerprint: str
    environments: tuple[dict[str, str], ...]
    counts: Counts
    labels: str
    ledger: int
    root: str = ""
    format: Literal[1] = 1
    certificate: Certificate | UnsetType = UNSET
    pipelines: str | UnsetType = UNSET
    sampled: tuple[str, ...] | UnsetType = UNSET


class Timings(Record, frozen=True):
    """What reading took; beside the seal, not under it. Seconds are decimals as strings."""

    seconds: str
    batches: int
    format: Literal[1] = 1


class Encoded(Record, frozen=True):
    """How the vectors beside it were made. `passages`, `queries`: distinct texts; `cut`: those that the window cut."""

    encoder: Encoder
    model: Model
    environment: dict[str, str]
    passages: int
    queries: int
    dimension: int
    cut: int
    format: Literal[1] = 1


class RerankedBy(Record, frozen=True):
    """How the scores beside it were made. `cut`: pairs that filled the window, so that their end may be missing."""

    reranker: Reranker
    model: Model
    environment: dict[str, str]
    pairs: int
    cut: int
    format: Literal[1] = 1
