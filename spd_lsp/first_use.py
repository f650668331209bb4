"""Protects from files on which C code crashes: a marker in the cache keeps the next process from opening them.

Python's `faulthandler` writes into the marker when the process crashes, but not when somebody ends it.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

from ngram_builders.errors import UserError

_lock = Lock()
_open: list[Any] = []  # the files of this process; a crash is noted in the last one


@contextmanager
def first_use(folder: Path, what: str, version: str = "") -> Iterator[None]:
    """Open a file within this context. `UserError` if this version of it crashed a process before.

    folder: of the markers. what: names the file in a sentence. version: changes with the file.
    Example: `with first_use(cache, "the model m.gguf", "date and size"): open_model()`.
    """
    marker = folder / blake2b(f"{what}\0{version}".encode(errors="replace"), digest_size=8).hexdigest()
    with suppress(OSError):
        if marker.stat().st_size:
            raise UserError(
                f"{what} ended spd-lsp when it was last opened, and is left alone; choose another one, or delete "
                f"{marker} to try again"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = marker.open("wb")
    except OSError:  # as in a home that cannot be written
        yield
        return
    with _lock:
        _open.append(file)
        faulthandler.enable(file)
    try:
        yield
    finally:
        with _lock:
            _open.remove(file)
            if _open:
                faulthandler.enable(_open[-1])
            else:
                faulthandler.disable()
        file.close()
        with suppress(OSError):  # another process has it open
            marker.unlink()
