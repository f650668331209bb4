"""What commands write to, so that no text of a repository, a table or a model gives orders to the terminal.

In: whatever any part of the program prints, libraries included. Out: the same on standard output and standard
error, with what is not printable escaped. Knows nothing of what is printed.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, cast

from spd_lsp.printable import printable, printable_bytes_kept

if TYPE_CHECKING:
    from rich.console import Console


class _Guarded:
    """A text stream that writes only what is printable; all else of it is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.bare = stream

    def write(self, text: str) -> int:
        """Write a text, its characters escaped that a terminal would obey."""
        shown = printable_bytes_kept(text)
        try:
            self.bare.write(shown)
        except UnicodeEncodeError:
            known = self.bare.encoding or "ascii"
            self.bare.write(shown.encode(known, "backslashreplace").decode(known))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Whatever else is asked of a stream, but for the way around this one."""
        if name in ("bare", "buffer", "detach"):
            raise AttributeError(name)
        return getattr(self.bare, name)


def guard_output() -> None:
    """Let standard output and standard error show printable text only, from now on.

    Paths are printed as they are, whatever bytes they have. So is UTF-8 where the environment names no encoding.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, _Guarded):
            continue
        if isinstance(stream, TextIOWrapper):
            plain = codecs.lookup(stream.encoding).name == "ascii"
            errors = "surrogateescape" if name == "stdout" else stream.errors
            stream.reconfigure(encoding="utf-8" if plain else None, errors=errors)
        setattr(sys, name, cast(TextIO, _Guarded(stream)))


def console() -> Console:
    """Standard error for bars and colours, which are orders to the terminal, with printable text between them."""
    from rich.console import Console
    from rich.text import Text

    class Printing(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(shown(each) for each in objects), **options)

    def shown(each: Any) -> Any:
        text = each.plain if isinstance(each, Text) else each
        if not isinstance(text, str) or printable(text) == text:
            return each
        return Text(printable(text))

    stream = sys.stderr
    return Printing(file=stream.bare if isinstance(stream, _Guarded) else stream, markup=False, emoji=False)
