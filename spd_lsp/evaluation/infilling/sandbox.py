"""Run programs that a model wrote and report which of them run to their end.

Each runs in its own Python: a process group in an empty folder, without environment, input or output, with limits
on processor time, memory and time, and killed as a group. `confined.py` sets up the child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ngram_builders.errors import UserError

_CHILD = Path(__file__).with_name("confined.py")
_PASSED = 86  # the child's exit status; a program that exits on its own exits otherwise
_MEMORY = 1 << 30  # bytes
_PROBE = """
import socket
try:
    socket.socket()
except OSError:
    pass
else:
    raise SystemExit
"""


def passes(program: str, cpu_seconds: int = 5, seconds: float = 60.0) -> bool:
    """Whether a program runs to its end without an exception or an exit.

    The limit is on processor time, which does not depend on other programs. `seconds` ends programs that sleep.
    """
    child = [sys.executable, "-I", "-S", str(_CHILD), str(cpu_seconds), str(_MEMORY)]
    with tempfile.TemporaryDirectory() as empty:
        process = subprocess.Popen(
            [*child, str(_PASSED)],
            cwd=empty,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(program.encode(errors="replace"), timeout=seconds)
        finally:
            with suppress(ProcessLookupError, PermissionError):  # macOS: of a group that has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode == _PASSED


def is_confined() -> bool:
    """Whether programs are confined beyond limits here: no network, no other process, no writing.

    Raises UserError where no program can be run.
    """
    if os.name == "nt":
        raise UserError("programs that a model wrote are run on Linux or macOS only: Windows lacks their limits")
    if not passes(""):
        raise UserError(f"{sys.executable} cannot run an empty program within the limits; use another Python")
    return passes(_PROBE)
