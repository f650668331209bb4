"""A draft ends where its line or block ends, and drafting once no draft goes on with what was typed since."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import find_end, trim_draft
from spd_lsp.completion.offer import CompletionResult
from tests.completion.places import context_at

SOURCES = (
    "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json",
    "import os\n\n\ndef names(path):\n    ",
    "def total(rows):\n    result = 0\n    for row in rows:\n        result += row.price\n    ret",
)


LINE = context_at("line", "    ")


def block(indent: str) -> Context:
    return context_at("block", indent, left="f() {")


@pytest.mark.parametrize(
    ("indent", "text", "expected"),
    [
        ("        ", "\n        return 1\n    def g", "\n        return 1"),
        (
            "        ",
            "\n        if a:\n            b\n        c\n\nclass",
            "\n        if a:\n            b\n        c",
        ),
        ("        ", "return 1\n    def g", "return 1"),
        ("  ", "\n  b();\n}\nc", "\n  b();\n}"),
        ("    ", "\ndef g", ""),
    ],
)
def test_a_block_ends_where_a_line_stands_left_of_its_body(indent: str, text: str, expected: str):
    place = block(indent)
    assert find_end(text, place) is not None
    assert trim_draft(text, place) == expected


def test_a_block_cut_off_by_the_length_limit_loses_its_unfinished_line():
    assert trim_draft("\n    a = 1\n    b = fo", block("    ")) == "\n    a = 1"


class Stopped(Exception):
    """Nothing fits."""


def complete(completer: Completer, source: str, typed: str) -> CompletionResult:
    """Complete where so much is typed as soon as the model computes."""

    def check_typed(fits: Callable[[str], bool]) -> None:
        if not fits(typed):
            raise Stopped

    return completer.complete(source, len(source), "python", check_typed=check_typed)


@pytest.mark.parametrize("source", SOURCES)
def test_whoever_types_a_draft_gets_it(completer: Completer, source: str):
    for _ in range(2):  # rounding depends on how much of the prompt is read at once
        asked = completer.complete(source, len(source), "python")
    drafts = [draft.text for draft in asked.completions if not draft.is_name]
    assert drafts
    for draft in drafts:
        for length in sorted({1, len(draft) // 2 + 1, len(draft)}):
            result = complete(completer, source, draft[:length])
            assert result.completions == asked.completions and result.passes == asked.passes


@pytest.mark.parametrize("source", SOURCES)
def test_whoever_types_what_no_draft_says_stops_it(completer: Completer, source: str):
    for typed in ("\u00fc", "?? no", "xyzzy"):
        with pytest.raises(Stopped):
            complete(completer, source, typed)
