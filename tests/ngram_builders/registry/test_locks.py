"""One owner at a time; a killed owner blocks nobody, and a slow one keeps its lock."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_another_process_is_kept_out_until_the_owner_is_killed(lock: Path) -> None:
    holder = start_holder(lock)
    with pytest.raises(UserError, match=r"another process holds the lock .*lock; try again"):
        hold_lock(lock, timeout=0).__enter__()
    finish(holder)
    with hold_lock(lock, timeout=5):
        pass


@posix
def test_the_lock_file_is_private(lock: Path) -> None:
    with hold_lock(lock):
        assert lock.stat().st_mode & 0o777 == 0o600


@posix
def test_processes_are_running_until_they_end() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert is_running(os.getpid())
    assert is_running(1)
    assert not is_running(process.pid)
    assert all(map(is_running, (0, -1, 10**30))), "what is no process id counts as running"
