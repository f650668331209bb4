"""N-grams of what is being written: open buffers, accepted completions and files changed since a table was built.

In: what an editor's documents say, where the cursor is, what was offered there. Out: columns of signed counts, one
set for each domain that is followed and one for open files that belong to none. Knows neither LSP nor models.

The line that holds the cursor is not counted: text right of the cursor would else predict itself. So typing within
a line costs nothing, and leaving it counts it. Everything runs in one thread; what takes long is done in `tidy`.
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

_AT_ONCE = 20_000  # characters not seen before that are read before a completion; about 20 ms
FEW = 2_000  # files of a domain whose list is read before a completion; about 5 ms
ACCEPTED = 50  # completions that are remembered as accepted
_LEAST_ACCEPTED = 3  # characters; less is as likely typed
_REST = 30.0  # seconds between two scans of a domain
_LAZINESS = 100  # times the last scan's duration that passes before the next


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
    """What the buffers and the disk say now, beside what the tables contain."""

    def __init__(self, retokeniser: IncrementalTokenizer, *, end_of_text: int, vocab_size: int) -> None:
        self.retokeniser = retokeniser
        self.end_of_text = end_of_text
        self.vocab_size = vocab_size
        self.buffers: dict[str, Buffer] = {}
        self.at = ""  # the document with the cursor
        self.offer = Offer()
        self.accepted: list[Accepted] = []
        self.tables: dict[str, Path] = {}  # of each domain that was asked for, by its name
        self.followed: dict[str, DomainSync] = {}  # those of them whose contents are known
        self.loose: dict[frozenset[str], Ledger] = {}  # by kin of languages: open files of no domain
        self.serial = itertools.count()
        self.late: dict[str, None] = {}  # documents that are read between requests
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
                self.reconsider(name)
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
        """Remember what was offered, so that its acceptance is noticed."""
        chosen = tuple(text for text in texts if len(text.strip()) >= _LEAST_ACCEPTED)
        self.offer = Offer(opened.name, opened.text, cursor, chosen)

    # What the tables' users ask.

    def columns(self, domain: Domain, read: Callable[[], TableContents | None]) -> tuple[Columns, ...]:
        """What belongs to the counts of a domain's table; from the first call on it is kept up to date.

        `read` says what the table contains. If that is not known there is nothing to start from, and no overlay.
        """
        name, now = domain.name, time.monotonic()
        if self.tables.get(name) != domain.path or (name not in self.followed and self.due[name] <= now):
            self.tables[name], self.due[name] = domain.path, now + _REST
            self.followed.pop(name, None)
            self.queue.append(self.following(domain, read))
            if domain.files <= FEW:
                deque(self.queue[-1], maxlen=0)
        return self.followed[name].ledger.overlay.columns if name in self.followed else ()

    def outgrown(self) -> list[Domain]:
        """The domains that are better built again."""
        return [one.domain for one in self.followed.values() if one.outgrown]

    def open_files(self, language: str | None) -> tuple[Columns, ...]:
        """What open files of such a language say that belong to no domain."""
        ledger = self.loose.get(related_languages(language)) if language else None
        return ledger.overlay.columns if ledger else ()

    def following(self, domain: Domain, read: Callable[[], TableContents | None]) -> Work:
        """Keep a domain up to date from now on."""
        contents = read()
        yield
        if contents is not None and self.tables.get(domain.name) == domain.path:
            self.followed[domain.name] = DomainSync(
                domain,
                contents,
                self.retokeniser,
                end_of_text=self.end_of_text,
                vocab_size=self.vocab_size,
                is_open=self.is_open,
            )
            self.due[domain.name] = time.monotonic()
            self.place_all()

    def keep(self, domains: Iterable[str]) -> None:
        """Let go of all other domains."""
        for name in self.tables.keys() - set(domains):
            del self.tables[name]
            if self.followed.pop(name, None):
                self.place_all()

    def is_open(self, place: str) -> bool:
        """Whether a document speaks for this file."""
        return any(buffer.place == place for buffer in self.buffers.values())

    # Buffers.

    def show(self, opened: OpenDocument, hole: Hole | None) -> None:
        """Count what a document says."""
        self.notice(opened)
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
        if opened.name in self.late or len(opened.text) - known > (_AT_ONCE if hole or known else 0):
            self.late[opened.name] = None
        else:
            self.read(buffer)

    def from_table(self, buffer: Buffer) -> EncodedText | None:
        """A file's text as a table contains it, so that only what differs has to be read."""
        for one in self.followed.values():
            streams = one.ledger.streams_of(buffer.place)
            if streams:
                return self.retokeniser.spell(streams[0][1:-1])
        return None

    def read(self, buffer: Buffer) -> None:
        """Encode a buffer where it changed, and count it."""
        said = _clean(buffer.opened.text)
        text = _countable(buffer.opened, said)
        if text is None:
            buffer.encoded = buffer.document = None
        else:
            hole = buffer.hole and _moved(buffer.hole, said, text)
            buffer.encoded = self.retokeniser.again(buffer.encoded, text)
            buffer.document = self.document(buffer.encoded, text, hole)
        self.place(buffer)

    def document(self, encoded: EncodedText, text: str, hole: Hole | None) -> CountedText:
        """What is counted of a text: all of it, or what stands before and after the hole."""
        if hole is None:
            return CountedText(text_digest(encoded.data), (stream(encoded.ids, self.end_of_text),))
        start, end = hole
        if encoded.ends is None:
            before, after = (self.retokeniser.encode(part).ids for part in (text[:start], text[end:]))
        else:
            before, after = encoded.around(len(text[:start].encode()), len(text[:end].encode()))
        mark = [self.end_of_text]
        return CountedText(next(self.serial), (np.concatenate((mark, before)), np.concatenate((after, mark))))

    def place(self, buffer: Buffer) -> None:
        """Put what is counted of a buffer to the domains that own its file, or else to the open files."""
        held = [one for one in self.accepted if one.name == buffer.opened.name]
        documents: dict[Hashable, CountedText | None] = {one: one.document for one in held}
        documents[buffer.place] = buffer.document
        owners = [one.ledger for one in self.followed.values() if buffer.opened.path and one.owns(buffer.place)]
        for place, document in documents.items():
            for ledger in owners:
                ledger.put(place, document)
            self.put_loose(buffer.opened, place, None if owners else document)

    def put_loose(self, opened: OpenDocument, place: Hashable, document: CountedText | None) -> None:
        """Put a document to the open files of its language, or take it from there."""
        language = opened.language or language_of(PurePath(opened.name))
        if language is not None:
            kin = related_languages(language)
            if document is not None:
                self.loose.setdefault(kin, Ledger(Overlay(vocab_size=self.vocab_size)))
            if kin in self.loose:
                self.loose[kin].put(place, document)

    def place_all(self) -> None:
        """Put every buffer where it belongs now."""
        for name, buffer in self.buffers.items():
            if name not in self.late:
                self.place(buffer)

    def reconsider(self, name: str) -> None:
        """A document was saved: its file may be a new one of a domain."""
        if (buffer := self.buffers.get(name)) is not None:
            for one in self.followed.values():
                one.judged.pop(buffer.place, None)
            if name not in self.late:
                self.place(buffer)

    def close(self, name: str) -> None:
        """Forget what a document said beyond its file."""
        self.late.pop(name, None)
        self.forget(one for one in self.accepted if one.name == name)
        if (buffer := self.buffers.get(name)) is None:
            return
        self.show(buffer.opened, None)  # what was saved of it need not be read again
        del self.buffers[name]
        self.put_loose(buffer.opened, buffer.place, None)
        for one in self.followed.values():
            if one.owns(buffer.place):
                work = one.look(buffer.place)
                next(work, None)  # done with it, unless the file is long
                self.queue.append(work)

    # Accepted completions.

    def notice(self, opened: OpenDocument) -> None:
        """See whether a document grew by what was offered, and whether what was accepted is still there."""
        self.forget(one for one in self.accepted if one.name == opened.name and one.text not in opened.text)
        if not (end := self.offer.accepted(opened)):
            return
        line = opened.text[max(0, opened.text.rfind("\n", 0, self.offer.cursor)) : end]
        self.offer = Offer()
        if _countable(opened, _clean(line)) == _clean(line):  # with a secret in it, it is not
            ids = self.retokeniser.encode(_clean(line)).ids
            self.accepted.append(Accepted(opened.name, line, CountedText(next(self.serial), (ids,))))
            self.forget(self.accepted[:-ACCEPTED])
            self.place_all()

    def forget(self, accepted: Iterable[Accepted]) -> None:
        """Count accepted lines no more."""
        for one in list(accepted):
            self.accepted.remove(one)
            for ledger in (*(domain.ledger for domain in self.followed.values()), *self.loose.values()):
                ledger.put(one, None)

    # Work between requests.

    def run_idle_work(self, seconds: float) -> bool:
        """Work for about so long on what no request waits for; whether there is more to do."""
        end = time.monotonic() + seconds
        while work := self.next_work():
            for _ in work:
                if time.monotonic() >= end:
                    return True
            self.queue.popleft()
        return False

    def next_work(self) -> Work | None:
        """What is to be done next, left at the head of the queue: what was begun, long documents, the disk."""
        if not self.queue:
            self.queue.extend(self.read_late(name) for name in self.late)
        if not self.queue:
            now = time.monotonic()
            self.queue.extend(self.scan(name) for name in self.followed if self.due[name] <= now)
        return self.queue[0] if self.queue else None

    def read_late(self, name: str) -> Work:
        """Read a long document, with pauses; what changed meanwhile is read again at the end."""
        buffer = self.buffers.get(name)
        if buffer is not None and (text := _countable(buffer.opened, _clean(buffer.opened.text))) is not None:
            buffer.encoded = yield from self.retokeniser.gradually(text)
        self.late.pop(name, None)
        if (buffer := self.buffers.get(name)) is not None:
            self.read(buffer)

    def scan(self, name: str) -> Work:
        """Look for what changed on disk; then let it rest."""
        one, spent, started = self.followed.get(name), 0.0, time.monotonic()
        for step in one.scan() if one else ():
            spent += time.monotonic() - started
            yield step
            started = time.monotonic()
        self.due[name] = time.monotonic() + max(_REST, _LAZINESS * spent)


def _countable(opened: OpenDocument, text: str) -> str | None:
    """What may be counted of a document: code that someone wrote, secrets masked; None if nothing may."""
    if is_secret(opened.path or PurePath(opened.name)) or len(text) > MAX_SOURCE_BYTES:
        return None
    masked, fault = decode_source(text.encode())
    return masked if fault is None else None


def _clean(text: str) -> str:
    """The text without half characters, which no tokenizer reads."""
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
