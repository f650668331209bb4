"""Model servers: llama.cpp's own in a process, and one that answers as a test says and keeps what it is sent."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import STARTER_FILE

_LLAMA = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def llama_server(model: Path = STARTER_FILE, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of llama.cpp's own server."""
    pytest.importorskip("xllamacpp")
    command = [sys.executable, "-c", _LLAMA, str(model), str(port)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdin and process.stdout
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def self_signed(folder: Path) -> Path:
    """A file with a certificate for 127.0.0.1, and its key."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("needs openssl")
    file, key = folder / "certificate.pem", folder / "key.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    made = (openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", file)
    subprocess.run([*made, *names], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + key.read_bytes())
    return file


class Server(ThreadingHTTPServer):
    """One that says nothing of connections that end early."""

    def handle_error(self, *arguments: Any) -> None:
        """They do where a client knows no certificate, or leaves."""


@contextmanager
def told_server(
    answer: Callable[[str, Any], Any], certificate: Path | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that answers `answer(path, body)`, and what it was sent: path, headers, body.

    An answer is a status, a content and perhaps a header.
    """
    sent: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append((self.path, dict(self.headers), body))
            status, content, *headers = answer(self.path, body)
            self.send_response(status)
            for header in headers or [("Content-Length", str(len(content)))]:
                self.send_header(*header)
            self.end_headers()
            with suppress(OSError):  # who asked has left
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = Server(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
