"""What clients send of other files: they count as open, and tell where a text belongs whose client does not say.

In: names and texts beside a prompt. Out: changes of open documents, and a place for a nameless text.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path, PurePath

from spd_lsp.completion.exclusions import language_id
from spd_lsp.ngrams.open_documents import OpenDocument

_MAX_REMEMBERED = 64  # files
_MAX_LINES = 20_000  # of a file
_MIN_LINE = 8  # characters of a line that says something about where it stands


class OpenFiles:
    """The files of the last request, and some that were sent before."""

    def __init__(self, folder: Path) -> None:
        """`folder`: what relative names are relative to."""
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._lines: dict[str, set[int]] = {}  # hashes by name, also of files sent before; the latest last

    def show(self, sent: Iterable[tuple[str, str]]) -> dict[str, OpenDocument | None]:
        """Take these for the open files; what changed since the last call. Parts of one file are one text."""
        texts: dict[str, str] = {}
        for name, text in sent:
            texts[name] = f"{texts[name]}\n{text}" if name in texts else text
        changes: dict[str, OpenDocument | None] = dict.fromkeys(self._texts.keys() - texts.keys())
        changed = {name: text for name, text in texts.items() if self._texts.get(name) != text}
        for name, text in changed.items():
            known = self._lines.pop(name, set())
            new = _telling_lines(text)
            self._lines[name] = known | new if len(known | new) <= _MAX_LINES else new
        self._lines = dict(list(self._lines.items())[-_MAX_REMEMBERED:])
        self._texts = texts
        for name, text in changed.items():
            changes[name] = OpenDocument(name, None, language_id(PurePath(name)), text)
        return changes

    def place(self, path: str) -> Path:
        """The path of a file by the name that a client gives it."""
        return self._folder / path

    def place_of(self, text: str) -> Path | None:
        """A place beside the file that has most lines in common with a text; None if none has any.

        Not the file's own: the text is only a part of it, and its table counts all of it.
        """
        lines = _telling_lines(text)
        shared = {name: len(lines & known) for name, known in reversed(self._lines.items())}
        name = max(shared, key=lambda name: shared[name], default="")
        if not name or not shared[name]:
            return None
        file = self.place(name)
        return file.with_name(f"untitled{file.suffix}")


def _telling_lines(text: str) -> set[int]:
    stripped = (part.strip() for part in text.splitlines())
    return set(islice((hash(line) for line in stripped if len(line) >= _MIN_LINE), _MAX_LINES))
