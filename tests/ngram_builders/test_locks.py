"""One at a time gets in; a dead owner keeps nobody out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.locks import ABANDONED, hold, is_alive


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_held_lock_keeps_others_out_and_names_itself(tmp_path: Path) -> None:
    with hold(tmp_path / "lock"), pytest.raises(UserError, match=r"found the lock .*lock of another process"):
        hold(tmp_path / "lock", patience=0).__enter__()
    assert not list(tmp_path.iterdir())


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path / "lock"):
        raise ZeroDivisionError
    with hold(tmp_path / "lock", patience=0):
        pass


@pytest.mark.skipif(os.name != "posix", reason="only POSIX tells whether a process lives")
def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(f"{dead_process()} abc")
    with hold(tmp_path / "lock"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "garbage", f"{os.getpid()} abc"])
def test_an_old_lock_is_taken_over_whatever_it_says(tmp_path: Path, content: str) -> None:
    lock = tmp_path / "lock"
    lock.write_text(content)
    with pytest.raises(UserError):
        hold(lock, patience=0).__enter__()
    status = lock.stat()
    os.utime(lock, (status.st_atime, status.st_mtime - ABANDONED - 1))
    with hold(lock):
        pass


def test_threads_enter_one_after_the_other(tmp_path: Path) -> None:
    inside: list[int] = []
    crowded: list[int] = []

    def enter() -> None:
        for _ in range(5):
            with hold(tmp_path / "lock", patience=60):
                inside.append(1)
                crowded.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert crowded == [1] * 20


@pytest.mark.skipif(os.name != "posix", reason="only POSIX tells whether a process lives")
def test_processes_are_alive_until_they_end() -> None:
    assert is_alive(os.getpid())
    assert is_alive(1)
    assert not is_alive(dead_process())
    assert is_alive(10**30)
