"""Open documents, with the lines and positions of the LSP specification.

In: document items, edits and positions in the client's units (UTF-8, UTF-16 or UTF-32 code units). Out: text,
and offsets into it in code points; a notebook's cells are one text. pygls splits lines where Python does, so a
form feed shifts every later edit; here a line ends at "\\n", "\\r\\n" or "\\r" and nowhere else. Of completions it
knows what is asked for at an offset.
"""

from __future__ import annotations

import bisect
import itertools
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lsprotocol import types
from pygls.uris import to_fs_path
from pygls.workspace import PositionCodec, TextDocument, Workspace

from ngram_builders.sources.secret_files import is_secret
from spd_lsp.completion.ranking import word_begun
from spd_lsp.completion.typed_along import CompletionRequest
from spd_lsp.lsp.completion_items import CursorLine
from spd_lsp.ngrams.open_documents import OpenDocument, clean

_LINE_END = re.compile(r"\r\n|\r|\n")
_TYPING_SECONDS = 1.0  # a busy editor takes its time to ask
# Where editors ask by themselves: behind a dot, a word, or its first letter, but no further inside it.
_ASKED_BEHIND = re.compile(r"\.|\w(?!\w)|(?<!\w)\w")
_CLOSED_PAIRS = ("()", "[]", "{}", '""', "''", "``")  # that an editor writes when the first of the two is typed
_REVISIONS = itertools.count()


def _line_starts(text: str) -> list[int]:
    """Offset of each line's first character. Example: "a\\r\\nb\\fc\\n" -> [0, 3, 7]."""
    if "\r" in text:
        return [0, *(line_end.end() for line_end in _LINE_END.finditer(text))]
    # A quarter of the regular expression's time, and this runs at every keystroke.
    return [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n")[:-1])]


def file_path(uri: str) -> Path | None:
    """The file of a document, or None for untitled ones and other schemes than `file`."""
    path = to_fs_path(uri)
    return Path(path) if path else None


def may_hold_secrets(uri: str) -> bool:
    """Whether files of this name usually hold keys or passwords. Example: `file:///app/.env.local` -> True."""
    return is_secret(PurePosixPath(unquote(urlsplit(uri).path)))


class LspDocument(TextDocument):
    """A document's text as its client has it."""

    source: str = ""  # a property of pygls's, which may read the disk
    starts: list[int]  # offset of each line's first character
    revision: int  # of the text, never used twice
    edit_time: float = float("-inf")  # of the last edit, in monotonic seconds
    shrank: bool = False  # whether the last edit only deleted text
    edited_at: int = 0  # offset in code points where the last edit leaves the cursor, most likely

    def __init__(
        self,
        uri: str,
        source: str,
        language: str | None = None,
        version: int | None = None,
        codec: PositionCodec | None = None,
        file: Path | None = None,
    ) -> None:
        """`file`: where it is or, if the document is no file, a name that it could have in the open folder."""
        super().__init__(uri, source, version, language, position_codec=codec)
        self.file = file
        self.may_hold_secrets = may_hold_secrets(uri)
        self._units = self.position_codec.client_num_units  # of a text
        self._set_source(source)
        self._requested_edit = self.edit_time  # the edit at the time of the last menu request
        self._is_one_change = False  # whether the last edit changed one place, where the cursor is then

    def _set_source(self, source: str) -> None:
        self.source = source
        self.starts = _line_starts(source)
        self.revision = next(_REVISIONS)

    def is_indexable(self, disabled_languages: Collection[str]) -> bool:
        """Whether its n-grams may be counted."""
        return not self.may_hold_secrets and not self.is_in(disabled_languages)

    def is_in(self, languages: Collection[str]) -> bool:
        """Whether its language is one of these, as people write it: `Python` is `python`."""
        return (self.language_id or "").casefold() in map(str.casefold, languages)

    @property
    def is_open(self) -> bool:
        """Whether the client has opened it, which gives it a version."""
        return self.version is not None

    def line_bounds(self, number: int) -> tuple[int, int]:
        """Where line `number` starts and where its text ends, before its line end."""
        start = self.starts[number]
        if number + 1 == len(self.starts):
            return start, len(self.source)
        end = self.starts[number + 1] - 1
        return start, end - 1 if self.source[end - 1 : end + 1] == "\r\n" else end

    def offset_at_position(self, client_position: types.Position) -> int:
        """The offset in code points; past the end of a line or of the text is the end of it."""
        if client_position.line >= len(self.starts):
            return len(self.source)
        start, end = self.line_bounds(client_position.line)
        line, most = self.source[start:end], client_position.character
        if line.isascii():
            return min(start + most, end)
        units = itertools.accumulate(map(self._units, line))  # up to behind each character
        return start + sum(1 for _ in itertools.takewhile(lambda count: count <= most, units))

    def client_position_at_offset(self, offset: int) -> types.Position:
        """The position in the client's units."""
        number = bisect.bisect_right(self.starts, offset) - 1
        start, end = self.line_bounds(number)
        return types.Position(number, self._units(self.source[start : min(offset, end)]))

    def cursor_line(self, cursor: int) -> CursorLine:
        """The line of the cursor, as completion items need it."""
        before = self.source[self.starts[bisect.bisect_right(self.starts, cursor) - 1] : cursor]
        word = word_begun(before)
        start, end = map(self.client_position_at_offset, (cursor - len(word), cursor))
        return CursorLine(types.Range(start, end), word, before, self.language_id or "")

    def with_selected(
        self, request: CompletionRequest, cursor: int, selected: types.SelectedCompletionInfo
    ) -> CompletionRequest:
        """The request as if the menu's selected item had been accepted, which ghost text continues."""
        start_of_document = request.cursor - cursor
        start = start_of_document + self.offset_at_position(selected.range.start)
        end = max(start, start_of_document + self.offset_at_position(selected.range.end))
        source = request.source[:start] + selected.text + request.source[end:]
        return replace(request, source=source, cursor=start + len(selected.text))

    def is_requested_by_typing(self, offset: int) -> bool:
        """Whether an editor makes a menu request at an offset because of a key, where it does not tell.

        So counts the first request within a second of an edit, where the edit left the cursor, behind a word or a
        dot. A second request for the same text is the user's own, and is answered in full.
        """
        is_first = self._requested_edit != self.edit_time
        self._requested_edit = self.edit_time
        is_soon = time.monotonic() - self.edit_time < _TYPING_SECONDS
        is_there = offset == self.edited_at if self._is_one_change else offset > 0
        return is_first and is_soon and is_there and _ASKED_BEHIND.match(self.source, offset - 1) is not None

    def apply_change(self, change: types.TextDocumentContentChangeEvent, *, is_further: bool = False) -> None:
        """Replace a range, or everything where the change names no range.

        is_further: it is a part of the last edit. Enter in a line of blanks writes the new line, and then deletes
        the blanks above it.
        """
        start, end = 0, len(self.source)
        self._is_one_change = False
        if isinstance(change, types.TextDocumentContentChangePartial):
            start, end = sorted(map(self.offset_at_position, (change.range.start, change.range.end)))
            self._is_one_change = not is_further
        text = self.source[:start] + change.text + self.source[end:]
        growth = len(text) - len(self.source)
        only_deletes = not change.text and growth < 0
        self.edit_time = time.monotonic()
        self._set_source(text)
        if is_further and only_deletes and not self.shrank:
            self.edited_at += growth if start < self.edited_at else 0
        else:
            typed = len(change.text) - (change.text in _CLOSED_PAIRS)
            self.shrank = only_deletes
            self.edited_at = min(start + typed, len(text))


class LspWorkspace(Workspace):
    """The client's open documents."""

    @property
    def documents(self) -> list[LspDocument]:
        """All open documents."""
        return [document for document in self.text_documents.values() if isinstance(document, LspDocument)]

    @property
    def folder_uris(self) -> list[str]:
        """The open folders."""
        return [folder.uri for folder in self.folders.values()] or ([self.root_uri] if self.root_uri else [])

    def parts(self, document: LspDocument) -> list[LspDocument]:
        """The cells of a document's notebook that are in its language, in order; else the document alone."""
        notebook = self.get_notebook_document(cell_uri=document.uri)
        cells = [self.get_text_document(cell.document) for cell in notebook.cells] if notebook else []
        return [cell for cell in cells if cell.is_open and cell.language_id == document.language_id] or [document]

    def whole_text(self, document: LspDocument) -> tuple[OpenDocument, int]:
        """The text that a document is part of, which is its notebook's or its own, and where it starts there.

        A notebook's is named after its first cell.
        """
        notebook = self.get_notebook_document(cell_uri=document.uri)
        language = document.language_id or None
        if notebook is None:
            return OpenDocument(document.uri, document.file, language, document.source), 0
        cells = self.parts(document)
        before = itertools.takewhile(lambda cell: cell is not document, cells)
        text = "".join(f"{cell.source}\n" for cell in cells)
        whole = OpenDocument(cells[0].uri, self._path_of(notebook.uri), language, text)
        return whole, sum(len(cell.source) + 1 for cell in before)

    def request_at(self, document: LspDocument, cursor: int, *, explicit: bool = False) -> CompletionRequest:
        """A request at an offset in a document, which may be a part of a longer text."""
        whole, start = self.whole_text(document)
        return CompletionRequest(
            clean(whole.text), start + cursor, whole.language, whole.path, whole.name, explicit
        )

    def indexable(self, disabled_languages: Collection[str]) -> Iterator[OpenDocument]:
        """The open texts whose n-grams may be counted, as they are now."""
        seen: set[tuple[str, str | None]] = set()
        for document in self.documents:
            if not document.is_indexable(disabled_languages):
                continue
            if notebook := self.get_notebook_document(cell_uri=document.uri):
                if (part := (notebook.uri, document.language_id)) in seen:
                    continue
                seen.add(part)
            yield self.whole_text(document)[0]

    def _path_of(self, uri: str) -> Path | None:
        """A document's file; what is no file here gets a name in the open folder, whose tables serve it then."""
        folder = next((path for path in map(file_path, self.folder_uris) if path), None)
        return file_path(uri) or (folder and folder / quote(uri, safe=""))

    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> LspDocument:
        """A document; one that is not open is empty: files are never read behind the client's back."""
        path = self._path_of(doc_uri)
        return LspDocument(doc_uri, source or "", language_id, version, self.position_codec, path)

    def get_text_document(self, doc_uri: str) -> LspDocument:
        """The document of a URI, as `_create_text_document` made it."""
        document = super().get_text_document(doc_uri)
        assert isinstance(document, LspDocument)
        return document

    def find_cursor(self, params: Mapping[str, Any]) -> tuple[LspDocument, int]:
        """The document and the offset that a message of ours names, as a completion request does."""
        document = self.get_text_document(params["textDocument"]["uri"])
        return document, document.offset_at_position(types.Position(**params["position"]))

    def update_text_document(
        self, text_doc: types.VersionedTextDocumentIdentifier, change: types.TextDocumentContentChangeEvent
    ) -> None:
        """Apply one of the edits of a notification, whose document is open."""
        document = self.get_text_document(text_doc.uri)
        document.apply_change(change, is_further=document.version == text_doc.version)
        document.version = text_doc.version
