"""Processes that compute in the background give way to all others."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

BACKGROUND = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)  # creation flags, which only Windows has
_LEAST_PRIORITY = 19


def lower_priority(process: int) -> None:
    """Give a process that was just started the least priority; Windows does so with the creation flags."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process, _LEAST_PRIORITY)
