"""A server on this machine that speaks as much of Hugging Face's interface as a download needs, and fails."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

COMMIT = "c0ffee" + "0" * 34


class Hub(ThreadingHTTPServer):
    """Files by `owner/repository/name`; what was asked for, and how the next answers go wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}  # named instead of the right ones
        self.commits: dict[str, str] = {}  # likewise
        self.ranges: list[str] = []  # of each request for content
        self.cuts: list[int] = []  # after how many bytes the next answers end

    @property
    def address(self) -> str:
        """As HF_ENDPOINT names it."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, place: str, content: bytes) -> str:
        """Serve a file; its digest."""
        self.files[place] = content
        return hashlib.sha256(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        """What the server knows of a file; its content is on another host."""
        if (place := self.place) not in self.server.files:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})
            return
        content = self.server.files[place]
        digest = self.server.digests.get(place, hashlib.sha256(content).hexdigest())
        where = f"http://localhost:{self.server.server_address[1]}/cdn/{place}"
        commit = self.server.commits.get(place, COMMIT)
        about = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content)), "X-Repo-Commit": commit}
        self.answer(302, about | {"Location": where})

    def do_GET(self) -> None:
        if listed := re.fullmatch(r"/api/models/([^/]+/[^/?]+)(?:\?.*)?", self.path):
            names = [
                name.removeprefix(f"{listed[1]}/") for name in self.server.files if name.startswith(listed[1])
            ]
            record = {"id": listed[1], "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            body = json.dumps(record).encode()
            self.answer(200 if names else 404, {"Content-Type": "application/json"}, body)
        elif self.path.startswith("/cdn/"):
            self.send_content(self.server.files[self.path.removeprefix("/cdn/")])
        else:
            self.do_HEAD()

    def send_content(self, content: bytes) -> None:
        asked = self.headers.get("Range", "")
        self.server.ranges.append(asked)
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        end = self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.answer(206 if begin else 200, headers | {"Content-Length": str(len(content) - begin)})
        self.wfile.write(content[begin:end])
        self.wfile.flush()
        self.close_connection = end < len(content)

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    @property
    def place(self) -> str:
        """`/owner/repository/resolve/main/name` -> `owner/repository/name`."""
        return re.sub(r"/resolve/[^/]+/", "/", self.path.lstrip("/"))


@contextmanager
def running_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that runs for the length of the block, and is the one that downloads ask."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
