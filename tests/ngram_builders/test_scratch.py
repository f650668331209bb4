"""A lock has one owner at a time, and a killed owner blocks nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.scratch import hold_lock

HOLDER = (
    "import sys, time; from pathlib import Path; from ngram_builders.scratch import hold_lock\n"
    "with hold_lock(Path(sys.argv[1])): print('inside', flush=True); time.sleep(600)"
)


def test_another_process_is_kept_out_until_the_owner_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    with pytest.raises(UserError, match=r"another process holds the lock .*lock; try again"):
        hold_lock(lock, timeout=0).__enter__()
    holder.kill()
    holder.communicate()
    with hold_lock(lock, timeout=5):
        assert os.name != "posix" or lock.stat().st_mode & 0o777 == 0o600
