"""Run programs that a model wrote, and say whether they come to their end.

Each runs in a Python of its own: another process group in an empty folder, without environment, input or output,
within limits of processor time, memory and time, ended as a group. `confined.py` is what the child does first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ngram_builders.errors import UserError

_CHILD = Path(__file__).with_name("confined.py")
_PASSED = 86  # the child's exit status; a program that exits on its own exits otherwise
_PROBE = """
import socket
try:
    socket.socket()
except OSError:
    pass
else:
    raise SystemExit
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use. Processor time decides: it does not depend on what else the machine does."""

    cpu_seconds: int = 5
    seconds: float = 60.0  # for a program that sleeps
    memory_bytes: int = 1 << 30


_DEFAULTS = Limits()


def passes(program: str, limits: Limits = _DEFAULTS) -> bool:
    """Whether a program comes to its end, within the limits and without an exception or an exit."""
    child = [sys.executable, "-I", "-S", str(_CHILD), str(limits.cpu_seconds), str(limits.memory_bytes)]
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
                process.communicate(program.encode(errors="replace"), timeout=limits.seconds)
        finally:
            with suppress(ProcessLookupError, PermissionError):  # macOS: of a group that has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode == _PASSED


def is_confined() -> bool:
    """Whether more than limits holds here: programs reach no network, no process and no file to write.

    Raises UserError where no program can be run.
    """
    if os.name == "nt":
        raise UserError("programs that a model wrote are run on Linux or macOS only: Windows lacks their limits")
    if not passes(""):
        raise UserError(f"{sys.executable} cannot run an empty program within {_DEFAULTS}; use another Python")
    return passes(_PROBE)
