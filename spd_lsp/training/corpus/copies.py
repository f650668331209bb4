"""Detect exact and near copies among files that are added one after the other.

A near copy is a file nine tenths of whose long lines first occurred in one other file. Lines are stored as hashes,
with the first file that contained them, so a corpus of 250 MB takes about a minute and half a gigabyte.
"""

from __future__ import annotations

import hashlib
from collections import Counter

_MIN_LINE_LENGTH = 12  # characters: shorter lines occur everywhere
_MIN_LINES = 8  # long lines: files with fewer can only be exact copies
_MIN_SHARED = 0.9  # of the long lines


class Copies:
    """The files added so far."""

    def __init__(self) -> None:
        self._files: set[bytes] = set()
        self._first: dict[int, int] = {}  # a line's hash -> the first file that had it

    def skip_reason(self, content: bytes) -> str:
        """Return why to skip a file, or add it and return an empty string."""
        digest = hashlib.sha256(content).digest()
        if digest in self._files:
            return "duplicate"
        lines = _hash_long_lines(content)
        shared = Counter(self._first[line] for line in lines if line in self._first)
        if len(lines) >= _MIN_LINES and shared and shared.most_common(1)[0][1] >= _MIN_SHARED * len(lines):
            return "near duplicate"
        for line in lines:
            self._first.setdefault(line, len(self._files))
        self._files.add(digest)
        return ""


def _hash_long_lines(content: bytes) -> set[int]:
    """Return hashes of the distinct long lines, the same in every run."""
    lines = {line.strip() for line in content.split(b"\n")}
    return {
        int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "little")
        for line in lines
        if len(line) >= _MIN_LINE_LENGTH
    }
