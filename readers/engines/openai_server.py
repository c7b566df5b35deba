"""A server with OpenAI's HTTP interface, asked with the official client: addresses, the key, and errors.

Every external text passes `Server.clean`, which keeps the key out of files, messages and tracebacks.
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

SAID = 500  # characters kept of a server's error message
# Process start in seconds since 1970, as named by Prometheus' client libraries.
_STARTED = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)
RESET = "/reset_prefix_cache"  # beside /v1, in vLLM's development mode
# Seconds before each attempt: blocks of a request that has just ended are soon free.
_PAUSES = (0, 0.1, 0.2, 0.4, 0.8)


class RefusedError(Exception):
    """A 4xx status that a retry does not change. code: the server's name for the reason."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def check_url(url: str) -> None:
    """ValueError, which never quotes the URL, unless it is a plain http(s) address without credentials."""
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
    """The key in an environment variable, "" if a loopback server needs none; ConfigurationError otherwise."""
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
    """One server. Paths lie below the base URL; the client retries after transport faults only."""

    def __init__(self, *, base_url: str, api_key_env: str, retries: int, timeout_seconds: int) -> None:
        with needs("openai", "the openai engine"):
            import openai
        # The client's own defaults: its variable, else OpenAI's address.
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
            # No proxy between a machine and itself.
            http_client=openai.DefaultHttpxClient(trust_env=False) if is_loopback(url) else None,
        )
        self.client_version: str = openai.__version__

    def clean(self, text: str) -> str:
        """An external text without the key, and with `?` for what UTF-8 cannot encode."""
        return (text.replace(self._key, "[key]") if self._key else text).encode(errors="replace").decode()

    def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The server's answer to a POST."""
        return self._read(path, self._call("post", path, body=body), kind)

    def get(self, path: str, kind: type[Kind]) -> Kind:
        """The server's answer to a GET."""
        return self._read(path, self._call("get", path), kind)

    def offered(self, path: str, kind: type[Kind]) -> Kind | None:
        """The answer to a GET of a path beside /v1; None if nothing of that kind is there."""
        try:
            text = self._call("get", self._beside(path))
        except (RefusedError, ConfigurationError):
            return None
        found = _parsed(text, kind)
        return None if isinstance(found, str) else found

    @property
    def address(self) -> str:
        """The base URL, which carries no credentials."""
        return self._url

    def started(self) -> str | None:
        """Start of the server's process, from its /metrics (vLLM reports it); None if not reported."""
        try:
            found = _STARTED.search(self._call("get", self._beside("/metrics")))
        except (RefusedError, ConfigurationError, EngineError):
            return None
        return found[1] if found else None

    def takes_only_post(self, path: str) -> bool:
        """Whether a path beside /v1 exists, but not for GET."""
        try:
            self._call("get", self._beside(path))
        except RefusedError as refused:
            return refused.status == 405
        except ConfigurationError:
            pass
        return False

    def reset_prefix_cache(self) -> None:
        """Empty vLLM's prefix cache; EngineError if other requests keep holding blocks of it."""
        for pause in _PAUSES:
            time.sleep(pause)
            if self._try_reset():
                return
        raise EngineError(
            f"{self._url}: the server could not empty its prefix cache; other requests hold it, so let nobody else use the "
            "server while this reader reads (data_parallel: 1), or serve without VLLM_SERVER_DEV_MODE"
        )

    def _try_reset(self) -> bool:
        """False if the server reports failure, which it does with status 200."""
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
        # Raised outside the handlers, so that a traceback shows no chained exception.
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
    """An answer as one of our records, or a text that says what is wrong with it."""
    try:
        return msgspec.convert(json.loads(text), kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        # These messages name a place in the answer and quote none of its text.
        return str(error)


def _cause(error: BaseException) -> str:
    """Why a connection failed, in the operating system's words: the HTTP library's may quote headers."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.strerror:
            return f"could not be reached: {at.strerror}"
        at = at.__cause__ or at.__context__
    return f"could not be reached or broke off: {type(error.__cause__ or error).__name__}"
