"""The build of one folder's table, in a process of its own at low priority.

In: a task. Out: events, as `spd_lsp.commands.index_folder` prints them. Cancelling the wait for the next event
ends the process; so does the end of the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import asdict, dataclass

from ngram_builders.programs import AWAY, python
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
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nothing, cwd=AWAY, creationflags=BACKGROUND
        )
    except OSError as error:
        yield BuildEvent(FAILED, f"cannot start a process: {error.strerror}")
        return
    lower_priority(process.pid)
    last = BuildEvent(FAILED, "the build ended early")
    assert process.stdin and process.stdout
    try:
        async for line in process.stdout:
            last = BuildEvent(**json.loads(line))
            yield last
        if last.kind == PROGRESS:
            yield BuildEvent(FAILED, "the build ended early")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()  # else its end of the pipe outlives the event loop
        await process.wait()
