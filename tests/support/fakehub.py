"""A small server that speaks the model hub's routes, so that the hub's real client can be tested without a network."""

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

# Files that the hub keeps in large storage and states a sha256 of.
LARGE = (".safetensors", ".bin", "tokenizer.json")


def commit_of(text: str) -> str:
    """Forty digits that look like a commit."""
    return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Repository:
    """Commits by id, each with its files, and what the branches and tags point to.

    refusal: the status and error code that every file's download is answered with, None if all may have them.
    """

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    gated: str | bool = False
    card: dict[str, str] = field(default_factory=dict)
    refusal: tuple[int, str] | None = None

    def commit(self, revision: str) -> str | None:
        """The commit that a revision stands for."""
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class FakeHub:
    """The server and its repositories; `downloads` lists the files that were sent."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.downloads: list[str] = []
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """What a process needs to take this server for the hub: nothing of this machine's own settings, no proxy."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) and not name.lower().endswith("_proxy")
        }
        return {**kept, "HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}


class _Handler(BaseHTTPRequestHandler):
    server_hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        api = path.startswith("api/models/")
        owner, name, verb, *rest = [*path.removeprefix("api/models/").split("/"), "", "", ""]
        repository = self.server_hub.repositories.get(f"{owner}/{name}")
        if repository is None:
            return self._refuse(404, "RepoNotFound")
        commit = repository.commit(rest[0])
        if commit is None:
            return self._refuse(404, "RevisionNotFound")
        files = repository.commits[commit]
        if api:
            describe = {"revision": _info, "tree": _tree}[verb]
            return self._send(json.dumps(describe(f"{owner}/{name}", repository, commit)).encode(), {})
        if repository.refusal is not None:
            return self._refuse(*repository.refusal)
        wanted = "/".join(rest[1:]).strip("/")
        if wanted not in files:
            return self._refuse(404, "EntryNotFound")
        if self.command == "GET":
            self.server_hub.downloads.append(wanted)
        return self._send(files[wanted], {"X-Repo-Commit": commit, "ETag": f'"{_digest(wanted, files[wanted])}"'})

    def _refuse(self, status: int, code: str) -> None:
        self._send(b"{}", {"X-Error-Code": code} if code else {}, status)

    def _send(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _digest(name: str, content: bytes) -> str:
    """What the hub calls a file by: its sha256 in large storage, else its git object id."""
    if name.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _info(name: str, repository: Repository, commit: str) -> dict[str, Any]:
    siblings = []
    for file, content in repository.commits[commit].items():
        large = {"sha256": _digest(file, content), "size": len(content), "pointerSize": 130}
        siblings.append({"rfilename": file, "size": len(content), "blobId": "0" * 40})
        if file.endswith(LARGE):
            siblings[-1]["lfs"] = large
    card = {"cardData": repository.card} if repository.card else {}
    return {"_id": "1", "id": name, "sha": commit, "gated": repository.gated, "tags": [], "siblings": siblings, **card}


def _tree(name: str, repository: Repository, commit: str) -> list[dict[str, Any]]:
    entries = []
    for file, content in repository.commits[commit].items():
        entries.append({"type": "file", "path": file, "size": len(content), "oid": "0" * 40})
        if file.endswith(LARGE):
            entries[-1]["lfs"] = {"oid": _digest(file, content), "size": len(content), "pointerSize": 130}
    return entries
