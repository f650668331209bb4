"""Names of unfinished files, which say who writes them: the process, and where that runs.

Process ids mean something only where they were given: other machines and containers that share a folder have
their own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
from functools import cache
from pathlib import Path

_PATTERN = re.compile(r"\..*\.(?:([0-9a-f]{8})-)?(\d+)-[0-9a-f]+\.tmp")


def scratch_path(file: Path) -> Path:
    """A new name beside a file that this process will write and then rename."""
    return file.with_name(f".{file.name}.{_place()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def read_writer(name: str) -> int | None:
    """The process that writes an unfinished file, 0 if it may run elsewhere; None if the name is none of these."""
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    return int(match[2]) if match[1] == _place() else 0


@cache
def _place() -> str:
    """A digest of the running system and of the container, within which process ids are unique."""
    facts = [platform.node()]
    try:
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    except OSError:
        pass  # not Linux: there the name has to do
    return hashlib.blake2b("\0".join(facts).encode(), digest_size=4).hexdigest()
