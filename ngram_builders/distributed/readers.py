"""Files of a corpus -> documents: one source each, or one a row in JSONL and Parquet. Knows nothing of counting.

Rows are read by datatrove's readers; their text is the field `text`, and the field `path`, where there is one,
tells the language, and whether it is source at all. Its content is judged as that of a repository's file: secrets,
generated, minified, too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ngram_builders.counting.tokenize import digest_of
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import NOT_SOURCE, OTHER_LANGUAGE
from ngram_builders.sources.filters import (
    MAX_SOURCE_BYTES,
    TOO_LARGE,
    UNREADABLE,
    NotSource,
    decode_source,
    read_file,
)
from ngram_builders.sources.language_ids import language_of, related_languages

# End of a file's name -> how many bytes of text a byte of it holds, about; it only serves to cut even shards.
PACKED = {".jsonl": 1, ".jsonl.gz": 5, ".jsonl.zst": 5, ".parquet": 3}


class Document(NamedTuple):
    """A text as an editor holds it, or why it does not count."""

    text: str
    language: str | None
    fault: str | None
    digest: bytes = b""  # of the text, 16 bytes


def is_corpus(path: str) -> bool:
    """Whether a file holds documents in rows."""
    return path.endswith(tuple(PACKED))


def documents(paths: Iterable[str], language: str | None) -> Iterator[Document]:
    """The documents of these files, in order, those that do not count included.

    With a language, rows of another one do not count, and rows that tell none are taken to be in it.
    """
    for path in paths:
        if is_corpus(path):
            yield from rows(path, language)
        else:
            yield source(path)


def source(path: str) -> Document:
    """The document that a file of source is."""
    language = language_of(path)
    try:
        return judged(read_file(path), language)
    except NotSource as unfit:
        return Document("", language, str(unfit))
    except OSError:
        return Document("", language, UNREADABLE)


def rows(path: str, language: str | None) -> Iterator[Document]:
    """The documents of one file of rows; datatrove passes over rows that are no JSON or have no text."""
    wanted = None if language is None else related_languages(language)
    try:
        for row in reader(path).read_files_shard([path.lstrip("/")]):
            name = row.metadata.get("path")
            found = language_of(name) if isinstance(name, str) else language
            if isinstance(name, str) and found is None:
                yield Document("", None, NOT_SOURCE)
            elif wanted is not None and found not in wanted:
                yield Document("", found, OTHER_LANGUAGE)
            else:
                yield judged(row.text.encode() if isinstance(row.text, str) else b"", found)
    except UserError:
        raise
    except Exception as error:  # readers raise whatever their libraries do
        raise UserError(
            f"cannot read {path}: {error}; repair it or leave it out, and run the same command again"
        ) from error


def judged(data: bytes, language: str | None) -> Document:
    """A document with these bytes."""
    if len(data) > MAX_SOURCE_BYTES:
        return Document("", language, TOO_LARGE)
    text, fault = decode_source(data)
    return Document(text, language, fault, digest_of(data if fault else text.encode()))


def reader(path: str) -> Any:
    """datatrove's reader for such a file."""
    from datatrove.pipeline.readers import JsonlReader, ParquetReader

    try:
        if path.endswith(".parquet"):
            return ParquetReader("/", batch_size=100)
        return JsonlReader("/", compression="zstd" if path.endswith(".zst") else "infer")
    except ImportError as error:
        missing = "pyarrow" if path.endswith(".parquet") else "orjson"
        raise UserError(f"reading {path} needs {missing}; run: pip install {missing}") from error
