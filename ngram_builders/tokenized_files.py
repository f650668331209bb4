"""Source files -> files whose ids are in the cache. The encoder is passed in: knows no tokenizer.

A file in a state that the cache knows is not read, and a text whose digest it knows is not tokenized. While one
batch is tokenized the next one is read.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ngram_builders.sources.discovery import SourceFile
from ngram_builders.sources.filters import UNREADABLE, NotSource, decode_source, read_file
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of
from ngram_builders.sources.masking import MARK
from ngram_builders.token_cache import FileState, TokenCache

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
ReportProgress = Callable[[str, int, int], None]  # stage, done, total
T = TypeVar("T")

BATCH_FILES = 1_000
_BATCH_CHARACTERS = 1_000_000
SETTLED_NS = 2_000_000_000  # since a file's last change; within it, another change may leave no trace


@dataclass(slots=True)
class _Batch:
    """Some files that were read."""

    files: int = 0  # readable or not
    size: int = 0  # of all of them
    states: list[FileState] = field(default_factory=list)  # of those that could be read
    texts: dict[bytes, str] = field(default_factory=dict)  # to tokenize, by digest


@dataclass(slots=True)
class TokenizedFiles:
    """The files that count, in the order of their paths, and what it took to get there."""

    files: list[FileState] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    reused: int = 0  # files that were not read
    masked: int = 0  # lines that hold a secret, of all distinct texts
    encoded: int = 0  # tokens that were not in the cache
    encoding_seconds: float = 0.0


def tokenize_files(
    files: Sequence[SourceFile], cache: TokenCache, encode: Encode, survey_ns: int, report: ReportProgress
) -> TokenizedFiles:
    """Have the ids of all source files in the cache. survey_ns: a time before the files were surveyed."""
    # 1. Find the files whose states or texts the cache does not know.
    known = set(cache.token_counts())
    states = {
        path: state for path, state in cache.file_states().items() if state.skip_reason or state.digest in known
    }
    changed = [file for file in files if file.path not in states or states[file.path].file != file]
    for file in changed:
        states.pop(file.path, None)
    result = TokenizedFiles(reused=len(files) - len(changed))
    # 2. Read and tokenize them.
    total_bytes = sum(file.size for file in changed)
    bytes_done = 0
    for batch in _in_background(_read_batches(changed, known)):
        started = time.perf_counter()
        ids = (
            [np.asarray(ids, dtype=np.int64) for ids in encode(list(batch.texts.values()))] if batch.texts else []
        )
        result.encoding_seconds += time.perf_counter() - started
        result.encoded += sum(map(len, ids))
        settled, unsettled = [], []
        for state in batch.states:
            if max(state.file.mtime_ns, state.file.ctime_ns) < survey_ns - SETTLED_NS:
                settled.append(state)
            else:
                unsettled.append(state.file.path)
        cache.add(dict(zip(batch.texts, ids, strict=True)), settled, unsettled)
        states.update((state.file.path, state) for state in batch.states)
        result.skipped[UNREADABLE] += batch.files - len(batch.states)
        bytes_done += batch.size
        report("bytes", bytes_done, total_bytes)
    # 3. Account for every file.
    masked: dict[bytes, int] = {}
    for state in (states[file.path] for file in files if file.path in states):
        if state.skip_reason:
            result.skipped[state.skip_reason] += 1
        else:
            masked[state.digest] = state.masked
            result.files.append(state)
    result.masked = sum(masked.values())
    return result


def text_digest(data: bytes) -> bytes:
    """Return the digest by which equal texts are known."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _read_batches(files: Iterable[SourceFile], known: set[bytes]) -> Iterator[_Batch]:
    """Read files in batches that keep an encoder's threads busy and its memory small."""
    batch = _Batch()
    characters = 0
    for file in files:
        batch.files += 1
        batch.size += file.size
        with suppress(OSError):  # it was there in the survey
            try:
                data = read_file(file.path)
                text, skip_reason = decode_source(data, file.path)
            except NotSource as reason:
                data, text, skip_reason = b"", "", str(reason)
            digest = text_digest(data if skip_reason else text.encode())
            batch.states.append(FileState(file, digest, skip_reason, text.count(MARK)))
            if not skip_reason and digest not in known:
                known.add(digest)
                batch.texts[digest] = text
                characters += len(text)
        if batch.files >= BATCH_FILES or characters >= _BATCH_CHARACTERS:
            yield batch
            batch = _Batch()
            characters = 0
    if batch.files:
        yield batch


def _in_background(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, each made in another thread while the one before is used."""
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        upcoming = worker.submit(next, source, None)
        while (item := upcoming.result()) is not None:
            upcoming = worker.submit(next, source, None)
            yield item


def count_languages(files: Iterable[FileState]) -> Mapping[str, int]:
    """Count the distinct texts by language; the first path of a text decides its language."""
    languages: dict[bytes, str] = {}
    for state in files:
        languages.setdefault(state.digest, language_of(state.file.path, DATA_LANGUAGES) or "other")
    return Counter(languages.values())
