"""A small HTTP server (pytest-httpserver) that answers as a test tells it to, and notes what it was asked."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler

# A body does not wait until its head was received.
WSGIRequestHandler.disable_nagle_algorithm = True


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A status and a body: JSON of anything, bytes as they are, None to hang up without a word."""

    status: int
    body: Any


class Double(HTTPServer):
    """The server. `answer` gets a POST and how many came before it; what is not under `pages` is not found."""

    def __init__(self, answer: Callable[[Asked, int], Reply], port: int, pages: dict[str, Any]) -> None:
        super().__init__(host="127.0.0.1", port=port, threaded=True)
        self.answer = answer
        self.pages: dict[str, Any] = {"/v1/models": {"data": [{"id": "m", "root": "/secret/place"}]}, **pages}
        self.asked: list[Asked] = []
        self.together = self.busiest = 0
        self.lock = threading.Lock()
        self.expect_request(re.compile("")).respond_with_handler(self._respond)

    @property
    def url(self) -> str:
        """Its base URL."""
        return self.url_for("/v1")

    def thread_target(self) -> None:
        """As the library's, but it stops without delay."""
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.02)

    def take(self, asked: Asked) -> Reply:
        """Note a request and answer it."""
        with self.lock:
            before = len(self.asked)
            self.asked.append(asked)
            self.together += 1
            self.busiest = max(self.busiest, self.together)
        try:
            return self.answer(asked, before)
        finally:
            with self.lock:
                self.together -= 1

    def _respond(self, request: Request) -> Response:
        if request.method == "GET":
            page = self.pages.get(request.path, Reply(404, {"detail": "Not Found"}))
            reply = page if isinstance(page, Reply) else Reply(200, page)
        else:
            headers = {name.lower(): value for name, value in request.headers.items()}
            reply = self.take(Asked(request.path, headers, json.loads(request.get_data() or b"{}")))
        if reply.body is None:
            request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body)
        return Response(data, reply.status, content_type="application/json")


@contextmanager
def serve(answer: Callable[[Asked, int], Reply], port: int = 0, **pages: Any) -> Iterator[Double]:
    """A running double on a port of its own, or on a given one."""
    with Double(answer, port, pages) as double:
        yield double


def said(text: Any, finish_reason: str | None = "stop", **more: Any) -> Reply:
    """A chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return Reply(200, {"id": "x", "model": "m", "choices": [choice], "usage": usage, **more})


def ids(tokens: list[int] | None, finish_reason: str = "stop", **more: Any) -> Reply:
    """A completion answer with token ids, as vLLM gives it."""
    choice = {"index": 0, "text": "", "token_ids": tokens, "finish_reason": finish_reason, **more}
    return Reply(200, {"id": "x", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def later(reply: Reply, seconds: float) -> Reply:
    """The same answer, a while later."""
    time.sleep(seconds)
    return reply
