"""The path of a lock file -> a section that one process at a time is in. Does not know what is guarded."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ngram_builders.errors import UserError

__all__ = ["hold", "is_alive"]

PATIENCE = 10.0  # seconds to wait for the lock; it is meant for sections of milliseconds
ABANDONED = 60.0  # seconds after which a lock counts as forgotten, whoever made it


@contextmanager
def hold(file: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Keep other processes and threads out. The lock of a process that died is taken over."""
    mine = f"{os.getpid()} {secrets.token_hex(8)}"
    deadline = time.monotonic() + patience
    while not seize(file, mine):
        if time.monotonic() > deadline:
            raise UserError(
                f"expected to be the only writer, found the lock {file} of another process; "
                "try again, or delete it if no other spd-lsp is at work"
            )
        time.sleep(0.02)
    try:
        yield
    finally:
        release(file, mine)


def seize(file: Path, mine: str) -> bool:
    """Create the lock file, or clear one that its owner left behind; False if it has to be tried again."""
    try:
        with file.open("x", encoding="utf-8") as lock:
            lock.write(mine)
        return True
    except FileExistsError:
        clear_abandoned(file)
        return False
    except PermissionError:
        if os.name == "nt" and file.exists():  # Windows answers so while the owner is deleting it
            return False
        raise


def clear_abandoned(file: Path) -> None:
    """Move a dead owner's lock away. Moving comes first: of several takers it lets only one win."""
    with suppress(OSError):
        owner = file.read_text(encoding="utf-8")
        if not is_abandoned(owner, time.time() - file.stat().st_mtime):
            return
        taken = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        file.replace(taken)
        if taken.read_text(encoding="utf-8") == owner:
            taken.unlink()
        else:  # another taker was faster, and this is its fresh lock
            taken.replace(file)


def is_abandoned(owner: str, age: float) -> bool:
    """Whether nobody will release the lock. An owner not yet written down is given time."""
    process = owner.split(" ")[0]
    return age > ABANDONED or (process.isdigit() and not is_alive(int(process)))


def release(file: Path, mine: str) -> None:
    """Delete the lock if it is still ours."""
    with suppress(OSError):
        if file.read_text(encoding="utf-8") == mine:
            file.unlink()


def is_alive(process: int) -> bool:
    """Whether a process runs here. Elsewhere than on POSIX there is no harmless way to ask: yes."""
    if os.name != "posix":
        return True
    with suppress(PermissionError, OverflowError):  # it runs for someone else, or is no process number
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True
