"""Items survive each kind of editor: nothing lost, nothing moved, nothing committed by accident."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from spd_lsp.completion.ranking import Completion, Match, word_begun
from spd_lsp.lsp.completion_items import (
    MAX_LABEL_CHARS,
    CursorLine,
    ItemCapabilities,
    as_snippet,
    details_of,
    inline_items,
    label_for,
    menu_items,
    relative_to,
)

VS_CODE = ItemCapabilities(
    modes=frozenset({types.InsertTextMode.AsIs, types.InsertTextMode.AdjustIndentation}),
    snippets=True,
    markdown=True,
)
SUBLIME = ItemCapabilities(modes=frozenset({types.InsertTextMode.AdjustIndentation}), snippets=True, markdown=True)
NEOVIM = ItemCapabilities(snippets=True, markdown=True, one_line_only=True)
OLD_NEOVIM = ItemCapabilities(markdown=True, one_line_only=True)
EMACS = ItemCapabilities()
CLIENTS = [VS_CODE, SUBLIME, NEOVIM, OLD_NEOVIM, EMACS]

BLOCK = "if x:\n        y()\n    z()"


def behind(before: str) -> CursorLine:
    word = word_begun(before)
    edit = types.Range(types.Position(3, len(before) - len(word)), types.Position(3, len(before)))
    return CursorLine(edit, word, before, "python")


def offer(text: str, before: str, client: ItemCapabilities) -> list[types.CompletionItem]:
    return menu_items([Completion(text, 0.42)], behind(before), client)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_edit_covers_the_word_on_one_line_and_ends_at_the_cursor(client: ItemCapabilities):
    (item,) = offer("t(x)\nmore" if client is not OLD_NEOVIM else "t(x)", "    prin", client)
    edit = item.text_edit
    assert isinstance(edit, types.TextEdit)
    assert edit.range == types.Range(types.Position(3, 4), types.Position(3, 8))
    assert edit.new_text.startswith("print")
    assert item.filter_text == "print("
    assert item.commit_characters is None and item.preselect is None


@given(st.text("ab .(", max_size=8), st.text("ab .(\n", min_size=1, max_size=12), st.sampled_from(CLIENTS))
def test_what_editors_filter_by_starts_with_the_word(before: str, text: str, client: ItemCapabilities):
    for item in offer(text, before, client):
        assert item.filter_text and item.filter_text.startswith(word_begun(before))
        assert item.label.strip() and "\n" not in item.label and len(item.label) <= MAX_LABEL_CHARS


@pytest.mark.parametrize(
    ("before", "text", "filtered_by"),
    [
        ("class Coun", "terAPI(View):", "CounterAPI("),
        ("x", " = 3", "x="),
        ("", "if x:\n    y", "if "),
    ],
)
def test_an_item_is_filtered_by_its_first_word_so_that_it_goes_with_it(before: str, text: str, filtered_by: str):
    (item,) = offer(text, before, VS_CODE)
    assert item.filter_text == filtered_by


PLAIN, SNIPPET = types.InsertTextFormat.PlainText, types.InsertTextFormat.Snippet


@pytest.mark.parametrize(
    ("client", "text", "inserted", "mode", "kind"),
    [
        (VS_CODE, BLOCK, BLOCK, types.InsertTextMode.AsIs, PLAIN),
        (SUBLIME, BLOCK, "if x:\n    y()\nz()", types.InsertTextMode.AdjustIndentation, PLAIN),
        (NEOVIM, "if x:\n        y = f'${a}\\n'", "if x:\n    y = f'\\${a\\}\\\\n'$0", None, SNIPPET),
        (NEOVIM, "f'${a}'", "f'${a}'", None, PLAIN),
        (OLD_NEOVIM, BLOCK, "if x:", None, PLAIN),
        (EMACS, BLOCK, BLOCK, None, PLAIN),
    ],
)
def test_each_client_gets_several_lines_so_that_it_inserts_them_right(client, text, inserted, mode, kind):
    (item,) = offer(text, "    ", client)
    assert item.text_edit and item.text_edit.new_text == inserted
    assert (item.insert_text_mode, item.insert_text_format) == (mode, kind)


@given(st.text("ab\\$}{ \n", max_size=20))
def test_a_snippet_expands_to_its_text(text: str):
    snippet = as_snippet(text)
    assert snippet.endswith("$0")
    expanded, escaped = "", False
    for char in snippet[:-2]:
        if char == "\\" and not escaped:
            escaped = True
            continue
        assert escaped or char not in "$}"
        expanded, escaped = expanded + char, False
    assert expanded == text


def test_labels_are_one_short_line_that_says_when_more_follows():
    assert label_for("return x") == "return x"
    assert label_for("\n    return x\n") == "return x"
    assert label_for("if x:\n    y") == "if x: …"
    assert label_for("x" * 99) == "x" * (MAX_LABEL_CHARS - 1) + "…"
    assert len(label_for("x" * 99 + "\ny")) == MAX_LABEL_CHARS


def test_what_the_label_leaves_out_is_in_the_documentation():
    (item,) = offer("if x:\n    y", "    ", VS_CODE)
    assert item.documentation == types.MarkupContent(types.MarkupKind.Markdown, "```python\nif x:\n    y\n```")
    (item,) = offer("if x:\n    y", "    ", EMACS)
    assert item.documentation == types.MarkupContent(types.MarkupKind.PlainText, "if x:\n    y")
    (item,) = offer("short", "    ", VS_CODE)
    assert item.documentation is None


def test_a_fence_is_longer_than_any_in_the_text():
    (item,) = offer("'''\n````\n'''", "", VS_CODE)
    assert isinstance(item.documentation, types.MarkupContent)
    assert item.documentation.value.startswith("`````python\n")


def test_items_name_their_origin_and_probability():
    (item,) = offer("x", "", VS_CODE)
    assert item.detail == "42 % · model"
    assert item.label_details == types.CompletionItemLabelDetails(description="42 %")
    assert item.kind is types.CompletionItemKind.Text


@pytest.mark.parametrize(
    ("completion", "details"),
    [
        (Completion("x", 0.31, is_copy=True, match=Match(9, 2, 2, 2)), "31 % · copied from 2 files"),
        (Completion("x", 0.06, match=Match(9, 1, 2, 1), place="a.py:3"), "6 % · model, as in a.py:3"),
        (
            Completion("x", 0.31, is_copy=True, match=Match(9, 2, 2, 2), place="team: a.py:3"),
            "31 % · copied from team: a.py:3 and 1 more file",
        ),
        (Completion("x", 0.9, is_rated=False, is_name=True), "name in your code"),
        (Completion("x", 0.004), "< 1 % · model"),
    ],
)
def test_details_say_where_a_draft_comes_from(completion: Completion, details: str):
    assert details_of(completion) == details


def test_a_label_leaves_room_for_the_details_beside_it():
    beside = ItemCapabilities(markdown=True, label_details=True)
    long = "x" * 50
    (item,) = offer(long, "", beside)
    assert item.label == "x" * 39 + "…" and long in str(item.documentation)
    assert offer(long, "", VS_CODE)[0].label == long


def test_ghost_text_always_has_a_range_and_is_never_blank():
    edit = types.Range(types.Position(0, 3), types.Position(0, 5))
    items = inline_items([Completion("a\n b", 0.5), Completion("  ", 0.1)], edit, "so", "python")
    assert [(item.insert_text, item.range) for item in items] == [("soa\n b", edit)]
    title, arguments = "first line 50 % · model", ["python", "model", 4]
    assert items[0].command == types.Command(title, "spd-lsp.accepted", arguments=arguments)


def test_a_line_left_of_the_current_one_ends_a_relative_text():
    assert relative_to("a\n    b\nc", "    ") == "a\nb"
    assert relative_to("a\n\n    b\n\nc\n    d", "    ") == "a\n\nb"
