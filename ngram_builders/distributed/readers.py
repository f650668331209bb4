"""Corpus files -> documents: one per source file, or one per row in JSONL and Parquet. Knows nothing of counting.

A row's text is the field `text`; the field `path`, where there is one, gives the language, and the rules for names
are those for a file in a git work tree. What is damaged is an error that names the place.
"""

from __future__ import annotations

import gzip
import importlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, cast

from ngram_builders.counting.tokenize import text_digest
from ngram_builders.errors import UserError
from ngram_builders.registry.shared_folder import is_address, open_at
from ngram_builders.sources.discovery import OTHER_LANGUAGE
from ngram_builders.sources.filters import (
    UNREADABLE,
    NotSource,
    check_size,
    decode_source,
    read_file,
)
from ngram_builders.sources.language_ids import DATA_LANGUAGES, language_of, related_languages
from ngram_builders.sources.name_rules import check_row_path

# File name ending -> about how many bytes of text a byte holds; only used to cut even shards.
EXPANSION = {".jsonl": 1, ".jsonl.gz": 5, ".jsonl.zst": 5, ".parquet": 3}
_BATCH_ROWS = 100
_PIECE_BYTES = 1 << 18


class CorpusDocument(NamedTuple):
    """A text as an editor holds it, or why it is skipped."""

    text: str
    language: str | None
    skip_reason: str | None
    digest: bytes = b""  # of the text, 16 bytes


def is_corpus(path: str) -> bool:
    """Whether a file holds documents in rows."""
    return path.endswith(tuple(EXPANSION))


def read_documents(paths: Iterable[str], language: str | None) -> Iterator[CorpusDocument]:
    """Read the documents of these files, in order, skipped ones included.

    With a language, rows of other languages are skipped, and rows that name none are taken to be in it. What is
    damaged raises UserError: of a file that was cut, nobody would notice the missing half.
    """
    for path in paths:
        if is_corpus(path):
            for row in _checked_rows(path):
                yield _read_row(row, language)
        else:
            yield _read_source(path)


def _read_source(path: str) -> CorpusDocument:
    """Read a source file."""
    language = language_of(path, DATA_LANGUAGES)
    try:
        return _make_document(read_file(path), path, language)
    except NotSource as reason:
        return CorpusDocument("", language, str(reason))
    except OSError:
        return CorpusDocument("", language, UNREADABLE)


def _checked_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; UserError says where it is damaged."""
    number = 1
    try:
        for number, row in enumerate(_parse_rows(path), 1):
            if not isinstance(row, dict):
                raise ValueError("it holds no JSON object")
            yield row
            number += 1
    except UserError:
        raise
    except Exception as error:  # the libraries raise whatever they do
        raise UserError(f"cannot read row {number} of {path}: {error}; repair or leave out that file") from error


def _read_row(row: dict[str, Any], language: str | None) -> CorpusDocument:
    """Read the document of a row."""
    metadata = row.get("metadata")
    path = row.get("path", metadata.get("path") if isinstance(metadata, dict) else None)
    if isinstance(path, str):
        wanted = None if language is None else related_languages(language)
        language = language_of(path, wanted)
        if (reason := check_row_path(path, wanted)) is not None:
            return CorpusDocument("", language, reason)
        if wanted is not None and language not in wanted:
            return CorpusDocument("", language, OTHER_LANGUAGE)
    text = row.get("text")
    data = text.encode() if isinstance(text, str) else b""
    return _make_document(data, path if isinstance(path, str) else "", language)


def _make_document(data: bytes, path: str, language: str | None) -> CorpusDocument:
    """Check and decode these bytes."""
    if (reason := check_size(len(data), path)) is not None:
        return CorpusDocument("", language, reason)
    text, reason = decode_source(data, path)
    return CorpusDocument(text, language, reason, text_digest(data if reason else text.encode()))


def _parse_rows(path: str) -> Iterator[Any]:
    """Yield what stands in each row of a file."""
    if path.endswith(".parquet"):
        with _open(path) as plain, _import("pyarrow.parquet", path).ParquetFile(plain) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                yield from batch.to_pylist()
    else:
        parse = _import("orjson", path).loads
        yield from (parse(line) for line in _split_lines(_decompress(path)) if line and not line.isspace())


def _decompress(path: str) -> Iterator[bytes]:
    """Read a file of lines in pieces; raises whatever a decompressor does, and EOFError if its end is missing."""
    with _open(path) as file:
        if path.endswith(".zst"):
            yield from _decompress_zstd(file, _import("zstandard", path).ZstdDecompressor())
            return
        with cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.endswith(".gz") else nullcontext(file) as plain:
            while data := plain.read(_PIECE_BYTES):
                yield data


def _open(path: str) -> IO[bytes]:
    """A file on a disk or at an address."""
    return open_at(path) if is_address(path) else Path(path).open("rb")


def _decompress_zstd(file: IO[bytes], decompressor: Any) -> Iterator[bytes]:
    """Decompress frame after frame; the library's own readers take the end of a file for that of a frame."""
    frame = None
    while data := file.read(_PIECE_BYTES):
        while data:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(data)
            data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the file ends within compressed data")


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Split a text that comes in pieces into lines."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _import(module: str, path: str) -> Any:
    """Import what reads such a file; raises UserError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UserError(f"reading {path} needs {package}; run: pip install {package}") from error
