"""Other files of a repository, as a model that was trained to read them reads them before the one it completes.

In: paths and texts. Out: those of one repository, in an order that stays. Knows neither tokens nor n-grams.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MAX_TEXTS = 64  # files that are remembered


@dataclass(frozen=True, slots=True)
class RelatedFiles:
    """Files that help to complete another one of their repository: what changes seldom comes first."""

    repository: str  # the name of its folder
    path: str  # of the file that is completed, in the repository
    files: tuple[tuple[str, str], ...]  # paths and texts

    @classmethod
    def of(cls, place: str, roots: Iterable[Path], files: Iterable[tuple[str, str]]) -> RelatedFiles:
        """`roots`: folders of repositories, one of which may hold the file at this place."""
        found = next((root for root in roots if place.startswith(f"{root}{os.sep}")), Path(place).parent)
        inside = [(one, text) for one, text in dict(files).items() if one != place and text.strip()]
        return cls(found.name, _path_in(found, place), tuple((_path_in(found, one), text) for one, text in inside))


class FilesAsRead:
    """Other files in the order and with the texts that a model has read, so that it need not read them again.

    While someone types, what changed in them stays as it was; a file that is new comes last.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by path

    def of(self, files: Iterable[tuple[str, str]], *, current: bool) -> list[tuple[str, str]]:
        """These files as they were read; those that changed as they are now, and last, if `current`."""
        now = dict(files)
        if current:
            outdated = [path for path, text in now.items() if self._texts.get(path, text) != text]
            self._texts = {path: text for path, text in self._texts.items() if path not in outdated}
        self._texts |= {path: text for path, text in now.items() if path not in self._texts}
        found = [(path, text) for path, text in self._texts.items() if path in now]
        self._texts = dict(list(self._texts.items())[-_MAX_TEXTS:])
        return found


def _path_in(root: Path, place: str) -> str:
    """A file's path in a repository, as people write it; of others, its name."""
    path = Path(place)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
