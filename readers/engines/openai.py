"""The OpenAI-compatible engine: a model behind a server, such as `vllm serve` or an API, asked with the official client.

A reader with a tokenizer sends and receives token ids at /completions, which needs vLLM's extensions. A reader whose model is
only `served` sends chat messages to /chat/completions; its frozen ids are the bytes of those messages
(readers/models/served.py). Every request states all parameters of greedy decoding, whatever the server's defaults.
"""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from offline.canonical import Record
from offline.errors import ConfigurationError, EngineError
from readers.engines import EngineStart, check_remote, engine_options, seed_of
from readers.engines.openai_answers import Answer, Listed, Models, Version, text_output, token_output
from readers.engines.openai_server import RESET, SAID, RefusedError, Server, check_url
from readers.models.served import decode_messages
from readers.records import Decoding, Output

_TOKEN_ID = "token_id:"  # prefix of a token named by its id, in vLLM's answers
# OpenAI's codes for requests that fail whatever the input: the configuration is wrong.
_MISCONFIGURED = ("unknown_parameter", "unsupported_parameter", "unsupported_value", "invalid_type", "invalid_json_schema")


class OpenAIOptions(Record, frozen=True):
    """How a server is asked."""

    model: str = ""  # name to ask for; default: the served model's own
    base_url: str = ""  # default: the variable OPENAI_BASE_URL, so that a server may move
    api_key_env: str = "OPENAI_API_KEY"  # variable that holds the key; a server on this machine needs none
    server: Literal["vllm", "openai"] = "vllm"  # vLLM's sampling parameters, or OpenAI's `max_completion_tokens`
    concurrency: int = 8  # requests in flight, of one batch
    retries: int = 5  # after transport faults, with growing pauses
    timeout_seconds: int = 600
    seed: int = 0
    thinking_switch: bool = False  # pass `thinking` to the chat template (messages to vLLM only)

    def __post_init__(self) -> None:
        if self.base_url:
            check_url(self.base_url)
        if not re.fullmatch("[A-Z_][A-Z0-9_]*", self.api_key_env):
            raise ValueError("api_key_env is the name of an environment variable, such as OPENAI_API_KEY, never the key itself")
        if self.concurrency < 1 or self.timeout_seconds < 1 or self.retries < 0:
            raise ValueError("concurrency and timeout_seconds must be positive, retries 0 or more")
        if self.thinking_switch and self.server != "vllm":
            raise ValueError("thinking_switch needs server: vllm")


class OpenAIEngine:
    """Asks one server, several requests at once."""

    forget: Callable[[], None]  # set only if the server can empty its prefix cache

    def __init__(self, start: EngineStart) -> None:
        self._settings = start.settings
        self._reader = start.settings.reader
        self._options = engine_options(self._reader, OpenAIOptions)
        served = self._reader.model.served
        self._takes_ids = served is UNSET
        self._name = self._options.model or (served if served is not UNSET else "")
        self._check_options()
        self._server = Server(
            base_url=self._options.base_url,
            api_key_env=self._options.api_key_env,
            retries=self._options.retries,
            timeout_seconds=self._options.timeout_seconds,
        )
        self._listed = self._find_model()
        self._check_window(start.longest)
        vllm = self._options.server == "vllm"
        version = self._server.offered("/version", Version) if vllm else None
        self._version = f"vllm {self._server.clean(version.version)}" if version else ""
        # Offered in vLLM's development mode. A GET of this path changes nothing.
        if vllm and self._server.takes_only_post(RESET):
            self.forget = self._server.reset_prefix_cache

    def _check_options(self) -> None:
        check_remote(self._reader)
        name, options = self._reader.name, self._options
        if self._takes_ids and not options.model:
            raise ConfigurationError(
                f"reader {name!r}: options say no `model`; give the name that the server lists the model by"
            )
        if not self._takes_ids and self._name != self._reader.model.served:
            raise ConfigurationError(
                f"reader {name!r}: options ask for the model {options.model!r}, but `served` names another; leave one out"
            )
        if self._takes_ids and options.server != "vllm":
            raise ConfigurationError(
                f"reader {name!r}: token ids need server: vllm; a server without its extensions reads messages: "
                "model: {served: NAME}"
            )
        if not self._takes_ids and self._reader.thinking and not options.thinking_switch:
            raise ConfigurationError(
                f"reader {name!r}: thinking: true reaches a served model only with options: {{thinking_switch: true}}"
            )

    def _find_model(self) -> Listed | None:
        """The model as listed by the server; None if it is not, ConfigurationError if vLLM lists only others."""
        try:
            models = self._server.get("/models", Models).data
        except RefusedError:
            return None
        found = next((model for model in models if model.id == self._name), None)
        if found is None and self._options.server == "vllm":
            names = ", ".join(self._server.clean(model.id) for model in models[:5])
            raise ConfigurationError(
                f"reader {self._reader.name!r}: the server lists no model {self._name!r} but {names or 'none'}; name "
                "one of those"
            )
        return found

    def _check_window(self, longest: int) -> None:
        window = self._listed.max_model_len if self._listed else None
        if self._takes_ids and window is not None and longest + self._reader.output_cap > window:
            raise ConfigurationError(
                f"reader {self._reader.name!r}: the longest input has {longest} tokens and answers may have "
                f"{self._reader.output_cap}, but the server's window is {window}, and it would cut answers short; serve the "
                f"model with a larger --max-model-len, or start another run with input_cap: {window - self._reader.output_cap}"
            )

    def environment(self) -> dict[str, str]:
        """Client, server and model as far as reported; no address. The weights cannot be verified here."""
        found = self._listed
        return {
            "engine": "openai",
            "openai": self._server.client_version,
            "input": "token ids" if self._takes_ids else "messages",
            "model": self._server.clean(self._name),
            "weights": f"not verified, the server reports {self._server.clean(found.id)}" if found else "not verified",
            **({"server": self._version} if self._version else {}),
            **({"max_model_len": str(found.max_model_len)} if found and found.max_model_len is not None else {}),
        }

    def served_by(self) -> dict[str, str] | None:
        """The serving process and the origin of its model; None if the server reports less than vLLM does."""
        found = self._listed
        started = self._server.started() if self._version and found is not None and found.root else None
        if found is None or started is None:
            return None
        said = {"root": str(found.root), "parent": str(found.parent), "started": started, "version": self._version}
        return {"address": self._server.address, "model": self._name, **said}

    def generate(self, batch: Sequence[Sequence[int]]) -> list[Output]:
        """One output per input, in order. The first exception cancels what has not begun.

        A refused input is a failed generation; ConfigurationError if several inputs are all refused alike.
        """
        return self._outputs(batch, self._reader.output_cap, [{}] * len(batch))

    def complete(self, batch: Sequence[Sequence[int]], decoding: Decoding) -> list[Output]:
        """The same with this decoding. A server may write white space into constrained JSON."""
        held = {} if decoding.schema is None else self._held_to(json.loads(decoding.schema))
        return self._outputs(batch, decoding.output_cap, [_sampled(decoding, ids) | held for ids in batch])

    def _held_to(self, schema: Any) -> dict[str, Any]:
        """Fields that constrain an answer to a schema: vLLM's with token ids, OpenAI's with messages."""
        if self._takes_ids:
            return {"structured_outputs": {"json": schema}}
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}}

    def _outputs(self, batch: Sequence[Sequence[int]], cap: int, more: Sequence[dict[str, Any]]) -> list[Output]:
        """One output per input. more: additional fields of each request."""
        answers = self._generate_all(batch, cap, more)
        self._check_refusals(answers)
        return [_failed(answer) if isinstance(answer, RefusedError) else answer for answer in answers]

    def _generate_all(
        self, batch: Sequence[Sequence[int]], cap: int, more: Sequence[dict[str, Any]]
    ) -> list[Output | RefusedError]:
        pool = ThreadPoolExecutor(max_workers=self._options.concurrency)
        try:
            futures = [pool.submit(self._generate, tuple(ids), cap, each) for ids, each in zip(batch, more, strict=True)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future in done and (error := future.exception()) is not None:
                    raise error
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _generate(self, ids: tuple[int, ...], cap: int, more: dict[str, Any]) -> Output | RefusedError:
        """The output, or the refusal of this input; ConfigurationError if the whole request was refused."""
        try:
            answer = self._ask(ids, cap, **more)
        except RefusedError as refused:
            self._check_refused(refused)
            return refused
        (choice,) = answer.choices
        output = token_output(choice, ids, self._settings, cap) if self._takes_ids else text_output(choice)
        reported = {name: self._server.clean(value) for name, value in answer.reported().items()}
        error = None if output.error is None else self._server.clean(output.error)[:SAID]
        return msgspec.structs.replace(output, reported=reported, error=error)

    def _check_refusals(self, answers: Sequence[Output | RefusedError]) -> None:
        """ConfigurationError if all of several inputs were refused in the same words: then the inputs are not the cause.

        vLLM gives no code for the reason, but its words for an input that is too long contain the token count.
        """
        said = [str(answer) for answer in answers if isinstance(answer, RefusedError)]
        if len(said) == len(answers) > 1 and len(set(said)) == 1:
            raise ConfigurationError(
                f"reader {self._reader.name!r}: all {len(said)} requests of a batch were refused alike: {said[0]}; check "
                "`options`, whether the server's chat template takes a system message, and `input_cap`"
            )

    def _check_refused(self, refused: RefusedError) -> None:
        """ConfigurationError if a request was refused whatever its input."""
        if refused.status in (400, 413, 422) and refused.code not in _MISCONFIGURED:
            return
        cure = (
            "check `base_url`, which mostly ends in /v1, and the model's name" if refused.status == 404 else "check `options`"
        )
        raise ConfigurationError(
            f"reader {self._reader.name!r}: the server refused a request with status {refused.status}: {refused}; {cure}"
        )

    def _ask(self, ids: tuple[int, ...], cap: int, **more: Any) -> Answer:
        path = "/completions" if self._takes_ids else "/chat/completions"
        body = self._common() | (self._token_body(ids, cap) if self._takes_ids else self._chat_body(ids, cap)) | more
        answer = self._server.post(path, body, Answer)
        if len(answer.choices) != 1:
            raise EngineError(f"the server gave {len(answer.choices)} choices where one was asked for")
        return answer

    def _common(self) -> dict[str, Any]:
        """Greedy parameters that all servers know, and those of vLLM that a generation_config may set."""
        plain = {
            "model": self._name,
            "n": 1,
            "temperature": 0,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "seed": self._options.seed,
        }
        own = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "min_tokens": 0}
        return plain | (own if self._options.server == "vllm" else {})

    def _token_body(self, ids: tuple[int, ...], cap: int) -> dict[str, Any]:
        return {
            "prompt": list(ids),
            "max_tokens": cap,
            # Only the frozen stop ids end an answer, not the server's own.
            "stop_token_ids": list(self._settings.stop_ids),
            "ignore_eos": True,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "return_token_ids": True,
        }

    def _chat_body(self, ids: tuple[int, ...], cap: int) -> dict[str, Any]:
        chat = [{"role": message.role, "content": message.content} for message in decode_messages(ids)]
        cap_field = "max_tokens" if self._options.server == "vllm" else "max_completion_tokens"
        switch = {"chat_template_kwargs": {"enable_thinking": self._reader.thinking}}
        return {"messages": chat, cap_field: cap} | (switch if self._options.thinking_switch else {})

    def logprobs(self, ids: Sequence[int], tokens: Sequence[int]) -> list[float] | None:
        """Natural log probabilities of these tokens after these ids; None if the server does not report them."""
        if not self._takes_ids:
            return None
        # 20 is vLLM's default maximum; older versions ignore logprob_token_ids.
        more = {"logprobs": 20, "logprob_token_ids": list(tokens), "return_tokens_as_token_ids": True}
        try:
            logprobs = self._ask(tuple(ids), 1, **more).choices[0].logprobs
        except RefusedError:
            return None
        found = logprobs.top_logprobs[0] if logprobs and logprobs.top_logprobs else {}
        values = [found.get(f"{_TOKEN_ID}{token}") for token in tokens]
        return None if None in values else [value for value in values if value is not None]


def _sampled(decoding: Decoding, ids: Sequence[int]) -> dict[str, Any]:
    """Request fields for sampling; none if the decoding is greedy."""
    return {"temperature": float(decoding.temperature), "seed": seed_of(decoding, ids)} if decoding.samples else {}


def _failed(refused: RefusedError) -> Output:
    return Output(ids=(), finish_reason="error", error=f"the server refused the request: {refused}")
