"""One owner at a time; a killed owner blocks nobody, and a slow one keeps its lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.registry.locks import hold_lock, is_running

HOLDER = (
    "import sys, time; from pathlib import Path; from ngram_builders.registry.locks import hold_lock\n"
    "with hold_lock(Path(sys.argv[1])): print('inside', flush=True); time.sleep(600)"
)
posix = pytest.mark.skipif(os.name != "posix", reason="only POSIX tells whether a process lives")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def start_holder(lock: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    return holder


def finish(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_a_held_lock_keeps_others_out_and_the_error_names_it(lock: Path) -> None:
    with (
        hold_lock(lock),
        pytest.raises(UserError, match=r"another process holds the lock .*lock; try again"),
    ):
        hold_lock(lock, timeout=0).__enter__()
    with hold_lock(lock, timeout=0):
        pass


def test_another_process_is_kept_out_until_the_owner_is_killed(lock: Path) -> None:
    holder = start_holder(lock)
    with pytest.raises(UserError, match="another process holds"):
        hold_lock(lock, timeout=0).__enter__()
    finish(holder)
    with hold_lock(lock, timeout=5):
        pass


@pytest.mark.skipif(os.name != "posix", reason="stops a process with a signal")
def test_an_owner_that_was_suspended_for_long_keeps_its_lock(lock: Path) -> None:
    """As on a laptop that slept: whatever the clock and the file's date, the owner still holds the lock."""
    holder = start_holder(lock)
    holder.send_signal(signal.SIGSTOP)
    os.utime(lock, (time.time() - 86400, time.time() - 86400))
    with pytest.raises(UserError, match="another process holds"):
        hold_lock(lock, timeout=0).__enter__()
    finish(holder)


def test_the_lock_is_released_after_an_error(lock: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(lock):
        raise ZeroDivisionError
    with hold_lock(lock, timeout=0):
        pass


@pytest.mark.parametrize("content", [b"", b"12345 abc", b"\xff\0 garbage"])
def test_a_lock_file_that_nobody_holds_is_free_whatever_its_content(lock: Path, content: bytes) -> None:
    """Older versions wrote their process id there."""
    lock.write_bytes(content)
    with hold_lock(lock, timeout=0):
        pass


@posix
def test_the_lock_file_is_private(lock: Path) -> None:
    with hold_lock(lock):
        assert lock.stat().st_mode & 0o777 == 0o600


def test_threads_enter_one_at_a_time(lock: Path) -> None:
    inside: list[int] = []
    crowded: list[int] = []

    def enter() -> None:
        for _ in range(5):
            with hold_lock(lock, timeout=60):
                inside.append(1)
                time.sleep(0.001)
                crowded.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert crowded == [1] * 20


@posix
def test_processes_are_running_until_they_end() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert is_running(os.getpid())
    assert is_running(1)
    assert not is_running(process.pid)
    assert all(map(is_running, (0, -1, 10**30))), "what is no process id counts as running"
