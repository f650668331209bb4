"""Output through which no text of a repository, a table or a model can control the terminal.

In: whatever any part of the program prints, libraries included. Out: the same with unprintable characters escaped.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, cast

from spd_lsp.output.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


class _PrintableStream:
    """Wraps a text stream: writes only printable characters, and does everything else as the stream does."""

    def __init__(self, stream: TextIO) -> None:
        self.wrapped = stream

    @property
    def buffer(self) -> _PrintableBytes:
        """For bytes: click writes the scripts of shells so."""
        return _PrintableBytes(self)

    def write(self, text: str) -> int:
        """Write a text with unprintable characters escaped."""
        shown = printable(text)
        try:
            self.wrapped.write(shown)
        except UnicodeEncodeError:
            encoding = self.wrapped.encoding or "ascii"
            self.wrapped.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one text after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the stream, except those that bypass this class."""
        if name in ("wrapped", "detach"):
            raise AttributeError(name)
        return getattr(self.wrapped, name)


class _PrintableBytes:
    """Writes the text that bytes are to a printable stream."""

    def __init__(self, stream: _PrintableStream) -> None:
        self.stream = stream

    def write(self, data: bytes) -> int:
        """Write them with unprintable characters escaped."""
        self.stream.write(data.decode("utf-8", "surrogateescape"))
        return len(data)

    def flush(self) -> None:
        """Write what was held back."""
        self.stream.flush()


def guard_output() -> None:
    """Write only printable text to standard output and standard error from now on.

    UTF-8 is written where the environment names no encoding.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, _PrintableStream):
            continue
        if isinstance(stream, TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None)
        setattr(sys, name, cast(TextIO, _PrintableStream(stream)))


def console() -> Console:
    """A console on standard error for bars and colours, which control the terminal, and printable text."""
    from rich.console import Console
    from rich.text import Text

    class PrintableConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*map(escaped, objects), **options)

    def escaped(item: Any) -> Any:
        text = item.plain if isinstance(item, Text) else item
        is_printable = not isinstance(text, str) or printable(text) == text
        return item if is_printable else Text(printable(text))

    stream = sys.stderr
    file = stream.wrapped if isinstance(stream, _PrintableStream) else stream
    return PrintableConsole(file=file, markup=False, emoji=False)
