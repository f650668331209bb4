"""Positions and edits mean what the specification says, in every encoding, whatever the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from pygls.workspace import PositionCodec

from spd_lsp.lsp.documents import LspDocument, LspWorkspace, file_path

ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
# Everything that Python takes for a line end and the protocol does not, and characters of every width.
ALPHABET = "ab \té日😀\n\r\f\v\x1c\x1d\x1e\x85\u2028\u2029"
TEXT = st.text(ALPHABET, max_size=40)
ENCODING = st.sampled_from(sorted(ENCODINGS))


def document(text: str, encoding: str = "utf-16") -> LspDocument:
    return LspDocument("file:///a.py", text, "python", 1, PositionCodec(encoding))


def naive_lines(text: str) -> list[str]:
    """Lines without their ends, by the book: split at CRLF, LF or CR."""
    return re.split("\r\n|\r|\n", text)


def naive_offset(text: str, position: types.Position, encoding: str) -> int:
    """Walk over the text and count lines and code units."""
    name, size = ENCODINGS[encoding]
    lines = re.split("(\r\n|\r|\n)", text)
    if position.line >= len(naive_lines(text)):
        return len(text)
    before = sum(map(len, lines[: 2 * position.line]))
    line, count = lines[2 * position.line], 0
    while count < len(line) and len(line[: count + 1].encode(name)) // size <= position.character:
        count += 1
    return before + count


def positions() -> st.SearchStrategy[types.Position]:
    return st.builds(types.Position, st.integers(0, 12), st.integers(0, 30))


@given(TEXT, ENCODING, positions())
def test_offsets_are_those_of_a_walk_over_the_text(text: str, encoding: str, position: types.Position):
    kept = types.Position(position.line, position.character)
    assert document(text, encoding).offset_at_position(position) == naive_offset(text, position, encoding)
    assert position == kept  # stock pygls changes it


@given(TEXT, ENCODING, st.data())
def test_every_offset_outside_a_line_end_survives_a_round_trip(text: str, encoding: str, data: st.DataObject):
    offset = data.draw(st.integers(0, len(text)))
    if text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1
    doc = document(text, encoding)
    assert doc.offset_at_position(doc.client_position_at_offset(offset)) == offset


@given(TEXT, ENCODING, st.lists(st.tuples(positions(), positions(), TEXT), max_size=6))
def test_random_edits_are_the_same_edits_of_a_plain_string(
    text: str, encoding: str, edits: list[tuple[types.Position, types.Position, str]]
):
    doc = document(text, encoding)
    for one, other, new in edits:
        start, end = sorted((one, other), key=lambda position: (position.line, position.character))
        begin, stop = naive_offset(text, start, encoding), naive_offset(text, end, encoding)
        doc.apply_change(types.TextDocumentContentChangePartial(types.Range(start, end), new))
        text = text[:begin] + new + text[stop:]
        assert doc.source == text


@pytest.mark.parametrize(("typed", "asks"), [("self", True), ("self.", True), ("add(", False), ("x = ", False)])
def test_editors_request_once_after_an_edit_in_words_and_after_dots(typed: str, asks: bool):
    doc = document("")
    assert not doc.is_requested_by_typing(0)
    doc.apply_change(types.TextDocumentContentChangeWholeDocument(typed))
    assert doc.is_requested_by_typing(len(typed)) == asks
    assert not doc.is_requested_by_typing(len(typed))


@pytest.mark.parametrize(
    ("before", "at", "typed", "asked", "asks"),
    [
        ("x = ab", 6, "c", 7, True),
        ("x = ab", 6, "c", 1, False),  # the cursor went elsewhere
        ("x = ab", 4, "c", 5, True),  # VS Code asks behind the first letter of a word, and no further inside it
        ("x = ab", 5, "c", 6, False),
        ("x = ab", 4, ".", 5, True),
    ],
)
def test_what_is_asked_elsewhere_or_inside_a_word_is_asked_by_hand(before, at, typed, asked, asks):
    doc, here = document(before), types.Position(0, at)
    doc.apply_change(types.TextDocumentContentChangePartial(types.Range(here, here), typed))
    assert doc.is_requested_by_typing(asked) == asks


def test_an_edit_that_writes_and_deletes_did_not_shrink_the_document_and_leaves_the_cursor_behind_what_it_wrote():
    """VS Code's Enter in a line of blanks."""
    doc = document("if x:\n    ")
    end = types.Position(1, 4)
    doc.apply_change(types.TextDocumentContentChangePartial(types.Range(end, end), "\n    "))
    blanks = types.Range(types.Position(1, 0), end)
    doc.apply_change(types.TextDocumentContentChangePartial(blanks, ""), is_further=True)
    assert doc.source == "if x:\n\n    "
    assert not doc.shrank and doc.edited_at == len(doc.source)


def test_closed_documents_are_forgotten_and_never_read_from_disk(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("on disk")
    uri = file.as_uri()
    workspace = LspWorkspace(None)
    assert not workspace.get_text_document(uri).is_open
    assert workspace.get_text_document(uri).source == ""
    workspace.put_text_document(types.TextDocumentItem(uri, "python", 1, "in the editor"))
    document = workspace.get_text_document(uri)
    assert document is not None and document.source == "in the editor"
    workspace.remove_text_document(uri)
    assert not workspace.get_text_document(uri).is_open


def test_only_files_have_a_path():
    assert str(file_path("file:///a/b%20c.py")) == "/a/b c.py"
    assert file_path("untitled:a.py") is None
    assert str(file_path("file:///%C3%A9%23.py")) == "/é#.py"
