"""A real S3 server on loopback, moto's, behind a proxy that can cut connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
SETTINGS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Proxy:
    """Forwards connections; the next `cuts` of them are cut after some bytes of an answer."""

    port: int
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    cuts: int = 0
    after: int = 20_000

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        """Until the listener is closed."""
        with suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        sent = 0
        with suppress(OSError):
            while data := source.recv(1 << 14):
                if is_answer and self.cuts and (sent := sent + len(data)) > self.after:
                    self.cuts -= 1
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy of a server with the bucket `team`; s3fs in this process and its children finds it."""
    pytest.importorskip("moto", reason="needs moto: pip install --group e2e")
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs: pip install --group e2e")
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVER], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    )
    assert process.stdin and process.stdout
    try:
        proxy = Proxy(int(process.stdout.readline()))
        threading.Thread(target=proxy.serve, daemon=True).start()
        for name, value in {**SETTINGS, "AWS_ENDPOINT_URL": proxy.url}.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("team")
        yield proxy
        proxy.listener.close()
        s3fs.S3FileSystem.clear_instance_cache()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
