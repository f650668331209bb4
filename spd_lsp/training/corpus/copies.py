"""Exact and near copies: files go in one after the other; whether an earlier one is much the same comes out.

A near copy is a file nine tenths of whose telling lines first stood in one and the same file. Lines are remembered
as numbers, and only the first file that had them, so a corpus of 250 MB takes about a minute and half a gigabyte.
"""

from __future__ import annotations

import hashlib
from collections import Counter

_TELLING = 12  # characters: shorter lines stand everywhere
_FEWEST = 8  # telling lines: a file of fewer is no copy of anything but an equal file
_ALIKE = 0.9


class Copies:
    """What has been seen."""

    def __init__(self) -> None:
        self._files: set[bytes] = set()
        self._first: dict[int, int] = {}  # a line's hash -> the first file that had it

    def refuse(self, content: bytes) -> str:
        """Why a file is left out; one that is kept is remembered."""
        digest = hashlib.sha256(content).digest()
        if digest in self._files:
            return "duplicate"
        lines = _telling_lines(content)
        shared = Counter(self._first[line] for line in lines if line in self._first)
        if len(lines) >= _FEWEST and shared and shared.most_common(1)[0][1] >= _ALIKE * len(lines):
            return "near duplicate"
        for line in lines:
            self._first.setdefault(line, len(self._files))
        self._files.add(digest)
        return ""


def _telling_lines(content: bytes) -> set[int]:
    """The distinct lines that say something, as numbers that are the same in every run."""
    lines = {line.strip() for line in content.split(b"\n")}
    return {
        int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "little")
        for line in lines
        if len(line) >= _TELLING
    }
