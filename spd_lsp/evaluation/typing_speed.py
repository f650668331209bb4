"""Typing real code as in VS Code, key by key in real time: the latency of answers and the cost of a key.

In: files, whose middle third is typed. Out: a table. VS Code sends a request 50 ms after a key. Enter and the
indentation that editors add are one key. No completion is accepted, so the keys are the same for all settings.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import random
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD, python
from ngram_builders.sources.language_ids import language_of
from spd_lsp.evaluation.tables import markdown_table
from spd_lsp.settings import Settings

_ASKS_AFTER = 0.05  # seconds without a key
_PACE = (0.08, 0.2)  # seconds a key
_PAUSE = 0.5  # seconds more before a new line, and at one key in ten
_LINE_END = re.compile(r"\n[ \t]*")


class StdioServer:
    """A server in its own process, with an editor's end of its pipes."""

    def __init__(self, settings: Settings) -> None:
        folder = ["--data-dir", settings.data_dir] if settings.data_dir else []
        command = python("spd_lsp", *folder, "serve", "--model", settings.model, "--device", settings.device)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=NEUTRAL_CWD)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._ids = itertools.count(1)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout
        while length := self.process.stdout.readline():  # the first of the headers
            while self.process.stdout.readline().strip():
                pass
            self._messages.put(json.loads(self.process.stdout.read(int(length.split(b":")[1]))))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, Any] | None, seconds: float) -> Mapping[str, Any] | None:
        """Send a request and return its answer, None if that takes too long."""
        number = next(self._ids)
        self.send({"id": number, "method": method, "params": params})
        ends = time.monotonic() + seconds
        with suppress(queue.Empty):
            while True:
                message = self._messages.get(timeout=max(0.0, ends - time.monotonic()))
                if "method" in message and "id" in message:  # a request of the server
                    self.send({"id": message["id"], "result": None})
                elif message.get("id") == number:
                    return message
        return None

    def start(self, **settings: object) -> None:
        """Start the server with these settings and return once the model is loaded; columns count characters."""
        capabilities = {"general": {"positionEncodings": ["utf-32"]}}
        options = {"capabilities": capabilities, "initializationOptions": {"indexing": "off", **settings}}
        self.ask("initialize", options, 60)
        self.send({"method": "initialized", "params": {}})
        status: Mapping[str, Any] = {"kind": "loading"}
        while status.get("kind") == "loading":
            time.sleep(0.05)
            status = (self.ask("spd-lsp/status", None, 60) or {}).get("result", {})
        if status.get("kind") in (None, "error"):
            raise UserError(status.get("message") or "the server has ended; run `spd-lsp serve -v` to see why")


def _type(server: StdioServer, path: Path, keys: int) -> Iterator[tuple[float, bool]]:
    """Open a file without its middle third, and type that, at most this many keys.

    Returns for each key the seconds to its answer, nan if the next key came first, and whether anything was shown.
    """
    lines = path.read_text(encoding="utf-8").replace("\r\n", "\n").split("\n")
    third = max(1, len(lines) // 3)
    before, text, after = ("\n".join(part) for part in (lines[:third], lines[third:-third], lines[-third:]))
    before += "\n"
    uri = path.absolute().as_uri()
    opened = {"uri": uri, "languageId": language_of(path) or "", "version": 1, "text": f"{before}\n{after}"}
    server.send({"method": "textDocument/didOpen", "params": {"textDocument": opened}})
    chance = random.Random(0)
    for version in range(2, keys + 2):
        if not text:
            break
        # 1. Press the next key: the end of a line, or a character.
        line_end = _LINE_END.match(text)
        key = line_end[0] if line_end else text[0]
        place = position(before)
        change = {"range": {"start": place, "end": place}, "text": key}
        params = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
        server.send({"method": "textDocument/didChange", "params": params})
        pressed = time.monotonic()
        before, text = before + key, text[len(key) :]

        # 2. Send a request; keep its answer if it arrives before the next key.
        pauses = chance.random() < 0.1 or text.startswith("\n")
        next_key = pressed + chance.uniform(*_PACE) + pauses * _PAUSE
        time.sleep(_ASKS_AFTER)
        where = {"textDocument": {"uri": uri}, "position": position(before), "context": {"triggerKind": 2}}
        answer = server.ask("textDocument/inlineCompletion", where, next_key - time.monotonic())
        seconds = time.monotonic() - pressed if answer else float("nan")
        yield seconds, bool(answer and (answer["result"] or {}).get("items"))
        time.sleep(max(0.0, next_key - time.monotonic()))


def position(before: str) -> dict[str, int]:
    """The position at the end of a text."""
    lines = before.split("\n")
    return {"line": len(lines) - 1, "character": len(lines[-1])}


def typing_report(files: Sequence[Path], keys: int, settings: Settings) -> str:
    """Type this many keys, as many in each file. -> a table"""
    server = StdioServer(settings)
    with server.process as process:
        try:
            server.start()
            before = processor_seconds(processes_of(process.pid))
            typed = [one for path in files for one in _type(server, path, keys // len(files))]
            processes = processes_of(process.pid)
            cpu_ms = 1000 * (processor_seconds(processes) - before) / max(1, len(typed))
            peak = sum(memory_of(one, "VmHWM") for one in processes)
        finally:
            process.kill()
    seconds = [one for one, _ in typed if one == one]  # not nan
    p50, p95 = np.percentile(seconds or [float("nan")], (50, 95)) * 1000
    of_keys = 100 / max(1, len(typed))
    rows = [
        ("", "VS Code"),
        ("keys", f"{len(typed)}"),
        ("answered before the next key, %", f"{of_keys * len(seconds):.1f}"),
        ("something was shown, % of keys", f"{of_keys * sum(shown for _, shown in typed):.1f}"),
        ("ms from key to answer, median", f"{p50:.0f}"),
        ("95th percentile", f"{p95:.0f}"),
        ("processor time, ms a key", f"{cpu_ms:.0f}"),
        ("peak memory, MiB", f"{peak:.0f}"),
    ]
    return markdown_table(rows)


def processes_of(process: int) -> list[int]:
    """Return a process and its descendants; only itself on systems that do not list them."""
    found = [process]
    for one in found:
        for thread in Path("/proc").glob(f"{one}/task/*"):  # the children of each thread
            found += map(int, _read_proc(one, f"task/{thread.name}/children").split())
    return found


def processor_seconds(processes: Iterable[int]) -> float:
    """Return the processor time of processes in seconds, 0 on systems that do not report it."""
    stats = (_read_proc(process, "stat").rpartition(")")[2].split() for process in processes)
    return sum(sum(map(int, stat[11:15])) for stat in stats) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int, name: str) -> float:
    """Return a process's memory in MiB: `VmRSS`, the current size, or `VmHWM`, the peak."""
    return sum(map(int, re.findall(rf"{name}:\s*(\d+)", _read_proc(process, "status")))) / 1024


def _read_proc(process: int, name: str) -> str:
    """Read a file of Linux about a process; empty elsewhere, and once the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_text(encoding="ascii")
    except OSError:
        return ""
