"""A server that speaks OpenAI's HTTP interface, asked with the official client: addresses, the key, and what went wrong.

Every text that comes from outside passes `Server.clean`, so that the key stays out of files, messages and tracebacks.
"""

import ipaddress
import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from offline.errors import ConfigurationError, EngineError, needs

Kind = TypeVar("Kind")

# Characters that are kept of what a server says where something went wrong.
SAID = 500
# The start of a process, in seconds since 1970, as Prometheus' own client libraries name it.
_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
# Where vLLM in its development mode empties its prefix cache, beside /v1.
RESET = "/reset_prefix_cache"
# Seconds before each time that it is asked to: blocks of a request that has just ended are soon free.
_PAUSES = (0, 0.1, 0.2, 0.4, 0.8)


class RefusedError(Exception):
    """The server answered with a 4xx status that trying again does not change. `code`: its own name for the reason."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def check_url(url: str) -> None:
    """ValueError, which never holds the URL, unless it is a plain http address without credentials."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    if not plain:
        raise ValueError("the base URL is no http or https address; it looks like http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            "the base URL carries credentials or a query, which the run would keep; give the key in an environment variable"
        )


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(variable: str, url: str) -> str:
    """The key in an environment variable, "" for a loopback server that needs none; ConfigurationError otherwise."""
    key = os.environ.get(variable, "").strip()
    if not key and not is_loopback(url):
        raise ConfigurationError(
            f"the environment variable {variable} holds no key; set it (to any word, if the server wants none), or name "
            "another one in options: {api_key_env: NAME}"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigurationError(f"the key in {variable} holds white space or a character that is no ASCII; set it again")
    return key


class Server:
    """One server. What it is asked, the client asks again on transport faults alone; paths lie below the base URL."""

    def __init__(self, *, base_url: str, api_key_env: str, retries: int, timeout_seconds: int) -> None:
        with needs("openai", "the openai engine"):
            import openai
        # What the client itself would take: its variable, else OpenAI's own address.
        url = base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or "https://api.openai.com/v1"
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigurationError(f"{'base_url' if base_url else 'OPENAI_BASE_URL'}: {error}") from None
        self._key = read_key(api_key_env, url)
        self._variable, self._url, self._retries = api_key_env, url.rstrip("/"), retries
        self._openai: Any = openai
        self._client: Any = openai.OpenAI(
            base_url=url,
            api_key=self._key or "none",
            max_retries=retries,
            timeout=openai.Timeout(timeout_seconds, connect=min(10, timeout_seconds)),
            # A proxy has no business between a machine and itself.
            http_client=openai.DefaultHttpxClient(trust_env=False) if is_loopback(url) else None,
        )
        self.client_version: str = openai.__version__

    def clean(self, text: str) -> str:
        """A text from outside without the key, and with a question mark for what UTF-8 cannot hold."""
        return (text.replace(self._key, "[key]") if self._key else text).encode(errors="replace").decode()

    def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """What the server answers to a POST."""
        return self._read(path, self._call("post", path, body=body), kind)

    def get(self, path: str, kind: type[Kind]) -> Kind:
        """What the server answers to a GET."""
        return self._read(path, self._call("get", path), kind)

    def offered(self, path: str, kind: type[Kind]) -> Kind | None:
        """What the server answers to a GET of a path beside /v1; None if it offers nothing of that kind there."""
        try:
            text = self._call("get", self._beside(path))
        except (RefusedError, ConfigurationError):
            return None
        found = _parsed(text, kind)
        return None if isinstance(found, str) else found

    @property
    def address(self) -> str:
        """Its base URL, which carries no credentials."""
        return self._url

    def started(self) -> str | None:
        """When the server's process began, as its /metrics say (vLLM's do); None if they do not."""
        try:
            found = _STARTED.search(self._call("get", self._beside("/metrics")))
        except (RefusedError, ConfigurationError, EngineError):
            return None
        return found[1] if found else None

    def takes_only_post(self, path: str) -> bool:
        """Whether a path beside /v1 is there, but not for GET."""
        try:
            self._call("get", self._beside(path))
        except RefusedError as refused:
            return refused.status == 405
        except ConfigurationError:
            pass
        return False

    def reset_prefix_cache(self) -> None:
        """Empty vLLM's prefix cache; EngineError if it cannot be emptied, since other requests hold blocks of it."""
        for pause in _PAUSES:
            time.sleep(pause)
            if self._try_reset():
                return
        raise EngineError(
            f"{self._url}: the server could not empty its prefix cache; other requests hold it, so let nobody else use the "
            "server while this reader reads (data_parallel: 1), or serve without VLLM_SERVER_DEV_MODE"
        )

    def _try_reset(self) -> bool:
        """Whether the server did not say that it failed: it answers with status 200 either way."""
        try:
            answer = json.loads(self._call("post", self._beside(RESET)))
        except RefusedError as refused:
            raise EngineError(
                f"{self._url} refused to empty its prefix cache with status {refused.status}: {refused}"
            ) from None
        except (ValueError, RecursionError):
            return True
        return not isinstance(answer, dict) or answer.get("success", True) is True

    def _beside(self, path: str) -> str:
        return self._url.removesuffix("/v1") + path

    def _read(self, path: str, text: str, kind: type[Kind]) -> Kind:
        found = _parsed(text, kind)
        if isinstance(found, str):
            raise EngineError(f"{self._url} answered {path} in another shape than documented: {found}")
        return found

    def _call(self, method: str, path: str, **arguments: Any) -> str:
        openai = self._openai
        try:
            text: str = getattr(self._client, method)(path, cast_to=str, **arguments)
            return text
        except openai.APIStatusError as error:
            failure = self._status(error)
        except openai.APIConnectionError as error:
            timeout = isinstance(error, openai.APITimeoutError)
            failure = EngineError(f"{self._url} {'did not answer in time' if timeout else _cause(error)}{self._tried()}")
        except Exception as error:  # whatever else a client raises may quote what it sent
            failure = EngineError(f"the client failed: {type(error).__name__}: {self.clean(str(error))[:SAID]}")
        # Raised out here, the exception carries no other one whose text or frames a traceback would show.
        raise failure

    def _tried(self) -> str:
        return f", {self._retries} retries included" if self._retries else ""

    def _status(self, error: Any) -> Exception:
        status: int = error.status_code
        body = error.body if isinstance(error.body, dict) else {}
        said = body["message"] if isinstance(body.get("message"), str) else str(error.body or "nothing more")
        said, code = self.clean(said)[:SAID], str(body.get("code"))
        if status == 401:
            return ConfigurationError(f"{self._url} does not accept the key in {self._variable}: {said}; set the right one")
        if status == 403:
            return ConfigurationError(f"the key in {self._variable} may not do this at {self._url}: {said}; use another one")
        if status in (408, 409, 429) or not 400 <= status < 500:
            return EngineError(f"{self._url} answered with status {status}{self._tried()}: {said}")
        return RefusedError(status, said, code)


def _parsed(text: str, kind: type[Kind]) -> Kind | str:
    """An answer as one of our own records, none of which is a text, or what is wrong with it."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        # A decoder's or validator's words name a place in the answer, none of its text.
        return str(error)


def _cause(error: BaseException) -> str:
    """Why a connection failed, in the operating system's words: those of the HTTP library may quote headers."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            return f"could not be reached: {at.strerror}"
        at = at.__cause__ or at.__context__
    return f"could not be reached or broke off: {type(error.__cause__ or error).__name__}"
