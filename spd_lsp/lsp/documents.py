"""Open documents with the protocol's own idea of lines and positions.

In: document items, edits and positions in the client's units (UTF-8, UTF-16 or UTF-32 code units). Out: text,
and offsets into it in code points. Stock pygls splits lines where Python does, so a form feed shifts every later
edit; here a line ends at "\\n", "\\r\\n" or "\\r" and nowhere else. Knows nothing of completions.
"""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from lsprotocol import types
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument, Workspace

from ngram_builders.sources.secret_files import is_secret

_LINE_END = re.compile(r"\r\n|\r|\n")
_TYPING = 0.1  # seconds
_SURROGATE = re.compile("[\ud800-\udfff]")


def line_starts(text: str) -> list[int]:
    """Offset of each line's first character. Example: "a\\r\\nb\\fc\\n" -> [0, 3, 7]."""
    if "\r" in text:
        return [0, *(found.end() for found in _LINE_END.finditer(text))]
    # A quarter of the regular expression's time, and this runs at every keystroke.
    return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]


def width(char: str, encoding: str) -> int:
    """How many code units one character takes. Example: "é" -> 2 in utf-8, 1 in utf-16 and utf-32."""
    if encoding == types.PositionEncodingKind.Utf16:
        return 2 if char > "\uffff" else 1
    if encoding == types.PositionEncodingKind.Utf8:
        return 1 if char < "\x80" else 2 if char < "\u0800" else 3 if char <= "\uffff" else 4
    return 1


def units(text: str, encoding: str) -> int:
    """How many code units a text takes. Example: "x😀" -> 5 in utf-8, 3 in utf-16, 2 in utf-32."""
    return len(text) if text.isascii() else sum(width(char, encoding) for char in text)


def index_at(line: str, count: int, encoding: str) -> int:
    """The character at so many code units, never past the end. Example: ("x😀y", 3, "utf-16") -> 2."""
    if line.isascii():
        return min(count, len(line))
    for index, char in enumerate(line):
        count -= width(char, encoding)
        if count < 0:
            return index
    return len(line)


def path_of(uri: str) -> Path | None:
    """Where a document lies, or None for untitled ones and other schemes than `file`."""
    path = to_fs_path(uri)
    return Path(path) if path and "\0" not in path else None


def place_of(uri: str) -> PurePosixPath:
    """Where a document says that it lies, whatever its scheme. Example: `untitled:a%20b.py` -> `a b.py`."""
    return PurePosixPath(unquote(urlsplit(uri).path))


def may_hold_secrets(uri: str) -> bool:
    """Whether files of this name hold keys or passwords. Example: `file:///app/.env.local` -> True."""
    return is_secret(place_of(uri))


def _name_of(uri: str) -> str:
    """What two spellings of one URI share. Bytes that are not UTF-8 stay distinct: %E8 is not %E9."""
    return unquote(uri, errors="surrogateescape")


class LspDocument(TextDocument):
    """A document that its client has open."""

    typed_at: float = float("-inf")  # monotonic seconds of the last edit
    shrank: bool = False  # whether that edit only removed text
    edited_at: int = 0  # offset in code points where its new text ends

    def __init__(self, uri: str, source: str, encoding: str, language: str | None, version: int | None) -> None:
        super().__init__(uri, source, version, language)
        self._encoding = encoding
        self._text = source
        self._starts: list[int] | None = None

    @property
    def source(self) -> str:
        """The whole text."""
        return self._text

    @property
    def starts(self) -> list[int]:
        """Offset of each line's first character."""
        if self._starts is None:
            self._starts = line_starts(self._text)
        return self._starts

    @property
    def lines(self) -> Sequence[str]:
        """Every line with its end; a final line end is followed by an empty line."""
        ends = [*self.starts[1:], len(self._text)]
        return [self._text[start:end] for start, end in zip(self.starts, ends, strict=True)]

    def line_bounds(self, number: int) -> tuple[int, int]:
        """Where line `number` starts and where its text ends, before its line end."""
        start = self.starts[number]
        if number + 1 == len(self.starts):
            return start, len(self._text)
        end = self.starts[number + 1] - 1
        return start, end - 1 if self._text[end - 1 : end + 1] == "\r\n" else end

    def offset_at_position(self, client_position: types.Position) -> int:
        """The offset in code points; past the end of a line or of the text is the end of it."""
        if client_position.line >= len(self.starts):
            return len(self._text)
        start, end = self.line_bounds(client_position.line)
        return start + index_at(self._text[start:end], client_position.character, self._encoding)

    def client_position_at_offset(self, offset: int) -> types.Position:
        """The position in the client's units."""
        number = bisect.bisect_right(self.starts, offset) - 1
        start, end = self.line_bounds(number)
        return types.Position(number, units(self._text[start : min(offset, end)], self._encoding))

    def line_before(self, offset: int) -> str:
        """The text from the start of the line up to an offset."""
        return self._text[self.starts[bisect.bisect_right(self.starts, offset) - 1] : offset]

    @property
    def just_typed(self) -> bool:
        """Whether the last edit is so near that a request comes from typing: editors do not say who asked."""
        return time.monotonic() - self.typed_at < _TYPING

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        """Replace a range, or everything where the change names no range."""
        start = 0
        if isinstance(change, types.TextDocumentContentChangePartial):
            start = self.offset_at_position(change.range.start)
            end = max(start, self.offset_at_position(change.range.end))
            text = self._text[:start] + change.text + self._text[end:]
        else:
            text = change.text
        # An editor that counts in UTF-16 may type a character in two halves; here they become one again.
        if _SURROGATE.search(change.text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        self.typed_at, self.shrank = time.monotonic(), not change.text and len(text) < len(self._text)
        self._text, self._starts, self.edited_at = text, None, min(start + len(change.text), len(text))


class LspWorkspace(Workspace):
    """The documents that the client has open, and its folders."""

    @property
    def encoding(self) -> str:
        """The unit that the client counts columns in: `utf-8`, `utf-16` or `utf-32`."""
        return types.PositionEncodingKind(self.position_encoding or "utf-16").value

    def opened(self, uri: str) -> LspDocument | None:
        """The open document of that URI, or None."""
        document = self._text_documents.get(_name_of(uri))
        return document if isinstance(document, LspDocument) else None

    def get_text_document(self, doc_uri: str) -> LspDocument:
        """The open document of that URI, or an empty one: files are never read behind the client's back."""
        return self.opened(doc_uri) or LspDocument(doc_uri, "", self.encoding, None, None)

    def put_text_document(self, text_document: types.TextDocumentItem, notebook_uri: str | None = None) -> None:
        """Take over a document that the client opened."""
        item = text_document
        self._text_documents[_name_of(item.uri)] = LspDocument(
            item.uri, item.text, self.encoding, item.language_id, item.version
        )

    def remove_text_document(self, doc_uri: str) -> None:
        """Forget a document that the client closed."""
        self._text_documents.pop(_name_of(doc_uri), None)

    def update_text_document(
        self, text_doc: types.VersionedTextDocumentIdentifier, change: types.TextDocumentContentChangeEvent
    ) -> None:
        """Apply one edit; an edit of a document that was never opened has nothing to apply to."""
        if (document := self.opened(text_doc.uri)) is not None:
            document.apply_change(change)
            document.version = text_doc.version
