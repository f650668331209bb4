"""What is printable: orders to a terminal and characters that nobody sees are written out, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.offer import usable_completions
from spd_lsp.output.printable import HIDDEN_CHARACTERS, as_json, printable
from tests.completion.places import context_at

ORDERS = ["\x1b", "\x9b", "\x9d", "\x00", "\x07", "\x08", "\x7f", "\x85"]
DIRECTIONS = [chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x61C)]
UNSEEN = ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u2028", "\u2029", "\u3164", "\U000e0041"]
HALVES = ["\ud800", "\udbff", "\udc00", "\udc9b", "\udce9", "\udfff"]
LINE = context_at()


@pytest.mark.parametrize("character", [*ORDERS, *DIRECTIONS, *UNSEEN, *HALVES], ids=lambda c: f"U+{ord(c):04X}")
def test_what_a_terminal_obeys_or_nobody_sees_is_written_out_and_never_offered(character):
    text = f"a{character}b"
    assert printable(text).isascii()
    assert json.loads(f'"{printable(text)}"') == text
    assert HIDDEN_CHARACTERS.search(text)
    assert [each.text for each in usable_completions([(text, -1.0), ("ab", -2.0)], LINE)] == ["ab"]


@pytest.mark.parametrize("text", ["x = 1\n\ty", "é ß 日本語 العربية עברית", "naïve 😀 ⚠️", "a\r\nb", ""])
def test_what_people_read_stays_as_it_is(text):
    assert printable(text) == text


@given(st.text() | st.dictionaries(st.text(), st.lists(st.text())))
def test_json_says_the_same_in_printable_characters(value):
    text = as_json(value)
    assert printable(text) == text
    assert json.loads(text) == value
