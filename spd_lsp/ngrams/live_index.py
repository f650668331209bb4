"""N-grams of what is being written: open buffers, accepted completions and files changed since a table was built.

In: open documents, the cursor, the completions shown there. Out: columns of signed counts, one set for each synced
domain and one for open files of no domain. Knows neither LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; what takes long is done in `run_idle_work`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

import numpy as np

from ngram_builders.counting.tokenize import text_digest
from ngram_builders.ngrams import stream
from ngram_builders.registry.domains import Domain
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.table.format import Columns
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from spd_lsp.ngrams.file_sync import DomainSync, TableContents, real_path
from spd_lsp.ngrams.incremental_tokenizer import EncodedText, IncrementalTokenizer
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument, OpenNames, clean, countable, place_of

LineSpan = tuple[int, int]  # start and end of the line that is not counted, in characters
Steps = Iterator[None]  # background work that can pause after each step

_MAX_IMMEDIATE = 20_000  # new characters encoded before a completion; about 20 ms
_MAX_FILES_IMMEDIATE = 8  # changed on disk and counted before a completion
MAX_FILES_AT_ONCE = 2_000  # of a domain, listed before a completion; about 5 ms
MAX_ACCEPTED = 50  # accepted completions that count
_MAX_BESIDE = 32  # open documents that a model may read beside one
_MIN_ACCEPTED_LENGTH = 3  # characters; shorter texts may as well be typed
_MIN_SCAN_PAUSE = 30.0  # seconds between two scans of a domain
_SCAN_PAUSE_FACTOR = 100  # pause before the next scan, in durations of the last one
_CHECKOUT_PAUSE_FACTOR = 10  # or once git has changed files: other programs write its index at every save, too


@dataclass(slots=True)
class Buffer:
    """An open document, and its counted text."""

    opened: OpenDocument
    place: str  # the real path of its file, else its name
    excluded: LineSpan | None
    encoded: EncodedText | None = None
    document: CountedText | None = None  # None if nothing is to be counted


@dataclass(frozen=True, slots=True)
class Offer:
    """The completions shown, and where."""

    name: str = ""
    source: str = ""
    cursor: int = 0
    texts: tuple[str, ...] = ()

    def accepted(self, opened: OpenDocument) -> int:
        """Return the end of the accepted text if the document grew by exactly one of the completions, else 0."""
        end = self.cursor + len(opened.text) - len(self.source)
        if opened.name != self.name or opened.text[self.cursor : end] not in self.texts:
            return 0
        return end if opened.text[: self.cursor] == self.source[: self.cursor] else 0


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """A line that was completed: from the line end before it to the end of the accepted text."""

    name: str
    text: str
    document: CountedText


class LiveIndex:
    """Counts of open buffers and changed files, relative to the tables."""

    def __init__(self, tokenizer: IncrementalTokenizer, *, end_of_text: int, vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.end_of_text = end_of_text
        self.vocab_size = vocab_size
        self.buffers: dict[str, Buffer] = {}
        self.names = OpenNames()
        self.active = ""  # the document with the cursor
        self.offer = Offer()
        self.accepted: list[Accepted] = []
        self.tables: dict[str, tuple[Path, ...]] = {}  # of each domain in use, by its name
        self.synced: dict[str, DomainSync] = {}  # the domains whose contents are known
        self.unassigned: dict[frozenset[str], Ledger] = {}  # by kin of languages: open files of no domain
        self.serial = itertools.count()
        self.revision = 0  # changes with what is counted, but for edits of open documents
        self.deferred: dict[str, None] = {}  # documents to be encoded between requests
        self.due: dict[str, tuple[float, float]] = {}  # from when and until when each domain is to be scanned
        self.queue: deque[Steps] = deque()
        self.ended = False

    # Updates from the editor.

    def update_documents(self, changes: Mapping[str, DocumentChange], active: str = "") -> None:
        """Apply changes of documents, except the text of the active one: `set_active` applies that."""
        for name, change in changes.items():
            if change.document is None:
                self.close(name)
                continue
            if change.saved:
                self.on_saved(name)
            if name != active:
                self.show(change.document.plain, None)

    def set_active(self, opened: OpenDocument, cursor: int) -> None:
        """Update the document that a completion is requested for; its line with the cursor is not counted.

        Its lines end in "\\n", as tokens know them: `context.plain` makes them so and moves the cursor with them.
        """
        last, self.active = self.active, opened.name
        if last != opened.name and last in self.buffers:
            self.show(self.buffers[last].opened, None)
            self.assign_again(last)
            self.assign_again(opened.name)
        self.show(opened, line_around(opened.text, cursor))

    def update_files(self, files: Iterable[Path]) -> None:
        """Count files that changed on disk, those first that are gone: a few now, the rest between requests."""
        paths = sorted(map(real_path, files), key=os.path.lexists)
        synced = list(self.synced.values())
        for sync in synced:
            sync.note_changed(paths)
        steps = (step for path in paths for sync in synced for step in sync.sync_changed(path))
        deque(islice(steps, _MAX_FILES_IMMEDIATE), maxlen=0)
        self.queue.append(steps)

    def record_offer(self, opened: OpenDocument, cursor: int, texts: Iterable[str]) -> None:
        """Remember the completions shown, to detect which one is accepted."""
        chosen = tuple(text for text in texts if len(text.strip()) >= _MIN_ACCEPTED_LENGTH)
        self.offer = Offer(opened.name, opened.text, cursor, chosen)

    # Queries.

    def columns(self, domain: Domain, read: Callable[[], TableContents | None]) -> tuple[Columns, ...]:
        """Return the overlay of a domain's table; it is kept up to date from the first call on.

        `read` returns the contents of the table. If they are unknown, there is no overlay.
        """
        name, files, now = domain.name, (domain.path, *domain.segments), time.monotonic()
        if self.tables.get(name) != files or (name not in self.synced and self.due[name][1] <= now):
            self.tables[name], self.due[name] = files, (now, now + _MIN_SCAN_PAUSE)
            self.synced.pop(name, None)
            self.queue.append(self.following(domain, read))
            if domain.files <= MAX_FILES_AT_ONCE:
                deque(self.queue[-1], maxlen=0)
        return self.synced[name].ledger.overlay.columns if name in self.synced else ()

    def outdated_domains(self) -> list[Domain]:
        """Return the domains that should be rebuilt."""
        return [sync.domain for sync in self.synced.values() if sync.is_outdated]

    def open_files(self, language: str | None) -> tuple[Columns, ...]:
        """Return the counts of open files in this language that belong to no domain."""
        return next((ledger.overlay.columns for kin, ledger in self.unassigned.items() if language in kin), ())

    def texts_beside(self, document: OpenDocument) -> list[tuple[str, str]]:
        """Return the files and texts, secrets masked, of the documents in its language that were opened last."""
        others = (one for name, one in reversed(self.buffers.items()) if name != document.name)
        alike = (one for one in others if one.opened.language == document.language)
        read = ((one.place, one.encoded) for one in alike if one.encoded is not None)
        found = [(place, encoded.data.decode(errors="replace")) for place, encoded in islice(read, _MAX_BESIDE)]
        return found[::-1]

    def following(self, domain: Domain, read: Callable[[], TableContents | None]) -> Steps:
        """Keep a domain in sync from now on."""
        contents = read()
        yield
        if contents is not None and self.tables.get(domain.name) == (domain.path, *domain.segments):
            self.synced[domain.name] = DomainSync(
                domain,
                contents,
                self.tokenizer,
                end_of_text=self.end_of_text,
                vocab_size=self.vocab_size,
                is_open=lambda place: any(buffer.place == place for buffer in self.buffers.values()),
                on_change=self.on_change,
            )
            self.on_change()
            self.due[domain.name] = time.monotonic(), time.monotonic()
            self.assign_all()

    def retain(self, domains: Iterable[str]) -> None:
        """Drop all other domains."""
        for name in self.tables.keys() - set(domains):
            del self.tables[name]
            if self.synced.pop(name, None):
                self.on_change()
                self.assign_all()

    def on_change(self) -> None:
        """Other n-grams are counted than before, though no open document was edited."""
        self.revision += 1

    # Buffers.

    def show(self, opened: OpenDocument, excluded: LineSpan | None) -> None:
        """Count the text of a document."""
        self.detect_acceptance(opened)
        buffer = self.buffers.get(opened.name)
        if buffer is not None and buffer.opened.language != opened.language:
            self.close(opened.name)
            buffer = None
        if buffer is not None and _differs_only_in_excluded(buffer, opened, excluded):
            buffer.opened, buffer.excluded = opened, excluded
            return
        if buffer is None:
            buffer = self.buffers[opened.name] = Buffer(opened, place_of(opened), excluded)
            buffer.encoded = self.from_table(buffer)
        buffer.opened, buffer.excluded = opened, excluded
        known = len(buffer.encoded.data) if buffer.encoded else 0
        # A document without the cursor can wait, unless little of it is new.
        if opened.name in self.deferred or len(opened.text) - known > (_MAX_IMMEDIATE if excluded or known else 0):
            self.deferred[opened.name] = None
        else:
            self.read(buffer)

    def from_table(self, buffer: Buffer) -> EncodedText | None:
        """A file's text as a table contains it, so that only what differs has to be read."""
        for sync in self.synced.values():
            streams = sync.ledger.streams_of(buffer.place)
            if streams:
                return self.tokenizer.from_ids(streams[0][1:-1])
        return None

    def read(self, buffer: Buffer) -> None:
        """Encode a buffer where it changed, and count it."""
        cleaned = clean(buffer.opened.text)
        text = countable(buffer.opened, cleaned)
        if text is None:
            buffer.encoded = buffer.document = None
            self.names.drop(buffer.opened.name)
        else:
            self.names.put(buffer.opened.name, buffer.opened.language, text)
            excluded = buffer.excluded and _moved(buffer.excluded, cleaned, text)
            buffer.encoded = self.tokenizer.update(buffer.encoded, text)
            buffer.document = self.document(buffer.encoded, text, excluded)
        self.assign(buffer)

    def document(self, encoded: EncodedText, text: str, excluded: LineSpan | None) -> CountedText:
        """Return the counted text: all of it, or the parts before and after the excluded line."""
        if excluded is None:
            return CountedText(text_digest(encoded.data), (stream(encoded.ids, self.end_of_text),))
        start, end = excluded
        if encoded.ends is None:
            before, after = (self.tokenizer.encode(part).ids for part in (text[:start], text[end:]))
        else:
            before, after = encoded.around(len(text[:start].encode()), len(text[:end].encode()))
        mark = [self.end_of_text]
        return CountedText(next(self.serial), (np.concatenate((mark, before)), np.concatenate((after, mark))))

    def assign(self, buffer: Buffer) -> None:
        """Assign a buffer's counted text to the domains that include its file, or to the open files."""
        documents: dict[Hashable, CountedText | None] = {buffer.place: buffer.document}
        documents |= {line: line.document for line in self.accepted if line.name == buffer.opened.name}
        owners = [one.ledger for one in self.synced.values() if buffer.opened.path and one.includes(buffer.place)]
        # The repository's counts would drown those of the file that is being written.
        is_apart = not owners or buffer.opened.name == self.active
        for place, document in documents.items():
            for ledger in owners:
                ledger.put(place, None if is_apart else document)
            self.put_unassigned(buffer.opened, place, document if is_apart else None)

    def put_unassigned(self, opened: OpenDocument, place: Hashable, document: CountedText | None) -> None:
        """Add a document to the open files of its language, or remove it."""
        language = opened.language or language_of(PurePath(opened.name))
        if language is not None:
            kin = related_languages(language)
            if document is not None:
                self.unassigned.setdefault(kin, Ledger(Overlay(vocab_size=self.vocab_size)))
            if kin in self.unassigned:
                self.unassigned[kin].put(place, document)

    def assign_all(self) -> None:
        """Assign every buffer to its domains again."""
        for name in self.buffers:
            self.assign_again(name)

    def assign_again(self, name: str) -> None:
        """Assign a document's buffer to its domains again, if it was read."""
        if name in self.buffers and name not in self.deferred:
            self.assign(self.buffers[name])

    def on_saved(self, name: str) -> None:
        """A document was saved: its file may now belong to a domain."""
        if (buffer := self.buffers.get(name)) is not None:
            for sync in self.synced.values():
                sync.inclusion.pop(buffer.place, None)
            self.assign_again(name)

    def close(self, name: str) -> None:
        """Stop counting a document's unsaved text."""
        self.deferred.pop(name, None)
        self.forget(line for line in self.accepted if line.name == name)
        if (buffer := self.buffers.get(name)) is None:
            return
        self.show(buffer.opened, None)  # saved text need not be encoded again
        del self.buffers[name]
        self.names.drop(name)
        self.put_unassigned(buffer.opened, buffer.place, None)
        for sync in self.synced.values():
            if sync.includes(buffer.place):
                steps = sync.sync_file(buffer.place)
                next(steps, None)  # finishes unless the file is long
                self.queue.append(steps)

    # Accepted completions.

    def detect_acceptance(self, opened: OpenDocument) -> None:
        """Detect an accepted completion, and drop accepted ones that were deleted since."""
        self.forget(line for line in self.accepted if line.name == opened.name and line.text not in opened.text)
        if not (end := self.offer.accepted(opened)):
            return
        line = opened.text[max(0, opened.text.rfind("\n", 0, self.offer.cursor)) : end]
        self.offer = Offer()
        if countable(opened, clean(line)) == clean(line):  # false if it contains a secret
            ids = self.tokenizer.encode(clean(line)).ids
            self.accepted.append(Accepted(opened.name, line, CountedText(next(self.serial), (ids,))))
            self.forget(self.accepted[:-MAX_ACCEPTED])
            self.assign_again(opened.name)

    def forget(self, accepted: Iterable[Accepted]) -> None:
        """Stop counting accepted lines."""
        for line in list(accepted):
            self.accepted.remove(line)
            for ledger in (*(domain.ledger for domain in self.synced.values()), *self.unassigned.values()):
                ledger.put(line, None)

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Run background work for about this long. Return whether there is more."""
        end = time.monotonic() + seconds
        while steps := self.next_work():
            for _ in steps:
                if time.monotonic() >= end:
                    return True
            if self.queue:  # else another thread has ended the work
                self.queue.popleft()
        return False

    def end(self) -> None:
        """Begin no more background work, and let go of what was begun: it would keep this object alive."""
        self.ended = True
        self.queue.clear()

    def next_work(self) -> Steps | None:
        """Return the head of the queue: work begun, then deferred documents, then scans of the disk."""
        if self.ended:
            return None
        if not self.queue:
            self.queue.extend(self.read_deferred(name) for name in self.deferred)
        if not self.queue:
            now = time.monotonic()
            self.queue.extend(self.scan(name) for name in self.synced if self.is_due(name, now))
        return self.queue[0] if self.queue else None

    def is_due(self, name: str, now: float) -> bool:
        """Whether a domain's files are to be looked at: after a while, or as git has changed them."""
        soonest, latest = self.due[name]
        return latest <= now or (soonest <= now and self.synced[name].is_checked_out_anew)

    def read_deferred(self, name: str) -> Steps:
        """Encode a long document in steps; changes made meanwhile are encoded at the end."""
        buffer = self.buffers.get(name)
        if buffer is not None and (text := countable(buffer.opened, clean(buffer.opened.text))) is not None:
            buffer.encoded = yield from self.tokenizer.encode_in_steps(text)
        self.deferred.pop(name, None)
        if (buffer := self.buffers.get(name)) is not None:
            self.read(buffer)
            self.names.read(but=self.active)
            self.on_change()

    def scan(self, name: str) -> Steps:
        """Scan a domain's files for changes, and schedule the next scan."""
        sync, spent, started = self.synced.get(name), 0.0, time.monotonic()
        for step in sync.scan() if sync else ():
            spent += time.monotonic() - started
            yield step
            started = time.monotonic()
        ended = time.monotonic()
        latest = ended + max(_MIN_SCAN_PAUSE, _SCAN_PAUSE_FACTOR * spent)
        self.due[name] = ended + _CHECKOUT_PAUSE_FACTOR * spent, latest


def line_around(text: str, cursor: int) -> LineSpan:
    """Return the bounds of the cursor's line with its newline. Example: ("a\\nbc\\nd", 3) -> (2, 5)."""
    end = text.find("\n", cursor)
    return text.rfind("\n", 0, cursor) + 1, end + 1 if end >= 0 else len(text)


def _moved(excluded: LineSpan, text: str, masked: str) -> LineSpan:
    """Return the span of the excluded line after other lines were masked: its line number is the same."""
    if masked == text:
        return excluded
    before = masked.split("\n")[: text.count("\n", 0, excluded[0])]
    return line_around(masked, sum(map(len, before)) + len(before))


def _differs_only_in_excluded(buffer: Buffer, opened: OpenDocument, excluded: LineSpan | None) -> bool:
    """Whether a document differs from its last version in the excluded line at most."""
    old, new = buffer.opened.text, opened.text
    if excluded is None or buffer.excluded is None:
        return excluded is None and buffer.excluded is None and old == new
    (start, end), (new_start, new_end) = buffer.excluded, excluded
    return start == new_start and old[:start] == new[:start] and old[end:] == new[new_end:]
