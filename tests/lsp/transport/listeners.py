"""Servers that listen, each in a process of its own, and who reaches them: editors, and other users' processes."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spd_lsp.lsp.transport.addresses import parse_tcp_address
from spd_lsp.lsp.transport.token_proof import default_token_file
from tests.lsp.lsp_client import PATIENCE, Editor

ROOT = Path(__file__).parents[2]
OTHER_USER = 65534
COMPLETION = "textDocument/completion"


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a user whose runtime and state folders are in that folder."""
    homes = {name: str(folder / name.lower()) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    Path(homes["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
    return os.environ | homes | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@dataclass
class Listener:
    """A server's process, its address, and what it says on standard error."""

    process: subprocess.Popen[str]
    address: str
    folder: Path
    log: list[str] = field(default_factory=list)

    @property
    def token(self) -> bytes:
        """The token of its port."""
        state = self.folder / "xdg_state_home" / "spd-lsp"
        return (state / default_token_file(parse_tcp_address(self.address)).name).read_bytes().strip()

    @property
    def memory(self) -> int:
        """Bytes of memory that it holds."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def says(self, text: str) -> str:
        """Wait until a line of its log has the text; the line."""
        deadline = time.monotonic() + PATIENCE
        while not (found := [line for line in self.log if text in line]):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        return found[0]


@contextmanager
def listening(folder: Path, *options: str, tcp: bool = False) -> Iterator[Listener]:
    """A server at a socket, or at a port; no editor may end it."""
    address = f"127.0.0.1:{free_port()}" if tcp else str(folder / "private" / "server.sock")
    where = ["--tcp" if tcp else "--socket", address]
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", str(folder / "data"), "serve", *where, *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stderr=pipe, text=True, env=surroundings(folder))
    assert process.stderr
    server = Listener(process, address, folder, [process.stderr.readline()])
    assert f"listening at {address}" in server.log[0], server.log
    rest = threading.Thread(target=lambda: server.log.extend(process.stderr or ()))
    rest.start()
    try:
        yield server
        assert process.poll() is None, "nothing that an editor did has ended it"
    finally:
        process.kill()
        process.wait()
        rest.join()
        process.stderr.close()


@asynccontextmanager
async def connected(server: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which an editor may speak."""
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
    """An editor in a session."""
    async with connected(server) as ends:
        editor = Editor(*ends)
        try:
            await editor.start(initializationOptions=options)
            await editor.ready()
            yield editor
        finally:
            editor.listening.cancel()


async def labels(editor: Editor, uri: str, line: int, character: int) -> list[str]:
    """What a menu offers there."""
    where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
    found = await editor.request(COMPLETION, {**where, "context": {"triggerKind": 1}})
    return [item["label"] for item in found["items"]]


def as_other_user(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user who owns nothing here; what it says is its answer."""
    # The interpreter and its packages may lie where others cannot look: it changes its user once it runs.
    start = (
        f"import os, socket, sys, time, json\nos.setgroups([])\nos.setgid({OTHER_USER})\nos.setuid({OTHER_USER})\n"
    )
    command = [sys.executable, "-c", start + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
