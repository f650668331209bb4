"""What a table's base and its segment were made of. Knows no counts.

A table is a base and perhaps a segment, its layers. The base was made of files; the segment holds what changed in
the counts since: texts that were added, less texts that were removed. Of each layer only its own files are
recorded, so recording an edit costs what was edited; the files of a table are those of its last layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that a table was made of. Copies share a digest; one that is gone since the last layer has none."""

    path: str
    size: int
    mtime_ns: int
    digest: bytes
    language: str


Files = Mapping[str, IndexedFile]  # by path


@dataclass(frozen=True, slots=True)
class Change:
    """Texts that a segment adds and removes, by digest."""

    added: list[bytes]
    removed: list[bytes]

    @property
    def digests(self) -> list[bytes]:
        """All of them."""
        return self.added + self.removed


def files_after(layers: Iterable[Iterable[IndexedFile]]) -> list[Files]:
    """Return all files after each layer, from what is recorded of each."""
    states: list[Files] = []
    files: dict[str, IndexedFile] = {}
    for recorded in layers:
        files = {**files, **{file.path: file for file in recorded}}
        files = {path: file for path, file in files.items() if file.digest}
        states.append(files)
    return states


def record_of(before: Files, now: Iterable[IndexedFile]) -> list[IndexedFile]:
    """Return what is recorded of a layer: the files that are not as they were, and those that are gone.

    Of a segment, for which there was something before, it is never empty: that would mean that it was lost.
    """
    files = {file.path: file for file in now}
    nothing = {""} if before else set()
    gone = [IndexedFile(path, 0, 0, b"", "") for path in nothing | (before.keys() - files.keys())]
    return [*gone, *(file for path, file in files.items() if before.get(path) != file)]


def texts_of(files: Files) -> set[bytes]:
    """Return the digests of all texts."""
    return {file.digest for file in files.values()}


def change_between(before: Collection[bytes], now: Collection[bytes]) -> Change:
    """Return what a segment has to add and remove. Example: {a, b}, {b, c} -> added c, removed a."""
    return Change(sorted(set(now) - set(before)), sorted(set(before) - set(now)))


def documents_of(states: Sequence[Files]) -> list[list[bytes | None]]:
    """Return the texts that each layer holds, as they are numbered there; None where a later one removed it."""
    changes = [change_between(before, now) for before, now in pairwise([set(), *map(texts_of, states)])]
    owners: dict[bytes, int] = {}
    for number, change in enumerate(changes):
        for digest in change.removed:
            del owners[digest]
        owners.update(dict.fromkeys(change.added, number))
    return [
        [digest if owners.get(digest) == number else None for digest in change.added]
        for number, change in enumerate(changes)
    ]
