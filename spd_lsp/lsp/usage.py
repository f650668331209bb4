"""Counts of what was offered and accepted, in a small file of numbers on this machine. Never code, and never sent.

In: completions that are offered or accepted. Out: counts by language and source. All
servers of a user add to one file.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.scratch import hold_lock, replace_file

# Keystrokes are those saved, milliseconds the model's.
COLUMNS = ("offered", "accepted", "keystrokes", "milliseconds")
_OFFERED, _ACCEPTED, _KEYSTROKES, _MILLISECONDS = range(len(COLUMNS))
_FILE = "usage.json"

log = logging.getLogger(__name__)

Counts = Counter[tuple[str, str, int]]  # of a language, a source and one of the numbers above


class Usage:
    """What one session counts, until it is added to the file."""

    def __init__(self) -> None:
        self._new: Counts = Counter()
        self._best = ""  # that was offered last

    def note_offer(self, language: str | None, source: str, best: str, milliseconds: int) -> None:
        """Count the best completion of an answer, unless it is the rest of the one before."""
        name = language or "none"
        self._new[name, source, _OFFERED] += not self._best.endswith(best)
        self._new[name, source, _MILLISECONDS] += milliseconds
        self._best = best

    def note_acceptance(self, language: str, source: str, characters: int) -> None:
        """Count what an editor inserted."""
        self._new[language, source, _ACCEPTED] += 1
        self._new[language, source, _KEYSTROKES] += characters - 1  # one accepts it

    def take(self) -> Counts:
        """What was counted since the last time, to be added to the file."""
        counts, self._new = self._new, Counter()
        return counts

    def summary(self, folder: Path) -> str:
        """The counts of all sessions of this user, in a line; "" if nothing was accepted."""
        try:
            total = read_counts(folder) + self._new
        except UserError:
            return ""
        accepted, keystrokes = (
            sum(count for (*_, kind), count in total.items() if kind == number)
            for number in (_ACCEPTED, _KEYSTROKES)
        )
        return f"{accepted} accepted, {keystrokes} keystrokes saved" if accepted else ""


def add_counts(folder: Path, counts: Counts) -> None:
    """Add counts to the file. Where it is damaged, or cannot be written, they are lost."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(folder / f".{_FILE}.lock"):
            lines = (json.dumps(row) for row in rows_of(read_counts(folder) + counts))
            replace_file(folder / _FILE, [b"[\n" + ",\n".join(lines).encode() + b"\n]\n"])
    except (OSError, UserError) as error:
        log.debug("usage is not counted: %s", error)


def read_counts(folder: Path) -> Counts:
    """What was counted so far; UserError if the file is damaged."""
    file = folder / _FILE
    try:
        rows = [(str(language), str(source), row) for language, source, *row in json.loads(file.read_bytes())]
        return Counter({(one, other, n): int(number) for one, other, row in rows for n, number in enumerate(row)})
    except FileNotFoundError:
        return Counter()
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"cannot read {file}; `spd-lsp stats --reset` begins a new one") from error


def rows_of(counts: Counts) -> list[list[Any]]:
    """A row for each language and source: those, and their numbers."""
    names = sorted({(language, source) for language, source, _ in counts})
    numbers = range(len(COLUMNS))
    return [[language, source, *(counts[language, source, n] for n in numbers)] for language, source in names]


def reset(folder: Path) -> None:
    """Forget all counts."""
    (folder / _FILE).unlink(missing_ok=True)
