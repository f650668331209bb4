"""Counts of what was offered and accepted, in a small file of numbers on this machine. Never code, and never sent.

In: completions that are offered, and what editors say they inserted. Out: counts by language and source. All
servers of a user add to one file.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.registry.locks import hold_lock
from ngram_builders.scratch import replace_file

# Saved keystrokes, the model's time, and how many of those accepted still stood a minute later.
COLUMNS = ("offered", "accepted", "keystrokes", "milliseconds", "kept")
_OFFERED, _ACCEPTED, _KEYSTROKES, _MILLISECONDS, _KEPT = range(len(COLUMNS))
_SOURCES = ("model", "copies", "names")
_FILE = "usage.json"
DAMAGED = f"{_FILE}.damaged"
_MAX_LANGUAGE = 40  # characters of an editor's language id
_MAX_KEYSTROKES = 100_000  # of one completion
_MAX_RECENT = 8  # offers of which one may be accepted

log = logging.getLogger(__name__)

Counts = Counter[tuple[str, str, int]]  # of a language, a source and one of the numbers above


@dataclass(frozen=True, slots=True)
class Offered:
    """What is counted of an answer. Not the answer: that holds the document, of which each key makes another."""

    uri: str
    language: str | None
    before: str  # the cursor, in its line
    texts: tuple[tuple[str, str], ...]  # source and text of each completion, best first
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A completion that was inserted; held in memory until it is known whether it is kept."""

    uri: str
    language: str
    source: str
    line: str  # with what stood before it, without indentation

    def stands_in(self, text: str) -> bool:
        """Whether it does."""
        return self.line in _unindented(text)


class Usage:
    """What one session counts, until it is added to the file."""

    def __init__(self) -> None:
        self.offers: list[Offered] = []  # not counted yet, requests cannot wait
        self.waiting: list[Accepted] = []  # to be looked for a minute after they were inserted
        self._recent: deque[Offered] = deque(maxlen=_MAX_RECENT)
        self._new: Counts = Counter()
        self._best = ""  # that was offered last

    def _count_offers(self) -> None:
        for offered in self.offers:
            self._count_offer(offered)
            self._recent.append(offered)
        self.offers.clear()

    def _count_offer(self, offered: Offered) -> None:
        """Count the best completion, unless it is what is left of the last one."""
        source, text = offered.texts[0]
        name = offered.language or "none"
        self._new[name, source, _OFFERED] += not self._best.endswith(text)
        self._new[name, source, _MILLISECONDS] += offered.milliseconds
        self._best = text

    def note_acceptance(self, *accepted: object) -> Accepted | None:
        """Count what an editor inserted: language, source and characters, unless they cannot be ours.

        Return what to look for later.
        """
        language, source, characters, *_ = (*accepted, None, None, None)
        if not (isinstance(language, str) and isinstance(source, str) and isinstance(characters, int)):
            return None
        if language.isprintable() and source in _SOURCES and 0 < characters <= _MAX_KEYSTROKES:
            name = language[:_MAX_LANGUAGE]
            self._new[name, source, _ACCEPTED] += 1
            self._new[name, source, _KEYSTROKES] += characters - 1  # one accepts it
            if found := self._offered(source, characters):
                self.waiting.append(Accepted(found[0], name, source, found[1]))
                return self.waiting[-1]
        return None

    def _offered(self, source: str, characters: int) -> tuple[str, str] | None:
        """The document and the line of the newest offer of such a completion."""
        self._count_offers()
        for offered in reversed(self._recent):
            for kind, text in offered.texts:
                if (kind, len(text)) == (source, characters):
                    return offered.uri, _unindented(offered.before + text)
        return None

    def judge(self, one: Accepted, text: str) -> None:
        """Count whether it is kept, once, by the text of its document."""
        if one in self.waiting:
            self.waiting.remove(one)
            self._new[one.language, one.source, _KEPT] += one.stands_in(text)

    def take(self) -> Counts:
        """What was counted since the last time."""
        self._count_offers()
        taken = self._new
        self._new = Counter()
        return taken

    def summary(self, folder: Path) -> str:
        """All that was counted on this machine, in a line; "" if nothing was accepted."""
        try:
            total = read_counts(folder) + self._new
        except UserError:
            return ""
        accepted, keystrokes = (_total(total, number) for number in (_ACCEPTED, _KEYSTROKES))
        return f"{accepted} accepted, {keystrokes} keystrokes saved" if accepted else ""


def add_counts(folder: Path, counts: Counts) -> None:
    """Add counts to the file; one that is damaged is set aside. Where nothing can be written they are lost."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(folder / f".{_FILE}.lock"):
            try:
                before = read_counts(folder)
            except UserError:
                log.warning("%s is damaged; it is kept as %s, and a new one begun", folder / _FILE, DAMAGED)
                (folder / _FILE).replace(folder / DAMAGED)
                before = Counter()
            _write(folder, before + counts)
    except (OSError, UserError) as error:
        log.debug("usage is not counted: %s", error)


def _unindented(text: str) -> str:
    """The text without the blanks around its lines: editors indent what they insert, and formatters again."""
    return "\n".join(line.strip() for line in text.splitlines())


def _total(counts: Counts, number: int) -> int:
    return sum(count for (*_, kind), count in counts.items() if kind == number)


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


def _write(folder: Path, counts: Counts) -> None:
    lines = (json.dumps(row) for row in rows_of(counts))
    replace_file(folder / _FILE, [b"[\n" + ",\n".join(lines).encode() + b"\n]\n"])


def rows_of(counts: Counts) -> list[list[Any]]:
    """A row for each language and source: those, and their numbers."""
    names = sorted({(language, source) for language, source, _ in counts})
    numbers = range(len(COLUMNS))
    return [[language, source, *(counts[language, source, n] for n in numbers)] for language, source in names]


def reset(folder: Path) -> None:
    """Forget all counts."""
    (folder / _FILE).unlink(missing_ok=True)
