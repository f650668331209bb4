"""Waiting for other processes, what tests ask the system about them, and how much work this one does."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT = 120.0  # seconds; importing torch on a busy machine takes long


def _pause() -> None:
    time.sleep(0.05)


def wait_until(event: str, condition: Callable[[], Any], pause: Callable[[], None] = _pause) -> Any:
    """Poll until the condition holds; return its value."""
    deadline = time.monotonic() + TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < deadline, f"timed out waiting until {event}"
        pause()
    return value


def free_port() -> int:
    """Return a local port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def is_alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc").exists()  # without /proc, zombies are not recognized


def commands_with(part: bytes) -> list[str]:
    """The commands of running processes that have this part; arguments end in a null byte."""
    commands = (_read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [line.decode() for line in commands if part in line]


def _read(path: Path) -> bytes:
    """A file's contents; none if its process has ended meanwhile."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def steps(work: Callable[[], object]) -> int:
    """The number of functions that are called, those of C included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
