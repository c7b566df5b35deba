"""A small HTTP server that answers as a test tells it to, and notes what it was asked."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any


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


@dataclass
class Double:
    """The server. `answer` gets a POST and how many came before it; what is not under `pages` is not found."""

    answer: Callable[[Asked, int], Reply]
    pages: dict[str, Any] = field(default_factory=lambda: {"/v1/models": {"data": [{"id": "m", "root": "/secret/place"}]}})
    asked: list[Asked] = field(default_factory=list)
    together: int = 0
    busiest: int = 0
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

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


class _Server(ThreadingTCPServer):
    # Not http.server's own, which looks up the host's name.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A reader process that was killed hangs up; anything else is a fault of the test.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(double: Double) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave together; apart, the second waits for the first one's receipt.
        wbufsize = -1

        def _send(self, reply: Reply) -> None:
            if reply.body is None:
                self.close_connection = True
                return
            data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            page = double.pages.get(self.path)
            missing = Reply(404, {"detail": "Not Found"})
            self._send(missing if page is None else page if isinstance(page, Reply) else Reply(200, page))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._send(
                double.take(Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body or b"{}")))
            )

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


@contextmanager
def serve(answer: Callable[[Asked, int], Reply], port: int = 0, **pages: Any) -> Iterator[Double]:
    """A running double on a port of its own, or on a given one."""
    double = Double(answer)
    double.pages.update(pages)
    server = _Server(("127.0.0.1", port), _handler(double))
    double.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()


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
