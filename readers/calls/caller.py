"""Calls of an algorithm to a model: chats in, answers out, every distinct call made once and kept in a transcript.

Extraction by a model and query-time pipelines choose their next calls by the answers so far. They are given a `Caller` and no
other access to a model. It asks an engine (engine_source.py) or an earlier transcript: on replay the algorithm runs again, and
each of its calls must equal a recorded one byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from offline.canonical import Record, digest_of
from offline.config.calls import CallPrompt
from offline.errors import InputLinkError, OutputLinkError
from offline.records import Message
from readers.models.served import Tokenizer
from readers.records import Call, Decoding, FinishReason, Output, Prediction, Settings, predicted
from readers.tokens.chat import fill
from readers.tokens.id_arrays import packed
from readers.transcript import ANSWERS, CALLS, DECODINGS, Transcript, read_transcript


class Ask(Record, frozen=True):
    """One call: the chat, how its answer is decoded, and the stage of the algorithm that it counts under."""

    stage: str
    chat: tuple[Message, ...]
    decoding: Decoding


def chat(prompt: CallPrompt, values: Mapping[str, str]) -> tuple[Message, Message]:
    """System and user message of one call."""
    return Message(role="system", content=prompt.system), Message(role="user", content=fill(prompt.user, values).strip())


@dataclass(frozen=True)
class Prepared:
    """A call with its input ids and decoding."""

    call: Call
    ids: tuple[int, ...]
    decoding: Decoding
    too_long: bool = False  # refused because the input does not fit


Seeds = Literal["input"] | UnsetType  # as in `Decoding`
Source = Callable[[Sequence[Prepared]], list[Output]]  # outputs of calls that were not made before, in order


class Caller:
    """Makes calls in waves: calls asked together go to the source together, each distinct one once.

    seeds: `Decoding.seeds` of calls that sample; a replay passes the recorded value.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, source: Source, seeds: Seeds = "input") -> None:
        self.transcript = Transcript(settings)
        self._tokenizer = tokenizer
        self._source = source
        self._seeds = seeds
        self._answers: dict[str, Prediction] = {}
        self._prepared: dict[Ask, Prepared] = {}  # by `fits` and `refusal`, for the next wave

    @property
    def settings(self) -> Settings:
        """The model's frozen settings."""
        return self.transcript.settings

    def room(self, decoding: Decoding) -> int:
        """Largest input of a call, in tokens: the smaller of the reader's cap and the window minus the output cap."""
        settings = self.settings
        window = settings.window - decoding.output_cap if settings.window > 0 else settings.reader.input_cap
        return min(settings.reader.input_cap, window)

    def special_in(self, text: str) -> str | None:
        """The first special token of the model in a text, which no call can carry; None if there is none."""
        return self._tokenizer.special_in(text)

    def count(self, text: str) -> int:
        """Tokens of a text on its own."""
        return self._tokenizer.count(text)

    def fits(self, ask: Ask) -> bool:
        """Whether a call's input fits; True for a call refused for another reason."""
        return not self._tried(ask).too_long

    def refusal(self, ask: Ask) -> str | None:
        """Why a call cannot be made, with the sizes if its input is too long; None if it can."""
        return self._tried(ask).call.refused

    def ask(self, asks: Sequence[Ask]) -> list[Prediction]:
        """The answers to one wave, in order. A call that cannot be made gets a failed answer with the reason, not an error."""
        names = []
        fresh: dict[str, Prepared] = {}
        for ask in asks:
            prepared = self._prepared.get(ask) or self._prepare(ask)
            names.append(prepared.call.digest)
            if prepared.call.digest not in self._answers:
                fresh.setdefault(prepared.call.digest, prepared)
        self._prepared.clear()
        possible = [prepared for prepared in fresh.values() if prepared.call.refused is None]
        made = dict(zip((p.call.digest for p in possible), self._source(possible) if possible else (), strict=True))
        for name, prepared in fresh.items():
            self._keep(prepared, made.get(name, Output(ids=(), finish_reason="error", error=prepared.call.refused)))
        return [self._answers[name] for name in names]

    def _tried(self, ask: Ask) -> Prepared:
        prepared = self._prepared.get(ask) or self._prepare(ask)
        # An input that is too long was a trial; a shorter one will follow.
        if not prepared.too_long:
            self._prepared[ask] = prepared
        return prepared

    def _prepare(self, ask: Ask) -> Prepared:
        settings = self.settings
        how = replace(ask.decoding, seeds=self._seeds) if ask.decoding.samples else ask.decoding
        decoding = digest_of(how)
        special = next(filter(None, (self.special_in(message.content) for message in ask.chat)), None)
        refused: str | None = None
        too_long = False
        ids: tuple[int, ...] = ()
        if special is not None:
            refused = f"the chat spells out {special!r}, a special token of the model"
        else:
            ids = tuple(self._tokenizer.encode(ask.chat))
            if too_long := len(ids) > (room := self.room(ask.decoding)):
                refused = f"the input has {len(ids)} tokens, of {room} that there is room for"
        identity = ids if refused is None else ask.chat
        name = digest_of((identity, decoding, settings.stop_ids, settings.fingerprint))
        kept = ids if refused is None else ()
        call = Call(digest=name, stage=ask.stage, decoding=decoding, offset=0, length=len(kept), refused=refused)
        return Prepared(call, kept, how, too_long)

    def _keep(self, prepared: Prepared, output: Output) -> None:
        kept, call = self.transcript, prepared.call
        offset = kept.calls[-1].offset + kept.calls[-1].length if kept.calls else 0
        prediction = predicted(call.digest, output, self._tokenizer.decode(output.ids))
        kept.calls.append(replace(call, offset=offset))
        kept.ids.append(packed(prepared.ids))
        kept.decodings.setdefault(call.decoding, prepared.decoding)
        kept.predictions.append(prediction)
        self._answers[call.digest] = prediction


class Recorded:
    """A source with the answers of a transcript and no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transcript = read_transcript(folder)

    @property
    def seeds(self) -> Seeds:
        """`Decoding.seeds` of the recorded calls that sampled."""
        return next((decoding.seeds for decoding in self.transcript.decodings.values() if decoding.samples), "input")

    @cached_property
    def _outputs(self) -> dict[str, Output]:
        return {
            p.request: Output(ids=p.output_ids, finish_reason=p.finish_reason, error=p.error, reported=p.reported)
            for p in self.transcript.predictions
        }

    def __call__(self, calls: Sequence[Prepared]) -> list[Output]:
        """The recorded outputs; InputLinkError for a call that was never made."""
        for prepared in calls:
            if prepared.call.digest not in self._outputs:
                raise InputLinkError(
                    f"{self.folder / CALLS}: run again, stage {prepared.call.stage!r} makes the call "
                    f"{prepared.call.digest[:12]}…, which is not among those that were made"
                )
        return [self._outputs[prepared.call.digest] for prepared in calls]


def _reason(transcript: Transcript, call: Call, prediction: Prediction) -> FinishReason | None:
    """The finish reason that the ids imply: stop id or output cap. None for bytes, failures and anything else."""
    ids, settings = prediction.output_ids, transcript.settings
    if settings.transport is not UNSET or prediction.finish_reason == "error":
        return None
    if ids and ids[-1] in settings.stop_ids:
        return "stop"
    return "length" if len(ids) == transcript.decodings[call.decoding].output_cap else None


def check_transcript(recorded: Recorded, again: Transcript) -> int:
    """Compare the transcript of a run on recorded answers with the recorded one; return the number of calls.

    InputLinkError for the first call that differs, OutputLinkError for the first answer.
    """
    folder, stored = recorded.folder, recorded.transcript
    stored_calls = zip(stored.calls, stored.ids, stored.predictions, strict=True)
    made = zip(again.calls, again.ids, again.predictions, strict=True)
    # The lengths are compared below, after the common part.
    for number, (there, (call, ids, prediction)) in enumerate(zip(stored_calls, made, strict=False), 1):
        where = f"line {number}, stage {call.stage!r}"
        if there[:2] != (call, ids):
            raise InputLinkError(f"{folder / CALLS}, {where}: this call comes out differently when the algorithm runs again")
        cap = again.decodings[call.decoding].output_cap
        if again.settings.exceeds(prediction.output_ids, cap):
            raise OutputLinkError(f"{folder / ANSWERS}, {where}: it has more output ids than its cap of {cap}")
        if there[2] != prediction:
            raise OutputLinkError(f"{folder / ANSWERS}, {where}: its output ids do not decode to the stored text")
        if (reason := _reason(again, call, prediction)) not in (None, prediction.finish_reason):
            raise OutputLinkError(
                f"{folder / ANSWERS}, {where}: it says {prediction.finish_reason!r}, and its output ids end by {reason!r}"
            )
    if len(stored.calls) != len(again.calls):
        raise InputLinkError(f"{folder / CALLS}: {len(stored.calls)} calls; run again, the algorithm makes {len(again.calls)}")
    if list(stored.decodings) != list(again.decodings):
        raise InputLinkError(f"{folder / DECODINGS}: not the decodings that these calls have when the algorithm runs again")
    return len(again.calls)
