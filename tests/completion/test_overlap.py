"""What stands behind the cursor is not said again: no bracket is closed twice, no word or string cut in two."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import find_end, visible_text
from spd_lsp.completion.offer import usable_completions
from spd_lsp.completion.overlap import remove_overlap


def context_at(shape, indent, after, left=""):
    return Context(left, after, shape, indent)


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("x)", ")", "x"),
        ("len(x)", ")", "len(x)"),
        ("len(x))", ")\n", "len(x)"),
        ("x", "", "x"),
        ("a:", ":", "a"),
        ("a or b", " or b", "a"),
        ("x", "x", ""),
        ("f()", "()", "f"),
        ('b"]', '"] = 1', "b"),
        ("a, b", "b)", "a, "),
        ("a == b", " == b", "a"),
        # no name and no string is cut in two
        ("info", " or x", "info"),
        ("value", "else 2", "value"),
        ("n10", "0)", "n10"),
        ('"a"', '"b"', '"a"'),
        # of closing brackets only those go that the draft does not open
        ("len(path))", "))", "len(path)"),
        ("path)", "))", "path"),
        ("f(a[0]))]", ")]", "f(a[0])"),
        ("f(x)", "))", "f(x)"),
    ],
)
def test_what_stands_behind_the_cursor_is_not_repeated(text, after, expected):
    assert remove_overlap(text, after) == expected


@given(st.text("ab_ .,:()[]{}'", max_size=12), st.text("ab_ .,:()[]{}'", max_size=8))
def test_the_end_that_is_cut_off_is_what_the_rest_begins_with_and_no_part_of_a_word(text, after):
    kept = remove_overlap(text, after)
    cut = text[len(kept) :].strip() if text != kept else ""
    assert text.startswith(kept) and after.strip().startswith(cut)
    assert not (re.search(r"\w$", kept) and re.match(r"\w", text[len(kept) :]))


@pytest.mark.parametrize(
    ("left", "text", "after", "expected"),
    [
        ("sorted(", "names),", ")", "names"),
        ("sorted(", "names)) == 1", ")", "names"),
        ("return [", "x for x in self.items]", " for x in xs]", "x"),
        ("f(", "a, c)", ", b)", "a"),
        ("f(", "g(a), b):", "):", "g(a), b"),
        ("f(g(", "a), b", ")", "a), b"),  # the line waits for one bracket more than stands right
        ("f(g(", "a), b)) + 1", ")", "a), b"),
        ("f(g(", "a)", ")", "a)"),
        ("f(g(", "a))", ")", "a)"),
        ("x.split(", "')')", ")", "')'"),
        ("", "f(a) + b", " + (c)", "f(a) + b"),
        ("f(", "a)", "", "a)"),
    ],
)
def test_a_draft_ends_before_it_closes_what_is_closed_right_of_the_cursor(left, text, after, expected):
    place = context_at("line", "", after, left)
    assert find_end(text, place) in (None if text == expected else len(expected), len(expected) + 1)
    assert visible_text(text, place) == expected


@pytest.mark.parametrize(
    ("text", "left", "after", "expected"),
    [
        ("self, *args, **kwargs) -> None:\n", "    def delay(", ", **kwargs) -> None:\n", "self, *args"),
        ("1, 2, 3, 4, 5])\n", "f([", ", 4, 5])\n", "1, 2, 3"),
    ],
)
def test_a_draft_ends_where_it_says_most_of_what_stands_there(text: str, left: str, after: str, expected: str):
    assert visible_text(text, context_at("line", left, after, left)) == expected


@pytest.mark.parametrize(
    "line",
    [
        *("\\'" * 32_000, "'" * 64_000, "'\"\\" * 21_000, "(" * 64_000, "a" * 64_000, "a)" * 32_000),
        *("b" + "a" * 64_000, "a" * 64_000 + "b", ("aaaaaaaaab" * 6_400 + "c"), "a" * 31_999 + "b" + "a" * 32_000),
    ],
    ids=lambda line: f"{line[:4]} {line[31_998:32_000]} {line[-4:]}",
)
def test_the_worst_line_and_the_worst_draft_take_little_time(line: str):
    """64 kB of them took up to minutes, in which no session of the server was answered."""
    there, here = context_at("line", "", line, "f(" + line), context_at("line", "", ")", "f(")
    works = [
        lambda: find_end("x)", there),
        lambda: usable_completions([("x(", -0.1)], there),
        lambda: usable_completions([(line, -0.1)], here),
    ]
    for work in works:
        assert any(seconds(work) < 0.5 for _ in range(3))


def seconds(work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
