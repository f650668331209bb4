"""Watches the process of the editor that started the server, whose id the editor sends.

The end of input tells that it has ended, too, unless another process holds the pipe open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ngram_builders.registry.locks import is_running

POLL_SECONDS = 3.0


def local_process(process: int | None) -> int | None:
    """The process id, if it is one on this machine: not through ssh, nor from outside of a container."""
    return process if process is not None and is_running(process) else None


async def process_ended(get_process: Callable[[], int | None]) -> int:
    """Wait until the process has ended and return its id; forever if there is none."""
    while (process := get_process()) is None or is_running(process):
        await asyncio.sleep(POLL_SECONDS)
    return process
