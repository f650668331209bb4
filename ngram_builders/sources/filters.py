"""A path -> its text as an editor holds it, or why it is no hand-written source. Knows no rules for names.

Whatever encoding the file is in and whatever ends its lines, the text is the same on every system,
and so are tokens and counts. Of a notebook the text is its code. Lines that hold a secret are masked.
"""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any

from ngram_builders.sources.encodings import decode_text, is_binary
from ngram_builders.sources.masking import find_secret_lines, mask
from ngram_builders.sources.unwritten import find_reason

MAX_SOURCE_BYTES = 1_000_000  # larger sources are almost always data or generated
_MAX_NOTEBOOK_BYTES = 10_000_000  # most of it the outputs

SECRET = "secret"
_NOT_FILE = "not a regular file"
EMPTY = "empty"
_TOO_LARGE = "larger than 1 MB"
_TOO_LARGE_NOTEBOOK = "larger than 10 MB"
_BINARY = "binary"
_UNKNOWN = "unknown encoding"
_DAMAGED_NOTEBOOK = "damaged notebook"
UNREADABLE = "unreadable"

_NOTEBOOK_END = ".ipynb"
_OTHER_CODE = re.compile(r"%%(?!time|capture|prun)")  # a cell in another language
_OPEN_FLAGS = os.O_RDONLY
for _flag in ("O_BINARY", "O_NONBLOCK", "O_NOFOLLOW"):  # not every system has each
    _OPEN_FLAGS |= getattr(os, _flag, 0)


class NotSource(Exception):
    """A file that is not read; the text is the reason."""


def read_source_text(path: str) -> tuple[str, str | None]:
    """Return a file's text, or why it is skipped."""
    try:
        return decode_source(read_file(path), path)
    except NotSource as reason:
        return "", str(reason)
    except OSError:
        return "", UNREADABLE


def describe_secrets(path: str) -> dict[int, str]:
    """Return which lines of a file are masked, counted from 1, and the kind of secret in each."""
    try:
        text = _decode(read_file(path), path)[0]
    except (NotSource, OSError):
        return {}
    return find_secret_lines(text)


def read_file(path: str) -> bytes:
    """Read a regular file of a source's size; raises OSError or NotSource, and never waits for a pipe."""
    descriptor = os.open(path, _OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        if (reason := check_status(status, path)) is not None:
            raise NotSource(reason)
        data = os.read(descriptor, status.st_size + 1)
        while check_size(len(data), path) in (None, EMPTY) and (more := os.read(descriptor, MAX_SOURCE_BYTES)):
            data += more
    finally:
        os.close(descriptor)
    return data


def check_status(status: os.stat_result, path: str) -> str | None:
    """Return why a file with this status is skipped, or None."""
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait forever
        return _NOT_FILE
    return check_size(status.st_size, path)


def check_size(size: int, path: str) -> str | None:
    """Return why a file of this many bytes is skipped, or None."""
    if size == 0:
        return EMPTY
    if is_notebook(path):
        return _TOO_LARGE_NOTEBOOK if size > _MAX_NOTEBOOK_BYTES else None
    return _TOO_LARGE if size > MAX_SOURCE_BYTES else None


def is_notebook(path: str) -> bool:
    """Whether a file is a notebook of Jupyter."""
    return path.endswith(_NOTEBOOK_END)


def decode_source(data: bytes, path: str = "") -> tuple[str, str | None]:
    """Return a source's bytes as an editor's text, secrets masked; or why it is skipped."""
    text, reason = _decode(data, path)
    reason = reason or find_reason(text)
    masked = "" if reason else mask(text)
    return masked, reason or (None if masked else SECRET)


def _decode(data: bytes, path: str) -> tuple[str, str | None]:
    """Return bytes as an editor's text, or why they are none."""
    if is_binary(data):
        return "", _BINARY
    try:
        text = decode_text(data)
    except (LookupError, ValueError):
        return "", _UNKNOWN
    if is_notebook(path):
        try:
            text = _replace_lone_surrogates("".join(_code_cells(json.loads(text))))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return "", _DAMAGED_NOTEBOOK
        if len(text) > MAX_SOURCE_BYTES:
            return "", _TOO_LARGE
    return normalize_line_ends(text), None if text else EMPTY


def _code_cells(notebook: Any) -> list[str]:
    """Return the code of a notebook's cells, with a line end each."""
    sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    texts = [source if isinstance(source, str) else "".join(source) for source in sources]
    return [f"{text}\n" for text in texts if text.strip() and not _OTHER_CODE.match(text)]


def _replace_lone_surrogates(text: str) -> str:
    """Join the halves of characters that JSON may hold; replace single ones, which no tokenizer reads."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def normalize_line_ends(text: str) -> str:
    """Return the text with "\\n" for every line end that editors know: "\\r\\n" and a lone "\\r" too."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
