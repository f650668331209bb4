"""The files of one n-gram table: finds those that changed since it was built, and counts them until a rebuild.

In: the files at the build, the disk, and texts of open documents. Out: texts to add to the table's counts and to
subtract, and whether the table should be rebuilt. Nothing is written: a restarted server scans the files again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, thread_time

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.index.mixture import Signed
from ngram_builders.index.suffix_array import SearchedTexts, SuffixArray, build_suffix_array
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.discovery import SourceFile, skip_reason, walk_sources
from ngram_builders.sources.filters import UNREADABLE, read_source_text
from ngram_builders.sources.git_repository import checkout_state, is_git_at_work
from ngram_builders.sources.rules.selection import Selection
from ngram_builders.token_cache import IndexedFiles, text_digest
from ngram_builders.token_space import with_boundaries
from spd_lsp.ngrams.text_encoder import TextEncoder

Steps = Iterator[bool]  # background work that can pause after each step, and whether that changed the counts
State = tuple[int, int]  # a file's size and its time of change in nanoseconds

MAX_CHANGED_FILES = 20  # that are counted as they are; of more, a rebuild takes a second
_SCAN_PAUSE = 30.0  # seconds between two scans of a table's files
_CHECKOUT_PAUSE_FACTOR = 10  # durations of the last scan, once git has changed files; else ten times as many


@dataclass(frozen=True, slots=True)
class CountedText:
    """A text as it is counted: whole, or in two streams around the line with the cursor."""

    holder: str  # the path of its file, or the name of its document
    key: Hashable  # equal keys mean equal text
    streams: tuple[Ints, ...] = field(compare=False)
    lines: int = 0  # line ends, those between two streams included


class SortedTexts:
    """Some texts and their suffix array."""

    def __init__(self) -> None:
        self.texts: Sequence[CountedText] = ()
        self.array: SuffixArray | None = None

    def update(self, texts: Sequence[CountedText]) -> None:
        """Sort these texts, unless that is done: 1 to 10 ms for a file, 100 ms for a million tokens."""
        if texts != self.texts:
            self.texts = texts
            streams = [ids for text in texts for ids in text.streams]
            self.array = build_suffix_array(streams, lists=False) if streams else None

    def signed(self, sign: int = 1) -> tuple[Signed, ...]:
        """The array as a part of a pool of counts; nothing without texts."""
        return () if self.array is None else (Signed(self.array, sign),)

    def searched(self, label: Callable[[object], str], trust: float = 1.0) -> list[SearchedTexts]:
        """The texts to copy from; nothing without texts. label: names a holder for people."""
        if self.array is None:
            return []
        parts = [(text.holder, text.lines if n else None) for text in self.texts for n in range(len(text.streams))]
        return [SearchedTexts(self.array, trust=trust, holder=parts.__getitem__, label=label)]


class TableFiles:
    """The files that a table was built from, and those that have another text now."""

    def __init__(
        self,
        table: NgramTable,
        contents: IndexedFiles,
        encoder: TextEncoder,
        opened: Callable[[], Mapping[str, CountedText | None]],
    ) -> None:
        """opened: the texts of open documents, by their files; they are counted instead. None: no text."""
        self.table = table
        self.contents = contents
        self.states: dict[str, State] = {path: (size, time) for path, (size, time, _) in contents.files.items()}
        self.changed: dict[str, CountedText | None] = {}  # files whose text is not the table's; None: no text
        self._opened = opened
        self._encoder = encoder
        self._selection = Selection.of(table.recipe)
        self._built = {path: digest for path, (_, _, digest) in contents.files.items()}
        self._copies = Counter(self._built.values())
        self._replaced: dict[bytes, CountedText] = {}  # texts of the table that were subtracted once
        self._added = SortedTexts()
        self._removed = SortedTexts()
        self._scanned = -float("inf")  # when, on the monotonic clock
        self._scan_seconds = 0.0
        self._checkouts = list(map(checkout_state, self.table.roots))

    # What is counted.

    def differences(self) -> tuple[Signed, ...]:
        """What to add to the table's counts, and to subtract. A text counts once, however many files have it."""
        now = self._now()
        held = {text.key: text for text in now.values() if text is not None}
        self._added.update([text for key, text in held.items() if key not in self._copies])
        replaced = Counter(self._built[path] for path in now if path in self._built)
        removed = [key for key, files in replaced.items() if files == self._copies[key] and key not in held]
        for key in removed:
            if key not in self._replaced and (ids := self.contents.ids(key)) is not None:
                self._replaced[key] = CountedText(
                    "", key, (with_boundaries(ids, self._encoder.tokenizer.end_of_text),)
                )
        self._removed.update([self._replaced[key] for key in removed if key in self._replaced])
        return (*self._added.signed(), *self._removed.signed(-1))

    def searched_texts(
        self, shards: Sequence[SuffixArray], label: Callable[[object], str], trust: float
    ) -> list[SearchedTexts]:
        """The texts to copy from, as `differences` counted them: those of the table's shards, and those since."""
        found = self._added.searched(label, trust)
        removed = {text.key for text in self._removed.texts}
        for shard, keys in zip(shards, self.contents.documents, strict=True):
            skipped = (
                frozenset(number for number, key in enumerate(keys) if key in removed) if removed else frozenset()
            )
            found.append(SearchedTexts(shard, skipped, trust, partial(self._holder, keys), label))
        return found

    def _holder(self, keys: Sequence[bytes], document: int) -> tuple[str, None] | None:
        """A file that has the text of a document of the table."""
        now = self._now()
        files = (path for path, key in self._built.items() if key == keys[document] and path not in now)
        return next(((path, None) for path in files), None)

    def _now(self) -> dict[str, CountedText | None]:
        """The texts that are counted instead of those of the table."""
        return {**self.changed, **{path: text for path, text in self._opened().items() if path in self.states}}

    # What changed on disk.

    @property
    def is_outdated(self) -> bool:
        """Whether the table should be rebuilt now; never while git is changing its files."""
        is_due = self.contents.is_old or len(self.changed) > MAX_CHANGED_FILES
        return is_due and not any(map(is_git_at_work, self.table.roots))

    @property
    def is_scan_due(self) -> bool:
        """Whether to look at all files: after a while, or once git has changed some and is done."""
        is_new = list(map(checkout_state, self.table.roots)) != self._checkouts
        pause = _CHECKOUT_PAUSE_FACTOR * self._scan_seconds
        is_due = monotonic() - self._scanned > (pause if is_new else max(_SCAN_PAUSE, 10 * pause))
        return is_due and not any(map(is_git_at_work, self.table.roots))

    def scan_soon(self) -> None:
        """Look at all files next."""
        self._scanned = -float("inf")

    def scan(self) -> Steps:
        """Find the files that changed on disk, and read them, in steps."""
        began = thread_time()
        self._scanned = monotonic()
        self._checkouts = list(map(checkout_state, self.table.roots))
        missing = set(self.states)
        unreadable = []
        changed = []
        for root in self.table.roots:
            for path, verdict in walk_sources(str(root), self._selection):
                yield False
                if isinstance(verdict, SourceFile):
                    missing.discard(path)
                    if self.states.get(path) != (verdict.size, verdict.mtime_ns):
                        changed.append(path)
                elif verdict.reason == UNREADABLE:
                    unreadable.append(path)
        self._scan_seconds = thread_time() - began
        changed += [path for path in sorted(missing) if not path.startswith(tuple(unreadable))]
        yield from self.read(changed, are_sources=True)

    def read(self, paths: Iterable[str], *, are_sources: bool = False) -> Steps:
        """Read files in steps, but none that a build would skip, until so many have changed that one is due.

        are_sources: whether the names are known to be those of sources, so that each file is read once.
        """
        for path in paths:
            if len(self.changed) > MAX_CHANGED_FILES:
                return
            if are_sources or path in self.states or self._is_source(Path(path)):
                yield self._read(path)

    def _is_source(self, path: Path) -> bool:
        around = (root for root in self.table.roots if path.is_relative_to(root))
        with suppress(UserError, OSError):  # it is not there
            return any(skip_reason(path, root, self._selection) is None for root in around)
        return False

    def _read(self, path: str) -> bool:
        """Count a file as it is now. -> whether its text is another one than before"""
        try:
            status = os.lstat(path)
            self.states[path] = status.st_size, status.st_mtime_ns
            text, fault = read_source_text(path)
        except (OSError, ValueError):  # there is none
            self.states.pop(path, None)
            text, fault = "", UNREADABLE
        key = None if fault else text_digest(text.encode())
        known = self.changed.get(path)
        if key == (known and known.key if path in self.changed else self._built.get(path)):
            return False
        if key == self._built.get(path):  # it was changed back
            del self.changed[path]
        else:
            ids = with_boundaries(self._encoder.encode(text), self._encoder.tokenizer.end_of_text)
            self.changed[path] = None if key is None else CountedText(path, key, (ids,))
        return True
