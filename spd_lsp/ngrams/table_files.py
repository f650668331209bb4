"""The files of one n-gram table: which changed since it was built, and what is counted of them until a rebuild.

In: what a table was built from, the disk, and texts of open documents. Out: texts to add to the table's counts and
to subtract, and whether the table should be rebuilt. Nothing is written: a restarted server scans the files again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, thread_time

from ngram_builders.arrays import Ints
from ngram_builders.errors import UserError
from ngram_builders.index.occurrences import SearchedTexts
from ngram_builders.index.query import Signed
from ngram_builders.index.suffix_array import SuffixArray
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.discovery import SourceFile, skip_reason, walk_sources
from ngram_builders.sources.filters import EMPTY, UNREADABLE, read_source_text
from ngram_builders.sources.git_repository import checkout_state, is_git_at_work
from ngram_builders.sources.rules.selection import Selection
from ngram_builders.token_cache import IndexedFiles
from ngram_builders.token_space import with_boundaries
from ngram_builders.tokenized_files import text_digest
from spd_lsp.ngrams.counted_texts import CountedText, SortedTexts
from spd_lsp.ngrams.text_encoder import TextEncoder

Steps = Iterator[None]  # background work that can pause after each step
State = tuple[int, int]  # a file's size and its time of change in nanoseconds

MAX_CHANGED_FILES = 20  # that are counted as they are; of more, a rebuild takes a second
_FILES_PER_STEP = 64  # files checked between two pauses of a scan
_SCAN_PAUSE = 30.0  # seconds between two scans of a table's files
_SCAN_PAUSE_FACTOR = 100  # or so many durations of the last one
_CHECKOUT_PAUSE_FACTOR = 10  # once git has changed files: other programs write its index at every save, too


def state_of(path: str) -> State | None:
    """Return size and modification time of a file, or None if there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


class TableFiles:
    """The files that a table was built from, and those that have another text now."""

    def __init__(
        self,
        table: NgramTable,
        contents: IndexedFiles,
        encoder: TextEncoder,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when files on disk are counted otherwise than before."""
        self.table = table
        self.contents = contents
        self.states: dict[str, State] = {path: (size, time) for path, (size, time, _) in contents.files.items()}
        self.changed: set[str] = set()  # files that changed, appeared or went since the table was built
        self._encoder = encoder
        self._on_change = on_change
        self._selection = Selection.of(table.recipe)
        self._built = {path: digest for path, (_, _, digest) in contents.files.items()}
        self._copies = Counter(self._built.values())
        self._on_disk: dict[str, CountedText | None] = {}  # texts that are not the table's; None: no text
        self._open: dict[str, CountedText | None] = {}  # texts of open documents, counted instead
        self._is_sorted = True
        self._added = SortedTexts()
        self._removed = SortedTexts()
        self._scanned = -_SCAN_PAUSE  # when, on the monotonic clock
        self._scan_seconds = 0.0
        self._checkouts = self._checkout_states()

    # What is counted.

    def put(self, path: str, text: CountedText | None) -> None:
        """Count an open document's text as that of its file; None: count no text."""
        if path not in self._open or self._open[path] is not text:
            self._open[path] = text
            self._is_sorted = False

    def close(self, path: str) -> None:
        """Count a file as it is on disk."""
        if path in self._open:
            del self._open[path]
            self._is_sorted = False

    def differences(self) -> tuple[Signed, ...]:
        """What to add to the table's counts, and what to subtract."""
        self._sort()
        return (*self._added.signed(), *self._removed.signed(-1))

    def searched_texts(
        self, shards: Sequence[SuffixArray], label: Callable[[object], str], trust: float
    ) -> list[SearchedTexts]:
        """The texts to copy from, as they are now: those of the table's shards, and those written since."""
        self._sort()
        found = self._added.searched(label, trust)
        gone = {text.key for text in self._removed.texts}
        for shard, keys in zip(shards, self.contents.documents, strict=True):
            skipped = frozenset(number for number, key in enumerate(keys) if key in gone) if gone else frozenset()
            found.append(SearchedTexts(shard, skipped, trust, partial(self._holder, keys), label))
        return found

    def _holder(self, keys: Sequence[bytes], document: int) -> tuple[str, None] | None:
        """A file that has the text of a document of the table."""
        now = {**self._on_disk, **self._open}
        files = (path for path, key in self._built.items() if key == keys[document] and path not in now)
        return next(((path, None) for path in files), None)

    def _sort(self) -> None:
        """Sort what was added and removed. A text counts once, however many files have it."""
        if self._is_sorted:
            return
        self._is_sorted = True
        now = {**self._on_disk, **self._open}
        held = {text.key: text for text in now.values() if text is not None}
        self._added.update([text for key, text in held.items() if key not in self._copies])
        replaced = Counter(self._built[path] for path in now if path in self._built)
        known = {text.key: text for text in self._removed.texts}
        removed = []
        for key in (key for key, files in replaced.items() if files == self._copies[key] and key not in held):
            if key in known:
                removed.append(known[key])
            elif (ids := self.contents.ids(key)) is not None:
                removed.append(CountedText("", key, (self._with_boundaries(ids),)))
        self._removed.update(removed)

    # What changed on disk.

    @property
    def is_outdated(self) -> bool:
        """Whether the table should be rebuilt now; never while git is changing its files."""
        return (self.contents.is_old or len(self.changed) > MAX_CHANGED_FILES) and not self._is_being_changed

    @property
    def is_scan_due(self) -> bool:
        """Whether to look at all files: after a while, or once git has changed some and is done."""
        passed = monotonic() - self._scanned
        is_late = passed > max(_SCAN_PAUSE, _SCAN_PAUSE_FACTOR * self._scan_seconds)
        is_due = is_late or (
            passed > _CHECKOUT_PAUSE_FACTOR * self._scan_seconds and self._checkout_states() != self._checkouts
        )
        return is_due and not self._is_being_changed

    def scan_soon(self) -> None:
        """Look at all files next."""
        self._scanned = -float("inf")

    def scan(self) -> Steps:
        """Find the files that changed on disk, and read them, in steps."""
        began = thread_time()
        self._scanned = monotonic()
        self._checkouts = self._checkout_states()
        missing = set(self.states)
        unreadable = []
        changed = []
        for root in self.table.roots:
            for number, (path, verdict) in enumerate(walk_sources(str(root), self._selection)):
                if number % _FILES_PER_STEP == 0:
                    yield
                if isinstance(verdict, SourceFile):
                    missing.discard(path)
                    if self.states.get(path) != (verdict.size, verdict.mtime_ns):
                        changed.append(path)
                elif verdict.reason == UNREADABLE:
                    unreadable.append(path)
        self._scan_seconds = thread_time() - began
        changed += [path for path in sorted(missing) if not path.startswith(tuple(unreadable))]
        yield from self._read_all(changed)

    def read_reported(self, paths: Iterable[str]) -> Steps:
        """Read files that are said to have changed, in steps; those that are none of the table's are left out."""
        yield from self._read_all(path for path in paths if path in self.states or self._would_include(Path(path)))

    def _read_all(self, paths: Iterable[str]) -> Steps:
        """Read files in steps, until so many have changed that a rebuild is due."""
        for path in paths:
            if len(self.changed) > MAX_CHANGED_FILES:
                return
            self._read(path)
            yield

    def _read(self, path: str) -> None:
        """Count a file as it is now."""
        state = state_of(path)
        text, fault = read_source_text(path) if state else ("", UNREADABLE)
        key = None if fault else text_digest(text.encode())
        before = self._key_on_disk(path)
        if state is None:
            self.states.pop(path, None)
        else:
            self.states[path] = state
        if key == before:
            return
        if key == self._built.get(path):  # it was changed back
            self.changed.discard(path)
            del self._on_disk[path]
        else:
            self.changed.add(path)
            ids = self._with_boundaries(self._encoder.encode(text).ids)
            self._on_disk[path] = None if key is None else CountedText(path, key, (ids,))
        self._is_sorted = False
        self._on_change()

    def _key_on_disk(self, path: str) -> object:
        """Which text of a file is counted unless it is open."""
        if path in self._on_disk:
            text = self._on_disk[path]
            return None if text is None else text.key
        return self._built.get(path)

    def _would_include(self, path: Path) -> bool:
        """Whether a build would count a file that the table does not contain, or will once it has text."""
        try:
            return any(
                skip_reason(path, root, self._selection) in (None, EMPTY)
                for root in self.table.roots
                if path.is_relative_to(root)
            )
        except (UserError, OSError):  # it is not there
            return False

    @property
    def _is_being_changed(self) -> bool:
        return any(map(is_git_at_work, self.table.roots))

    def _checkout_states(self) -> list[object]:
        return [checkout_state(root) for root in self.table.roots]

    def _with_boundaries(self, ids: Ints) -> Ints:
        return with_boundaries(ids, self._encoder.tokenizer.end_of_text)
