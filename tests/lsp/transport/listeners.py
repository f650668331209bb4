"""Servers that listen, each in its own process, and those who connect: editors, and other users' processes."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spd_lsp.lsp.transport.addresses import parse_tcp_address
from spd_lsp.lsp.transport.token_proof import default_token_file
from tests.lsp.lsp_client import Editor, at
from tests.processes import TIMEOUT, free_port, wait_until

ROOT = Path(__file__).parents[2]
OTHER_USER = 65534
COMPLETION = "textDocument/completion"


def isolated_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user whose runtime and state folders are below this one."""
    homes = {name: str(folder / name.lower()) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    Path(homes["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
    return os.environ | homes | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@dataclass
class Listener:
    """A server process, its address, and what it writes to standard error."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    log: list[str] = field(default_factory=list)

    @property
    def token(self) -> bytes:
        """Return the token of its port."""
        state = self.folder / "xdg_state_home" / "spd-lsp"
        return (state / default_token_file(parse_tcp_address(self.address)).name).read_bytes().strip()

    @property
    def memory(self) -> int:
        """Return its resident memory in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait_for_log(self, text: str) -> str:
        """Wait until a line of its log contains the text; return the line."""
        return wait_until(f"the log has {text!r}", lambda: next((line for line in self.log if text in line), ""))


@contextmanager
def run_listener(folder: Path, *options: str, tcp: bool = False) -> Iterator[Listener]:
    """Run a server on a socket or a port; check that no client has ended it."""
    address = f"127.0.0.1:{free_port()}" if tcp else str(folder / "private" / "server.sock")
    endpoint = ["--tcp" if tcp else "--socket", address]
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", str(folder / "data"), "serve", *endpoint, *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stderr=pipe, text=True, env=isolated_environment(folder))
    assert process.stderr
    server = Listener(process, address, folder, [process.stderr.readline()])
    assert f"listening at {address}" in server.log[0], server.log
    log_reader = threading.Thread(target=lambda: server.log.extend(process.stderr or ()))
    log_reader.start()
    try:
        yield server
        assert process.poll() is None, "a client ended the server"
    finally:
        process.kill()
        process.wait()
        log_reader.join()
        process.stderr.close()


@asynccontextmanager
async def connected(server: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open an authenticated connection."""
    if server.address.startswith("127."):
        reader, writer = await asyncio.open_connection(*server.address.split(":"))
        nonce = secrets.token_bytes(32)
        writer.write(b"spd-lsp proof 1\n" + nonce)
        nonces = nonce + (await reader.readexactly(64))[:32]
        writer.write(hmac.digest(server.token, b"editor" + nonces, "sha256"))
    else:
        reader, writer = await asyncio.open_unix_connection(server.address)
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def editor_at(server: Listener, **options: object) -> AsyncIterator[Editor]:
    """Start an editor's session and wait for the model."""
    async with connected(server) as streams:
        editor = Editor(*streams)
        try:
            await editor.start(initializationOptions=options)
            await editor.ready()
            yield editor
        finally:
            editor.listening.cancel()


async def labels(editor: Editor, uri: str, line: int, character: int) -> list[str]:
    """Return the labels of the completions there."""
    completions = await editor.request(COMPLETION, at(line, character, uri=uri))
    return [item["label"] for item in completions["items"]]


def as_other_user(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a user who owns nothing here."""
    # The interpreter may be where other users cannot read it, so it changes its user once it runs.
    change_user = (
        f"import os, socket, sys, time, json\nos.setgroups([])\nos.setgid({OTHER_USER})\nos.setuid({OTHER_USER})\n"
    )
    command = [sys.executable, "-c", change_user + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
