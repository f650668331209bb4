"""Names that only outdated texts have, which tables count until the files that changed or went are subtracted.

In: texts as they were counted, and as they are. Out: whether a name is gone. Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_WORD_BYTES = bytes(code if chr(code).isalnum() or code in b"_" or code >= 0x80 else 0x20 for code in range(256))


class GoneNames:
    """Which names are gone. Until all texts are read, each that was not found yet counts as gone."""

    def __init__(self) -> None:
        self._left: set[bytes] | None = None  # the words found in texts as they are, while not all are read
        self._gone: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        """Whether any name is gone."""
        return self._left is not None or bool(self._gone)

    def has(self, name: str) -> bool:
        """Whether a name is gone."""
        word = name.encode(errors="replace")
        return word in self._gone if self._left is None else word not in self._left

    def suspect(self) -> None:
        """Take all names for gone, but for those that were found already."""
        if self._left is None:
            self._left = set()

    def forget(self) -> None:
        """No name is gone."""
        self._left = None
        self._gone = frozenset()

    def find(self, now: Iterable[bytes], before: Iterable[bytes]) -> Iterator[None]:
        """Learn which words only the texts from before have, with a pause after each text."""
        left = self._left = set()
        for text in now:
            left |= _words(text)
            yield
        gone: set[bytes] = set()
        for text in before:
            gone |= _words(text) - left
            yield
        if self._left is left:
            self._left = None
            self._gone = frozenset(gone)


def _words(text: bytes) -> set[bytes]:
    """What stands between signs and spaces. Example: b"x = read(y)" -> {b"x", b"read", b"y"}"""
    return set(text.translate(_WORD_BYTES).split())
