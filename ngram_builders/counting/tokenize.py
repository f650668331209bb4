"""Files that may be source -> documents whose ids the store has. The encoder is passed in: knows no tokenizer.

A file whose state the store knows is not read, and a text whose digest it knows is not tokenised. While one batch
is tokenised the next is read, and the one before is written to the store.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.counting.token_cache import Document, State, Store
from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.filters import UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.masking import find_masked_lines

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
Report = Callable[[str, int, int], None]
T = TypeVar("T")

BATCH_FILES = 1_000
_BATCH_CHARACTERS = 1_000_000
SETTLED = 2_000_000_000  # nanoseconds since a file's last change; sooner, another change may leave no trace


@dataclass(slots=True)
class Batch:
    """Some files on their way."""

    states: list[State] = field(default_factory=list)
    unread: list[SourceFile] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)  # those to tokenise, by digest
    ids: dict[bytes, Ints] = field(default_factory=dict)
    seconds: float = 0.0  # that tokenising took

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(state.found.size for state in self.states) + sum(found.size for found in self.unread)


@dataclass(slots=True)
class Reading:
    """What became of the files."""

    documents: list[Document] = field(default_factory=list)  # in the order of their paths
    left_out: Counter[str] = field(default_factory=Counter)
    reused: int = 0  # files that were not read
    masked: int = 0  # lines that hold a secret, of all texts
    encoded: int = 0  # tokens that were not known
    seconds: float = 0.0  # that tokenising them took


def learn(
    files: Sequence[SourceFile], store: Store, encode: Encode, began_ns: int, report: Report = lambda *stage: None
) -> Reading:
    """See to it that the store has the ids of all files that are source. began_ns: before they were found."""
    states, known = store.states(), store.known()
    reading, found, masked = Reading(), {}, {}
    waiting: list[SourceFile] = []
    for one in files:
        state = states.get(one.path)
        if state is None or state.found != one or not (state.fault or state.digest in known):
            waiting.append(one)
        else:
            found[one.path] = state
    reading.reused = len(found)
    all_bytes = sum(one.size for one in waiting)
    files_done = bytes_done = 0
    for batch in ahead(encoded(ahead(_batches(waiting, set(known))), encode)):
        settled = [state for state in batch.states if _is_settled(state.found, began_ns)]
        store.keep(batch.ids, settled, [s.found.path for s in batch.states if not _is_settled(s.found, began_ns)])
        found.update((state.found.path, state) for state in batch.states)
        reading.left_out[UNREADABLE] += len(batch.unread)
        reading.encoded += sum(map(len, batch.ids.values()))
        reading.seconds += batch.seconds
        files_done += len(batch.states) + len(batch.unread)
        bytes_done += batch.size
        report("files", files_done, len(waiting))
        report("bytes", bytes_done, all_bytes)
    for one in files:
        if (state := found.get(one.path)) is not None and state.fault:
            reading.left_out[state.fault] += 1
        elif state is not None:
            language = language_of(one.path) or "other"
            masked[state.digest] = state.masked
            reading.documents.append(Document(one.path, one.size, one.mtime_ns, state.digest, language))
    reading.masked = sum(masked.values())
    return reading


def _is_settled(found: SourceFile, began_ns: int) -> bool:
    """Whether a later change of the file would show: clocks tick, and one tick can hold two changes."""
    return max(found.mtime_ns, found.ctime_ns) < began_ns - SETTLED


def digest_of(data: bytes) -> bytes:
    """What stands for a text: files that differ in line ends or a byte order mark alone have the same."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _batches(files: Iterable[SourceFile], known: set[bytes]) -> Iterator[Batch]:
    """Files read, in batches that keep an encoder's threads busy and its memory small."""
    batch, characters = Batch(), 0
    for found in files:
        characters += len(take(found, known, batch))
        if len(batch.states) + len(batch.unread) >= BATCH_FILES or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = Batch(), 0
    if batch.states or batch.unread:
        yield batch


def take(found: SourceFile, known: set[bytes], batch: Batch) -> str:
    """Read one file into the batch; its text if that is new."""
    try:
        data = read_file(found.path)
    except NotSource as unfit:
        batch.states.append(State(found, b"", str(unfit)))
        return ""
    except OSError:  # it was there in the survey
        batch.unread.append(found)
        return ""
    text, fault = decode_source(data)
    digest = digest_of(data if fault else text.encode())
    batch.states.append(State(found, digest, fault, len(find_masked_lines(text))))
    if fault is not None or digest in known:
        return ""
    known.add(digest)
    batch.texts[digest] = text
    return text


def encoded(read: Iterable[Batch], encode: Encode) -> Iterator[Batch]:
    """The batches with the ids of their texts."""
    for batch in read:
        if batch.texts:
            started = time.perf_counter()
            ids = [np.asarray(ids, dtype=np.int64) for ids in encode(list(batch.texts.values()))]
            batch.ids = dict(zip(batch.texts, ids, strict=True))
            batch.texts = {}
            batch.seconds = time.perf_counter() - started
        yield batch


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, each made in another thread while the one before is used."""
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = worker.submit(next, source, None)
            yield item


def languages_of(documents: Iterable[Document]) -> Mapping[str, int]:
    """How many distinct texts of each language there are; of copies the first path tells."""
    languages: dict[bytes, str] = {}
    for document in documents:
        languages.setdefault(document.digest, document.language)
    return Counter(languages.values())
