"""The build of one folder's table, in a process of its own at low priority.

In: a task. Out: events, as `spd_lsp.commands.index_folder` prints them. Cancelling the wait for the next event
ends the process; so does the end of the server.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import asdict, dataclass

from ngram_builders.programs import NEUTRAL_CWD, python
from spd_lsp.ngrams.background_process import BACKGROUND, lower_priority

PROGRESS, BUILT, LARGE, SKIPPED, FAILED = "progress", "built", "large", "skipped", "failed"


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Progress, or as the last event how the build ended."""

    kind: str
    text: str = ""  # what was built, how large the folder is, or what went wrong
    share: float = 0.0  # of the work that is done


@dataclass(frozen=True, slots=True)
class BuildTask:
    """What to build."""

    folder: str
    data_dir: str  # of the tables
    model: str  # whose tokens are counted
    unlimited: bool  # whatever the folder's size
    sources: bool  # whether the folder's own code is counted
    dependencies: bool  # whether the installed packages that it imports are counted
    interpreter: str  # whose packages these are; empty: those of the folder's own environment


async def run_build(task: BuildTask) -> AsyncGenerator[BuildEvent, None]:
    """Run a build; the last event is not PROGRESS."""
    command = python("spd_lsp.commands.index_folder", json.dumps(asdict(task)))
    pipe = subprocess.PIPE
    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=nothing, cwd=NEUTRAL_CWD, creationflags=BACKGROUND
        )
    except OSError as error:
        yield BuildEvent(FAILED, f"cannot start a process: {error.strerror}")
        return
    lower_priority(process.pid)
    last = BuildEvent(PROGRESS)
    lines = _Lines(process)
    assert process.stdin
    try:
        while line := await lines.get():
            last = BuildEvent(**json.loads(line))
            yield last
        if last.kind == PROGRESS:
            yield BuildEvent(FAILED, "the build ended early")
    finally:
        process.kill()
        process.stdin.close()
        while await lines.get():
            pass


class _Lines:
    """What a process prints, and b"" forever when it has ended.

    A thread reads it and waits for the end: asyncio's own processes print tracebacks if the event loop ends first.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.loop = asyncio.get_running_loop()
        self.unread: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = False
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    async def get(self) -> bytes:
        """The next line."""
        line = b"" if self.ended else await self.unread.get()
        self.ended = not line
        return line

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        with process.stdout as lines:
            for line in lines:
                self._tell(line)
        process.wait()
        self._tell(b"")

    def _tell(self, line: bytes) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(self.unread.put_nowait, line)
