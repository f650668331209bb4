"""A source's bytes -> its text, in whatever encoding it was saved. Knows no paths and no rules for what counts.

UTF-8, then what a byte order mark says, what the first two lines declare (PEP 263), and at last what the bytes
look like: Windows-1252 (Latin-1), GBK or Shift-JIS. Of 2,708 pieces of programs and of compressed files, their
NULs cut out, 6 were taken for such text.
"""

from __future__ import annotations

import codecs
import re

_DECLARATION = re.compile(rb"\A(?:[^\n]{0,200}\n)?[^\n]{0,80}?coding[:=][ \t\"']*([-\w.]+)")
_ENCODINGS = re.compile(r"(?:iso8859|cp\d|koi8|mac|shift_jis|euc|gb|big5|hz|iso2022|johab|tis|ptcp|kz)")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BINARY_CHECK_BYTES = 8_192
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # in no text but as a form feed or an escape
_GUESSED = ["cp1252", "gb18030", "cp932"]
_TWO_BYTES = re.compile(rb"[\x80-\xff]{2}")
_MAX_GUESSED_BYTES = 20_000  # of lines that are not ASCII


def is_binary(data: bytes) -> bool:
    """Whether the bytes are no text in any encoding."""
    return b"\0" in data[:_BINARY_CHECK_BYTES] and not data.startswith(_UTF16_MARKS)


def decode_text(data: bytes) -> str:
    """Return the text; LookupError or ValueError if its encoding is unknown."""
    if data.startswith(_UTF16_MARKS):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        declaration = _DECLARATION.search(data)
        return data.decode(_checked(declaration[1].decode()) if declaration else _guessed_encoding(data))


def _checked(declared: str) -> str:
    """Return the name of a declared encoding; LookupError if it is none of characters."""
    name = codecs.lookup(declared).name
    if not _ENCODINGS.match(name):
        raise LookupError(name)
    return name


def _guessed_encoding(data: bytes) -> str:
    """Return the encoding that the lines with other characters than ASCII look like; LookupError without one.

    Letters that stand alone among ASCII are of one byte each, such as those of Western Europe.
    """
    if _CONTROL.search(data):
        raise LookupError("binary")
    lines = b"".join(line for line in data.splitlines(keepends=True) if not line.isascii())[:_MAX_GUESSED_BYTES]
    if not _TWO_BYTES.search(lines):
        return "cp1252"
    from charset_normalizer import from_bytes  # takes 50 ms, and few folders have such a file

    found = from_bytes(lines, cp_isolation=_GUESSED).best()
    if found is None:
        raise LookupError("unknown")
    return found.encoding
