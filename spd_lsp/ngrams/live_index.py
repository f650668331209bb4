"""N-grams of what is being written: open buffers, accepted completions and files changed since a table was built.

In: open documents, the cursor, the completions shown there. Out: columns of signed counts, one set for each synced
domain and one for open files of no domain. Knows neither LSP nor models.

The cursor's line is not counted, or text right of the cursor would predict itself. So typing within a line costs
nothing, and leaving it counts it. Everything runs in one thread; what takes long is done in `run_idle_work`.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np

from ngram_builders.ngrams import stream
from ngram_builders.registry.domains import Domain
from ngram_builders.sources.filters import MAX_SOURCE_BYTES, decode_source
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.sources.secret_files import is_secret
from ngram_builders.table.format import Columns
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from spd_lsp.ngrams.document_changes import DocumentChange, OpenDocument
from spd_lsp.ngrams.file_sync import DomainSync, TableContents, text_digest
from spd_lsp.ngrams.incremental_tokenizer import EncodedText, IncrementalTokenizer

Hole = tuple[int, int]  # the line that is left out, in characters
Work = Iterator[None]  # pauses between its steps

_MAX_IMMEDIATE = 20_000  # new characters encoded before a completion; about 20 ms
MAX_FILES_AT_ONCE = 2_000  # of a domain, listed before a completion; about 5 ms
MAX_ACCEPTED = 50  # accepted completions that count
_MIN_ACCEPTED_LENGTH = 3  # characters; shorter texts may as well be typed
_MIN_SCAN_PAUSE = 30.0  # seconds between two scans of a domain
_SCAN_PAUSE_FACTOR = 100  # pause before the next scan, in durations of the last one


@dataclass(slots=True)
class Buffer:
    """An open document, and what is counted of it."""

    opened: OpenDocument
    place: str  # its file's real path; its name if it has none
    hole: Hole | None
    encoded: EncodedText | None = None
    document: CountedText | None = None  # None if nothing is to be counted


@dataclass(frozen=True, slots=True)
class Offer:
    """What was offered where."""

    name: str = ""
    source: str = ""
    cursor: int = 0
    texts: tuple[str, ...] = ()

    def accepted(self, opened: OpenDocument) -> int:
        """Where the accepted text ends if the document grew by exactly one that was offered, else 0."""
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
        self.at = ""  # the document with the cursor
        self.offer = Offer()
        self.accepted: list[Accepted] = []
        self.tables: dict[str, Path] = {}  # of each domain that was asked for, by its name
        self.synced: dict[str, DomainSync] = {}  # those of them whose contents are known
        self.unassigned: dict[frozenset[str], Ledger] = {}  # by kin of languages: open files of no domain
        self.serial = itertools.count()
        self.deferred: dict[str, None] = {}  # documents that are read between requests
        self.due: dict[str, float] = {}  # when each domain is to be scanned, or asked for again
        self.queue: deque[Work] = deque()

    # What the editor says.

    def update_documents(self, news: Mapping[str, DocumentChange], asked: str = "") -> None:
        """Take over what became of documents; the one that is asked for is shown by `attend`."""
        for name, one in news.items():
            if one.document is None:
                self.close(name)
                continue
            if one.saved:
                self.on_saved(name)
            if name != asked:
                self.show(one.document.plain, None)

    def set_active(self, opened: OpenDocument, cursor: int) -> None:
        """Take over the document that a completion is asked for; its line with the cursor is left out.

        Its lines end in "\\n", as tokens know them: `context.plain` makes them so and moves the cursor with them.
        """
        if self.at != opened.name and self.at in self.buffers:
            self.show(self.buffers[self.at].opened, None)
        self.at = opened.name
        self.show(opened, line_around(opened.text, cursor))

    def record_offer(self, opened: OpenDocument, cursor: int, texts: Iterable[str]) -> None:
        """Remember the completions shown, to detect which one is accepted."""
        chosen = tuple(text for text in texts if len(text.strip()) >= _MIN_ACCEPTED_LENGTH)
        self.offer = Offer(opened.name, opened.text, cursor, chosen)

    # What the tables' users ask.

    def columns(self, domain: Domain, read: Callable[[], TableContents | None]) -> tuple[Columns, ...]:
        """What belongs to the counts of a domain's table; from the first call on it is kept up to date.

        `read` says what the table contains. If that is not known there is nothing to start from, and no overlay.
        """
        name, now = domain.name, time.monotonic()
        if self.tables.get(name) != domain.path or (name not in self.synced and self.due[name] <= now):
            self.tables[name], self.due[name] = domain.path, now + _MIN_SCAN_PAUSE
            self.synced.pop(name, None)
            self.queue.append(self.following(domain, read))
            if domain.files <= MAX_FILES_AT_ONCE:
                deque(self.queue[-1], maxlen=0)
        return self.synced[name].ledger.overlay.columns if name in self.synced else ()

    def outdated_domains(self) -> list[Domain]:
        """Return the domains that should be rebuilt."""
        return [one.domain for one in self.synced.values() if one.is_outdated]

    def open_files(self, language: str | None) -> tuple[Columns, ...]:
        """Return the counts of open files in this language that belong to no domain."""
        return next((ledger.overlay.columns for kin, ledger in self.unassigned.items() if language in kin), ())

    def following(self, domain: Domain, read: Callable[[], TableContents | None]) -> Work:
        """Keep a domain up to date from now on."""
        contents = read()
        yield
        if contents is not None and self.tables.get(domain.name) == domain.path:
            self.synced[domain.name] = DomainSync(
                domain,
                contents,
                self.tokenizer,
                end_of_text=self.end_of_text,
                vocab_size=self.vocab_size,
                is_open=self.is_open,
            )
            self.due[domain.name] = time.monotonic()
            self.assign_all()

    def retain(self, domains: Iterable[str]) -> None:
        """Drop all other domains."""
        for name in self.tables.keys() - set(domains):
            del self.tables[name]
            if self.synced.pop(name, None):
                self.assign_all()

    def is_open(self, place: str) -> bool:
        """Whether an open buffer replaces this file."""
        return any(buffer.place == place for buffer in self.buffers.values())

    # Buffers.

    def show(self, opened: OpenDocument, hole: Hole | None) -> None:
        """Count the text of a document."""
        self.detect_acceptance(opened)
        buffer = self.buffers.get(opened.name)
        if buffer is not None and buffer.opened.language != opened.language:
            self.close(opened.name)
            buffer = None
        if buffer is not None and _alike(buffer, opened, hole):
            buffer.opened, buffer.hole = opened, hole
            return
        if buffer is None:
            buffer = self.buffers[opened.name] = Buffer(opened, _place_of(opened), hole)
            buffer.encoded = self.from_table(buffer)
        buffer.opened, buffer.hole = opened, hole
        known = len(buffer.encoded.data) if buffer.encoded else 0
        # A document without the cursor can wait, unless little of it is new.
        if opened.name in self.deferred or len(opened.text) - known > (_MAX_IMMEDIATE if hole or known else 0):
            self.deferred[opened.name] = None
        else:
            self.read(buffer)

    def from_table(self, buffer: Buffer) -> EncodedText | None:
        """A file's text as a table contains it, so that only what differs has to be read."""
        for one in self.synced.values():
            streams = one.ledger.streams_of(buffer.place)
            if streams:
                return self.tokenizer.from_ids(streams[0][1:-1])
        return None

    def read(self, buffer: Buffer) -> None:
        """Encode a buffer where it changed, and count it."""
        said = _clean(buffer.opened.text)
        text = _countable(buffer.opened, said)
        if text is None:
            buffer.encoded = buffer.document = None
        else:
            hole = buffer.hole and _moved(buffer.hole, said, text)
            buffer.encoded = self.tokenizer.update(buffer.encoded, text)
            buffer.document = self.document(buffer.encoded, text, hole)
        self.assign(buffer)

    def document(self, encoded: EncodedText, text: str, hole: Hole | None) -> CountedText:
        """What is counted of a text: all of it, or what stands before and after the hole."""
        if hole is None:
            return CountedText(text_digest(encoded.data), (stream(encoded.ids, self.end_of_text),))
        start, end = hole
        if encoded.ends is None:
            before, after = (self.tokenizer.encode(part).ids for part in (text[:start], text[end:]))
        else:
            before, after = encoded.around(len(text[:start].encode()), len(text[:end].encode()))
        mark = [self.end_of_text]
        return CountedText(next(self.serial), (np.concatenate((mark, before)), np.concatenate((after, mark))))

    def assign(self, buffer: Buffer) -> None:
        """Put what is counted of a buffer to the domains that own its file, or else to the open files."""
        held = [one for one in self.accepted if one.name == buffer.opened.name]
        documents: dict[Hashable, CountedText | None] = {one: one.document for one in held}
        documents[buffer.place] = buffer.document
        owners = [one.ledger for one in self.synced.values() if buffer.opened.path and one.includes(buffer.place)]
        for place, document in documents.items():
            for ledger in owners:
                ledger.put(place, document)
            self.put_unassigned(buffer.opened, place, None if owners else document)

    def put_unassigned(self, opened: OpenDocument, place: Hashable, document: CountedText | None) -> None:
        """Put a document to the open files of its language, or take it from there."""
        language = opened.language or language_of(PurePath(opened.name))
        if language is not None:
            kin = related_languages(language)
            if document is not None:
                self.unassigned.setdefault(kin, Ledger(Overlay(vocab_size=self.vocab_size)))
            if kin in self.unassigned:
                self.unassigned[kin].put(place, document)

    def assign_all(self) -> None:
        """Assign every buffer to its domains again."""
        for name, buffer in self.buffers.items():
            if name not in self.deferred:
                self.assign(buffer)

    def on_saved(self, name: str) -> None:
        """A document was saved: its file may now belong to a domain."""
        if (buffer := self.buffers.get(name)) is not None:
            for one in self.synced.values():
                one.inclusion.pop(buffer.place, None)
            if name not in self.deferred:
                self.assign(buffer)

    def close(self, name: str) -> None:
        """Drop what a document adds to its file."""
        self.deferred.pop(name, None)
        self.forget(one for one in self.accepted if one.name == name)
        if (buffer := self.buffers.get(name)) is None:
            return
        self.show(buffer.opened, None)  # what was saved of it need not be read again
        del self.buffers[name]
        self.put_unassigned(buffer.opened, buffer.place, None)
        for one in self.synced.values():
            if one.includes(buffer.place):
                work = one.sync_file(buffer.place)
                next(work, None)  # done with it, unless the file is long
                self.queue.append(work)

    # Accepted completions.

    def detect_acceptance(self, opened: OpenDocument) -> None:
        """Detect an accepted completion, and drop accepted ones that were deleted since."""
        self.forget(one for one in self.accepted if one.name == opened.name and one.text not in opened.text)
        if not (end := self.offer.accepted(opened)):
            return
        line = opened.text[max(0, opened.text.rfind("\n", 0, self.offer.cursor)) : end]
        self.offer = Offer()
        if _countable(opened, _clean(line)) == _clean(line):  # with a secret in it, it is not
            ids = self.tokenizer.encode(_clean(line)).ids
            self.accepted.append(Accepted(opened.name, line, CountedText(next(self.serial), (ids,))))
            self.forget(self.accepted[:-MAX_ACCEPTED])
            self.assign_all()

    def forget(self, accepted: Iterable[Accepted]) -> None:
        """Stop counting accepted lines."""
        for one in list(accepted):
            self.accepted.remove(one)
            for ledger in (*(domain.ledger for domain in self.synced.values()), *self.unassigned.values()):
                ledger.put(one, None)

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Run background work for about this long; whether there is more."""
        end = time.monotonic() + seconds
        while work := self.next_work():
            for _ in work:
                if time.monotonic() >= end:
                    return True
            self.queue.popleft()
        return False

    def next_work(self) -> Work | None:
        """Return the head of the queue: work begun, then deferred documents, then scans of the disk."""
        if not self.queue:
            self.queue.extend(self.read_deferred(name) for name in self.deferred)
        if not self.queue:
            now = time.monotonic()
            self.queue.extend(self.scan(name) for name in self.synced if self.due[name] <= now)
        return self.queue[0] if self.queue else None

    def read_deferred(self, name: str) -> Work:
        """Encode a long document in steps; changes made meanwhile are encoded at the end."""
        buffer = self.buffers.get(name)
        if buffer is not None and (text := _countable(buffer.opened, _clean(buffer.opened.text))) is not None:
            buffer.encoded = yield from self.tokenizer.encode_in_steps(text)
        self.deferred.pop(name, None)
        if (buffer := self.buffers.get(name)) is not None:
            self.read(buffer)

    def scan(self, name: str) -> Work:
        """Scan a domain's files for changes, and schedule the next scan."""
        one, spent, started = self.synced.get(name), 0.0, time.monotonic()
        for step in one.scan() if one else ():
            spent += time.monotonic() - started
            yield step
            started = time.monotonic()
        self.due[name] = time.monotonic() + max(_MIN_SCAN_PAUSE, _SCAN_PAUSE_FACTOR * spent)


def _countable(opened: OpenDocument, text: str) -> str | None:
    """What may be counted of a document: code that someone wrote, secrets masked; None if nothing may."""
    if is_secret(opened.path or PurePath(opened.name)) or len(text) > MAX_SOURCE_BYTES:
        return None
    masked, fault = decode_source(text.encode())
    return masked if fault is None else None


def _clean(text: str) -> str:
    """Replace lone surrogates, which no tokenizer accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _place_of(opened: OpenDocument) -> str:
    """What a domain knows a document's file by."""
    try:
        return str(opened.path.resolve()) if opened.path else opened.name
    except (OSError, RuntimeError):  # links in a circle
        return opened.name


def line_around(text: str, cursor: int) -> Hole:
    """From the start of the cursor's line to that of the next. Example: ("a\\nbc\\nd", 3) -> (2, 5)."""
    end = text.find("\n", cursor)
    return text.rfind("\n", 0, cursor) + 1, end + 1 if end >= 0 else len(text)


def _moved(hole: Hole, text: str, masked: str) -> Hole:
    """Where a line of a text stands once other lines are masked: as many lines are before it."""
    if masked == text:
        return hole
    before = masked.split("\n")[: text.count("\n", 0, hole[0])]
    return line_around(masked, sum(map(len, before)) + len(before))


def _alike(buffer: Buffer, opened: OpenDocument, hole: Hole | None) -> bool:
    """Whether a document differs from what was shown last by nothing but what is in the hole."""
    old, new = buffer.opened.text, opened.text
    if hole is None or buffer.hole is None:
        return hole is None and buffer.hole is None and old == new
    (start, end), (new_start, new_end) = buffer.hole, hole
    return start == new_start and old[:start] == new[:start] and old[end:] == new[new_end:]
