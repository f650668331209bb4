"""What is printable: orders to a terminal and characters that nobody sees are written out, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.context import Context
from spd_lsp.completion.offer import usable_completions
from spd_lsp.printable import HIDDEN_CHARACTERS, as_json, printable, printable_bytes_kept

ORDERS = ["\x1b", "\x9b", "\x9d", "\x00", "\x07", "\x08", "\x7f", "\x85"]
DIRECTIONS = [chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x61C)]
UNSEEN = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u2028", "\u2029", "\u3164", "\U000e0041"]
HALVES = ["\ud800", "\udbff", "\udc00", "\udc9b", "\udfff"]
LINE = Context("", "", "line", "")


@pytest.mark.parametrize("character", [*ORDERS, *DIRECTIONS, *UNSEEN, *HALVES], ids=lambda c: f"U+{ord(c):04X}")
def test_what_a_terminal_obeys_or_nobody_sees_is_written_out_and_never_offered(character):
    text = f"a{character}b"
    assert printable(text).isascii()
    assert printable_bytes_kept(text).isascii()
    assert json.loads(f'"{printable(text)}"') == text
    assert HIDDEN_CHARACTERS.search(text)
    assert [each.text for each in usable_completions([(text, -1.0), ("ab", -2.0)], LINE)] == ["ab"]


@pytest.mark.parametrize("text", ["x = 1\n\ty", "é ß 日本語 العربية עברית", "naïve 😀 ⚠️", "a\r\nb", ""])
def test_what_people_read_stays_as_it_is(text):
    assert printable(text) == printable_bytes_kept(text) == text


def test_tabs_and_line_ends_of_a_draft_are_offered():
    place = Context("", "", "block", "    ")
    assert [each.text for each in usable_completions([("\n    if é:\n    \tx\ny", -1.0)], place)] == [
        "\n    if é:\n    \tx"
    ]


def test_a_line_cannot_be_written_over():
    assert printable("Error: all\rfine\r\n") == "Error: all\\rfine\r\n"


def test_bytes_of_a_path_that_are_no_utf_8_stay_unless_a_terminal_obeys_them():
    path = b"caf\xe9 \x9b31m \xc2\xad".decode("utf-8", "surrogateescape")
    assert printable_bytes_kept(path).encode("utf-8", "surrogateescape") == b"caf\xe9 \\udc9b31m \\u00ad"
    assert printable(path) == "caf\\udce9 \\udc9b31m \\u00ad"


@given(st.text())
def test_bytes_kept_never_make_up_a_forbidden_character(text):
    raw = text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    shown = printable_bytes_kept(raw).encode("utf-8", "surrogateescape").decode("utf-8", "ignore")
    assert not any(c in shown for c in [*ORDERS, *DIRECTIONS, "\u200b", "\U000e0041"])


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_says_the_same_in_printable_characters(value):
    text = as_json(value)
    assert printable(text) == text
    assert json.loads(text) == value
