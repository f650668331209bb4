"""Escapes characters that control a terminal or that nobody can see, also in all that the program prints.

In: any text, from a repository, a table, a model's folder or a setting. Out: the text with each such character
escaped as in JSON, so that JSON keeps its meaning.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from io import TextIOWrapper
from typing import Any

# C0 without tabs and line ends, delete and C1: these control the terminal. The others reverse the direction of the
# text, end a line invisibly, or show nothing at all.
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_SURROGATES = "\ud800-\udfff"  # also of bytes that are not UTF-8, some of which control a terminal
HIDDEN_CHARACTERS = re.compile(f"[{_CONTROL}{_INVISIBLE}{_SURROGATES}\r]")
_UNPRINTABLE = re.compile(f"[{_CONTROL}{_INVISIBLE}{_SURROGATES}]|\r(?!\n)")


def printable(text: str) -> str:
    """The text with such characters escaped. Example: an escape character -> the six characters `\\u001b`."""
    return _UNPRINTABLE.sub(_escape, text)


def as_json(value: Any) -> str:
    """JSON with such characters escaped, which decodes to the same value."""
    return printable(json.dumps(value, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"  # JSON leaves delete as it is


class _PrintableStream(TextIOWrapper):
    """Writes printable text to the bytes of another stream, which stays open."""

    def write(self, text: str) -> int:
        """Write a text with unprintable characters escaped."""
        super().write(printable(text))
        return len(text)

    def __del__(self) -> None:
        """Leave the bytes to the other stream."""
        self.detach()


def guard_output() -> None:
    """Write only printable text to standard output and standard error from now on.

    UTF-8 is written where the environment names no encoding.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper) and not isinstance(stream, _PrintableStream):
            encoding = "utf-8" if codecs.lookup(stream.encoding).name == "ascii" else stream.encoding
            buffering = stream.line_buffering, stream.write_through
            setattr(sys, name, _PrintableStream(stream.buffer, encoding, "backslashreplace", None, *buffering))
