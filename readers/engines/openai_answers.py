"""The parts of a server's answers that are read, and their conversion to outputs. Other fields are ignored."""

from typing import Any, Literal

import msgspec

from offline.errors import EngineError
from readers.models.served import encode_text
from readers.records import Output, Settings


class Usage(msgspec.Struct):
    """Cost of a request, counted by the server."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatMessage(msgspec.Struct):
    """A message of /chat/completions."""

    content: str | None = None


class Logprobs(msgspec.Struct):
    """For each new token, log probabilities by token."""

    top_logprobs: list[dict[str, float]]


class Choice(msgspec.Struct):
    """One answer: token ids (by `return_token_ids`) from /completions, or a message from /chat/completions."""

    finish_reason: str | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    message: ChatMessage | None = None
    logprobs: Logprobs | None = None


class Answer(msgspec.Struct):
    """The answer to one request."""

    choices: tuple[Choice, ...]
    model: str | None = None
    system_fingerprint: str | None = None
    usage: Usage | None = None

    def reported(self) -> dict[str, str]:
        """What the server reports about this response besides its content."""
        usage = self.usage or Usage()
        said = {
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        return {name: str(value) for name, value in said.items() if value is not None}


class Listed(msgspec.Struct):
    """A model in the list of /models."""

    id: str
    max_model_len: int | None = None
    root: Any = None  # in vLLM a path on its machine, never stored
    parent: Any = None  # of a LoRA adapter


class Models(msgspec.Struct):
    """The list of /models."""

    data: tuple[Listed, ...]


class Version(msgspec.Struct):
    """vLLM's /version."""

    version: str


def token_output(choice: Choice, asked: tuple[int, ...], settings: Settings, cap: int) -> Output:
    """The output of a choice with token ids; EngineError if anything but a stop id or the cap ended it."""
    ids = choice.token_ids
    if ids is None:
        raise EngineError(
            "the server gave no token ids though return_token_ids asked for them; it needs vLLM's extensions, or else a reader "
            "of messages, model: {served: NAME}"
        )
    if choice.prompt_token_ids not in (None, asked):
        raise EngineError("the server read other input ids than the ones that it was sent")
    if ids and ids[-1] in settings.stop_ids:
        return Output(ids=ids, finish_reason="stop")
    if len(ids) < cap:
        raise EngineError(
            f"the server ended an answer after {len(ids)} of {cap} tokens and without a stop id; serve the model with "
            "--generation-config vllm"
        )
    return Output(ids=ids, finish_reason="length")


def text_output(choice: Choice) -> Output:
    """The output of a choice with a message, as bytes; a withheld or non-text answer is a failed generation.

    An exception would recur at every resume, since the server is greedy, and keep the reader from its seal.
    """
    if choice.message is None:
        raise EngineError("the server gave a choice without a message")
    if choice.finish_reason == "content_filter":
        return Output(ids=(), finish_reason="error", error="the server's content filter withheld the answer")
    if choice.finish_reason not in ("stop", "length"):
        error = f"the server ended the answer for another reason than stop or length: {choice.finish_reason or 'none given'}"
        return Output(ids=(), finish_reason="error", error=error)
    reason: Literal["stop", "length"] = "stop" if choice.finish_reason == "stop" else "length"
    return Output(ids=encode_text(choice.message.content or ""), finish_reason=reason)
