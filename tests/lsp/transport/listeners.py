"""Servers that listen, each in its own process, and those who connect: editors, and other users' processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lsp.lsp_client import Editor, at
from tests.processes import TIMEOUT, wait_until

ROOT = Path(__file__).parents[3]
OTHER_USER = 65534
COMPLETION = "textDocument/completion"


def isolated_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user whose runtime and state folders are below this one."""
    homes = {name: str(folder / name.lower()) for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    Path(homes["XDG_RUNTIME_DIR"]).mkdir(mode=0o700, exist_ok=True)
    return os.environ | homes | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@dataclass
class Listener:
    """A server process, its socket, and what it writes to standard error."""

    process: subprocess.Popen[str]
    path: str
    folder: Path
    log: list[str]

    def wait_for_log(self, text: str) -> str:
        """Wait until a line of its log contains the text; return the line."""
        return wait_until(f"the log has {text!r}", lambda: next((line for line in self.log if text in line), ""))


@contextmanager
def listening(folder: Path, announced: str, *options: str) -> Iterator[tuple[Any, re.Match[str], list[str]]]:
    """Run a server in a folder, with its data there; check that no client has ended it.

    Yields the process, the line of its log that matches `announced`, and its growing log.
    """
    command = [sys.executable, "-m", "spd_lsp", "--data-dir", str(folder / "data"), "serve", *options]
    pipe, log = subprocess.PIPE, [""]
    process = subprocess.Popen(command, cwd=folder, stderr=pipe, text=True, env=isolated_environment(folder))
    assert process.stderr
    while not (found := re.fullmatch(announced, log[-1])):
        log.append(process.stderr.readline())
        assert log[-1], "".join(log)
    log_reader = threading.Thread(target=lambda: log.extend(process.stderr or ()))
    log_reader.start()
    try:
        yield process, found, log
        assert process.poll() is None, "a client ended the server"
    finally:
        process.kill()
        process.wait()
        log_reader.join()
        process.stderr.close()


@contextmanager
def run_listener(folder: Path, *options: str, default: bool = False) -> Iterator[Listener]:
    """Run a server on a socket of its own, or on the user's default one."""
    path = [] if default else [str(folder / "private" / "server.sock")]
    named = "".join(f" {re.escape(one)}" for one in path)
    announced = f"listening at (.*); editors run: spd-lsp connect{named}\n"
    with listening(folder, announced, "--socket", *path, *options) as (process, found, log):
        yield Listener(process, found[1], folder, log)


@asynccontextmanager
async def connected(server: Listener) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection."""
    reader, writer = await asyncio.open_unix_connection(server.path)
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
            await editor.start_and_load(initializationOptions=options)
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
