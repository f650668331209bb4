"""Source files -> files whose ids are in the cache. The encoder is passed in: knows no tokenizer.

A file in a state that the cache knows is not read, and a text whose digest it knows is not tokenized. While one
batch is tokenized the next one is read, and the one before is written to the cache.
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
from ngram_builders.counting.layers import IndexedFile
from ngram_builders.counting.token_cache import FileState, TokenCache
from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.filters import UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of
from ngram_builders.sources.masking import find_masked_lines

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
ReportProgress = Callable[[str, int, int], None]  # stage, done, total
T = TypeVar("T")

BATCH_FILES = 1_000
_BATCH_CHARACTERS = 1_000_000
SETTLED_NS = 2_000_000_000  # since a file's last change; within it, another change may leave no trace


@dataclass(slots=True)
class _Batch:
    """Some files on their way to the cache."""

    states: list[FileState] = field(default_factory=list)
    unreadable: list[SourceFile] = field(default_factory=list)
    texts: dict[bytes, str] = field(default_factory=dict)  # to tokenize, by digest
    ids: dict[bytes, Ints] = field(default_factory=dict)
    encoding_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.states) + len(self.unreadable)

    @property
    def bytes(self) -> int:
        """Total size of its files."""
        return sum(state.file.size for state in self.states) + sum(file.size for file in self.unreadable)


@dataclass(slots=True)
class TokenizedFiles:
    """The files that count, in the order of their paths, and what it took to get there."""

    files: list[IndexedFile] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    reused: int = 0  # files that were not read
    masked: int = 0  # lines that hold a secret, of all distinct texts
    encoded: int = 0  # tokens that were not in the cache
    encoding_seconds: float = 0.0


def tokenize_files(
    files: Sequence[SourceFile], cache: TokenCache, encode: Encode, survey_ns: int, report: ReportProgress
) -> TokenizedFiles:
    """Have the ids of all source files in the cache. survey_ns: a time before the files were surveyed."""
    known = cache.token_counts()
    states = {
        path: state for path, state in cache.file_states().items() if state.skip_reason or state.digest in known
    }
    changed = [file for file in files if file.path not in states or states[file.path].file != file]
    result = TokenizedFiles(reused=len(files) - len(changed))
    total_bytes = sum(file.size for file in changed)
    files_done = bytes_done = 0
    for file in changed:
        states.pop(file.path, None)
    for batch in _in_background(_encode_batches(_in_background(_read_batches(changed, set(known))), encode)):
        settled = [state for state in batch.states if _is_settled(state.file, survey_ns)]
        unsettled = [state.file.path for state in batch.states if not _is_settled(state.file, survey_ns)]
        cache.add(batch.ids, settled, unsettled)
        states.update((state.file.path, state) for state in batch.states)
        result.skipped[UNREADABLE] += len(batch.unreadable)
        result.encoded += sum(map(len, batch.ids.values()))
        result.encoding_seconds += batch.encoding_seconds
        files_done = files_done + len(batch)
        bytes_done = bytes_done + batch.bytes
        report("files", files_done, len(changed))
        report("bytes", bytes_done, total_bytes)
    masked: dict[bytes, int] = {}
    for state in (states[file.path] for file in files if file.path in states):
        path, size, mtime_ns = state.file[:3]
        if state.skip_reason:
            result.skipped[state.skip_reason] += 1
        else:
            masked[state.digest] = state.masked
            language = language_of(path, DATA_LANGUAGES) or "other"
            result.files.append(IndexedFile(path, size, mtime_ns, state.digest, language))
    result.masked = sum(masked.values())
    return result


def _is_settled(file: SourceFile, survey_ns: int) -> bool:
    """Whether a later change of the file would show: clocks tick, and one tick can hold two changes."""
    return max(file.mtime_ns, file.ctime_ns) < survey_ns - SETTLED_NS


def text_digest(data: bytes) -> bytes:
    """Return the digest by which equal texts are known."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _read_batches(files: Iterable[SourceFile], known: set[bytes]) -> Iterator[_Batch]:
    """Read files in batches that keep an encoder's threads busy and its memory small."""
    batch = _Batch()
    characters = 0
    for file in files:
        characters += _read_into(batch, file, known)
        if len(batch) >= BATCH_FILES or characters >= _BATCH_CHARACTERS:
            yield batch
            batch = _Batch()
            characters = 0
    if len(batch):
        yield batch


def _read_into(batch: _Batch, file: SourceFile, known: set[bytes]) -> int:
    """Read one file into the batch; return how many characters are to be tokenized."""
    try:
        data = read_file(file.path)
    except NotSource as reason:
        batch.states.append(FileState(file, b"", str(reason)))
        return 0
    except OSError:  # it was there in the survey
        batch.unreadable.append(file)
        return 0
    text, skip_reason = decode_source(data, file.path)
    digest = text_digest(data if skip_reason else text.encode())
    batch.states.append(FileState(file, digest, skip_reason, len(find_masked_lines(text))))
    if skip_reason is not None or digest in known:
        return 0
    known.add(digest)
    batch.texts[digest] = text
    return len(text)


def _encode_batches(batches: Iterable[_Batch], encode: Encode) -> Iterator[_Batch]:
    """Add the ids of each batch's texts."""
    for batch in batches:
        if batch.texts:
            started = time.perf_counter()
            ids = [np.asarray(ids, dtype=np.int64) for ids in encode(list(batch.texts.values()))]
            batch.ids = dict(zip(batch.texts, ids, strict=True))
            batch.texts = {}
            batch.encoding_seconds = time.perf_counter() - started
        yield batch


def _in_background(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, each made in another thread while the one before is used."""
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        upcoming = worker.submit(next, source, None)
        while (item := upcoming.result()) is not None:
            upcoming = worker.submit(next, source, None)
            yield item


def count_languages(files: Iterable[IndexedFile]) -> Mapping[str, int]:
    """Count the distinct texts by language; the first path of a text decides its language."""
    languages: dict[bytes, str] = {}
    for file in files:
        languages.setdefault(file.digest, file.language)
    return Counter(languages.values())
