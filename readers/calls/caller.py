"""Calls of an algorithm to a model: chats in, answers out, every distinct call made once and kept in a transcript.

Extraction by a model and query-time pipelines are algorithms that ask: what they ask next depends on what was answered. Such
an algorithm is given a `Caller` and nothing else that could generate. Behind it stands an engine (engine_source.py), or the
transcript of an earlier run: then the algorithm runs again, and each of its calls must be one that was made, byte for byte.
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
    """One call: the chat, how its answer is decoded, and the stage of the algorithm that it is counted under."""

    stage: str
    chat: tuple[Message, ...]
    decoding: Decoding


def chat(prompt: CallPrompt, values: Mapping[str, str]) -> tuple[Message, Message]:
    """System and user message of one call."""
    return Message(role="system", content=prompt.system), Message(role="user", content=fill(prompt.user, values).strip())


@dataclass(frozen=True)
class Prepared:
    """A call with its input ids and its decoding. too_long: it is refused because there is no room for its input."""

    call: Call
    ids: tuple[int, ...]
    decoding: Decoding
    too_long: bool = False


# As in `Decoding`.
Seeds = Literal["input"] | UnsetType
# Outputs of calls that were not made before, in order.
Source = Callable[[Sequence[Prepared]], list[Output]]


class Caller:
    """Makes calls in waves: all that is asked at once goes to the source at once, each distinct call a single time.

    seeds: what the decodings of calls that sample state; a replay says what the recorded ones do.
    """

    def __init__(self, settings: Settings, tokenizer: Tokenizer, source: Source, seeds: Seeds = "input") -> None:
        self.transcript = Transcript(settings)
        self._tokenizer = tokenizer
        self._source = source
        self._seeds = seeds
        self._answers: dict[str, Prediction] = {}
        # What `fits` and `refusal` made of calls of the next wave.
        self._prepared: dict[Ask, Prepared] = {}

    @property
    def settings(self) -> Settings:
        """The frozen settings of the model that is asked."""
        return self.transcript.settings

    def room(self, decoding: Decoding) -> int:
        """Input tokens that a call may have: the smaller of the reader's cap and the window less the output cap."""
        settings = self.settings
        window = settings.window - decoding.output_cap if settings.window > 0 else settings.reader.input_cap
        return min(settings.reader.input_cap, window)

    def special_in(self, text: str) -> str | None:
        """The first special token of the model that a text spells out: no call can carry it. None if there is none."""
        return self._tokenizer.special_in(text)

    def count(self, text: str) -> int:
        """Tokens of a text on its own."""
        return self._tokenizer.count(text)

    def fits(self, ask: Ask) -> bool:
        """Whether there is room for a call's input; True of one that cannot be made for another reason."""
        return not self._tried(ask).too_long

    def refusal(self, ask: Ask) -> str | None:
        """Why a call cannot be made, with the sizes where its input is too long; None if it can."""
        return self._tried(ask).call.refused

    def ask(self, asks: Sequence[Ask]) -> list[Prediction]:
        """The answers to one wave, in order. A call that cannot be made is a failed answer that says why, never an error."""
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
        # One that is too long is a try, and another will be made.
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
    """A source that knows the answers of a transcript and no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.transcript = read_transcript(folder)

    @property
    def seeds(self) -> Seeds:
        """What the decodings of recorded calls that sampled state."""
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
    """Why an answer ended, where its ids tell: at a stop id or the output cap. None for bytes, failures and all else."""
    ids, settings = prediction.output_ids, transcript.settings
    if settings.transport is not UNSET or prediction.finish_reason == "error":
        return None
    if ids and ids[-1] in settings.stop_ids:
        return "stop"
    return "length" if len(ids) == transcript.decodings[call.decoding].output_cap else None


def check_transcript(recorded: Recorded, again: Transcript) -> int:
    """Compare the transcript of an algorithm that ran again on recorded answers; how many calls it has.

    InputLinkError for the first call that comes out otherwise, OutputLinkError for the first answer.
    """
    folder, stored = recorded.folder, recorded.transcript
    stored_calls = zip(stored.calls, stored.ids, stored.predictions, strict=True)
    made = zip(again.calls, again.ids, again.predictions, strict=True)
    # Their numbers are compared below, when all that both have are equal.
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
