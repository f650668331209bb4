"""Corpus files -> documents: one per source file, or one per row in JSONL and Parquet. Knows nothing of counting.

datatrove's readers read the rows; a row's text is the field `text`, and the field `path`, where there is one,
gives the language. The same checks as for a repository's files apply: secrets, generated, minified, too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ngram_builders.counting.tokenize import text_digest
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import OTHER_LANGUAGE
from ngram_builders.sources.filters import (
    UNREADABLE,
    NotSource,
    check_size,
    decode_source,
    read_file,
)
from ngram_builders.sources.language_ids import language_of, related_languages
from ngram_builders.sources.name_rules import NOT_SOURCE

# File name ending -> about how many bytes of text a byte holds; only used to cut even shards.
EXPANSION = {".jsonl": 1, ".jsonl.gz": 5, ".jsonl.zst": 5, ".parquet": 3}


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

    With a language, rows of other languages are skipped, and rows that name none are taken to be in it.
    """
    for path in paths:
        if is_corpus(path):
            yield from _read_rows(path, language)
        else:
            yield _read_source(path)


def _read_source(path: str) -> CorpusDocument:
    """Read a source file."""
    language = language_of(path)
    try:
        return _make_document(read_file(path), path, language)
    except NotSource as reason:
        return CorpusDocument("", language, str(reason))
    except OSError:
        return CorpusDocument("", language, UNREADABLE)


def _read_rows(path: str, language: str | None) -> Iterator[CorpusDocument]:
    """Read a file of rows; datatrove passes over rows that are no JSON or have no text."""
    wanted = None if language is None else related_languages(language)
    try:
        for row in _open_reader(path).read_files_shard([path.lstrip("/")]):
            name = row.metadata.get("path")
            row_language = language_of(name) if isinstance(name, str) else language
            if isinstance(name, str) and row_language is None:
                yield CorpusDocument("", None, NOT_SOURCE)
            elif wanted is not None and row_language not in wanted:
                yield CorpusDocument("", row_language, OTHER_LANGUAGE)
            else:
                data = row.text.encode() if isinstance(row.text, str) else b""
                yield _make_document(data, name if isinstance(name, str) else "", row_language)
    except UserError:
        raise
    except Exception as error:  # readers raise whatever their libraries do
        raise UserError(
            f"cannot read {path}: {error}; repair it or leave it out, and run the same command again"
        ) from error


def _make_document(data: bytes, path: str, language: str | None) -> CorpusDocument:
    """Check and decode these bytes."""
    if (reason := check_size(len(data), path)) is not None:
        return CorpusDocument("", language, reason)
    text, reason = decode_source(data, path)
    return CorpusDocument(text, language, reason, text_digest(data if reason else text.encode()))


def _open_reader(path: str) -> Any:
    """Return datatrove's reader for such a file."""
    from datatrove.pipeline.readers import JsonlReader, ParquetReader

    try:
        if path.endswith(".parquet"):
            return ParquetReader("/", batch_size=100)
        return JsonlReader("/", compression="zstd" if path.endswith(".zst") else "infer")
    except ImportError as error:
        missing = "pyarrow" if path.endswith(".parquet") else "orjson"
        raise UserError(f"reading {path} needs {missing}; run: pip install {missing}") from error
