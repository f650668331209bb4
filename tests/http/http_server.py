"""A server process that speaks HTTP, and its clients."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.transport.listeners import listening
from tests.processes import TIMEOUT

pytest.importorskip("uvicorn")
JSON = {"Content-Type": "application/json"}


@dataclass
class HttpServer:
    """The process, its port, and what it writes to standard error."""

    process: subprocess.Popen[str]
    port: int
    token: str
    token_file: Path
    log: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, str]:
        """The status and the text of an answer; the token is sent unless the headers say otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"} | dict(headers))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def post(self, path: str, /, **fields: Any) -> Any:
        """The answer to a request, which is served."""
        status, text = self.request("POST", path, json.dumps(fields))
        assert status == 200, text
        return json.loads(text)

    def refusal(self, path: str, body: bytes | str | None, **headers: str) -> tuple[int, str]:
        """The status and the sentence with which a request is refused."""
        status, text = self.request(
            "POST", path, body, JSON | {k.replace("_", "-"): v for k, v in headers.items()}
        )
        return status, json.loads(text)["error"]["message"]


@contextmanager
def run_server(folder: Path, *options: str) -> Iterator[HttpServer]:
    """Run a server that was started in a folder; check that no client has ended it."""
    announced = r"listening at http://.*:(\d+); clients send the token in (.*)\n"
    with listening(folder, announced, "--http", "127.0.0.1:0", "-v", *options) as (process, found, log):
        file = Path(found[2])
        yield HttpServer(process, int(found[1]), file.read_text(), file, log)
    assert "Traceback" not in "".join(log)
