"""Processes that compute in the background give way to all others, and end with the one that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress

BACKGROUND = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)  # creation flags, which only Windows has
_PRIORITY = 10  # as `nice` has it; with the least, 3 seconds of work take minutes where all cores are busy


def lower_priority(process: int) -> None:
    """Give a process that was just started a low priority; Windows does so with the creation flags."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process, _PRIORITY)


def end_with_input() -> None:
    """End this process with its standard input, a pipe that closes with the other one, even if that is killed."""
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
