"""Items: a completion ends where the line or block ends, repeats nothing, and is shown once."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.context import Context
from spd_lsp.completion.overlap import remove_overlap
from spd_lsp.completion.postprocess import (
    Completion,
    can_be_code,
    find_end,
    rank_completions,
    trim_draft,
    visible_text,
    with_names,
)


def context_at(shape, indent, after, left=""):
    return Context(left, after, shape, indent)


LINE = context_at("line", "    ", "")


def block(indent):
    return context_at("block", indent, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("foo(a)\n    return", "foo(a)"), ("foo(a)", "foo(a)"), ("foo(a)  ", "foo(a)"), ("\nreturn", "")],
)
def test_a_line_ends_at_its_line_break(text, expected):
    assert trim_draft(text, LINE) == expected


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
def test_a_block_ends_where_a_line_stands_left_of_its_body(indent, text, expected):
    place = block(indent)
    assert find_end(text, place) is not None
    assert trim_draft(text, place) == expected


def test_a_block_cut_off_by_the_length_limit_loses_its_unfinished_line():
    assert trim_draft("\n    a = 1\n    b = fo", block("    ")) == "\n    a = 1"


def test_an_open_block_may_go_on():
    assert find_end("\n    a = 1\n    b", block("    ")) is None
    assert find_end("\n    a = 1\n", block("    ")) is None


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
    ],
)
def test_what_stands_behind_the_cursor_is_not_repeated(text, after, expected):
    assert remove_overlap(text, after) == expected


@pytest.mark.parametrize(
    ("text", "after"),
    [("info", " or x"), ("value", "else 2"), ("self", "f(x)"), ("order", "or x"), ("n10", "0)"), ('"a"', '"b"')],
)
def test_no_name_and_no_string_is_cut_in_two(text, after):
    assert remove_overlap(text, after) == text


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("len(path))", "))", "len(path)"),
        ("path)", "))", "path"),
        ("f(a[0]))]", ")]", "f(a[0])"),
        ("f(x)", "))", "f(x)"),
    ],
)
def test_of_closing_brackets_only_those_go_that_the_draft_does_not_open(text, after, expected):
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


def test_drafts_equal_after_trimming_are_shown_once_and_empty_ones_never():
    drafts = [("a\n  b", -0.1), ("   \n", -0.2), ("a", -0.3), ("c", -0.4)]
    assert [completion.text for completion in rank_completions(drafts, LINE)] == ["a", "c"]


@pytest.mark.parametrize("text", ["self.assertEqual(" * 4, "x = " + "abc" * 6, "a.b," * 7])
def test_a_draft_that_ran_into_a_loop_is_not_shown(text):
    assert rank_completions([(text, -0.1)], LINE) == []


@pytest.mark.parametrize("text", ["self.assertEqual(" * 3, "=" * 17, "[0, 0, 0, 0, 0]", "abcabc"])
def test_a_draft_that_repeats_a_little_is_shown(text):
    assert [completion.text for completion in rank_completions([(text, -0.1)], LINE)] == [text]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("import os\nimport ", "\nx = 1\n", ["sys"]),
        ("import os\n\n    \nimport ", "", ["sys"]),
        ("import ", "\n\nimport os\n", ["sys"]),
        ("import os\nx = 1\nimport ", "\nx = 1\nimport os", ["os", "sys"]),
        ("import os\nimport ", " # of all", ["os", "sys"]),
    ],
)
def test_a_draft_that_repeats_the_line_above_or_below_is_not_shown(before, after, kept):
    drafts = [("os\n", -0.1), ("sys\n", -0.2)]
    place = Context(before, after, "line", "")
    assert [completion.text for completion in rank_completions(drafts, place)] == kept


def test_a_draft_that_would_run_into_the_word_right_of_the_cursor_is_not_shown():
    place = Context("x = na", "me\n", "line", "")
    drafts = [("mespace\n", -0.1), ("me\n", -0.2), ("n(a) + \n", -0.3)]
    assert [completion.text for completion in rank_completions(drafts, place)] == ["n(a) +"]


def test_a_line_of_signs_may_be_repeated():
    place = Context("f([\n  ],\n  ", "\n", "line", "  ")
    assert [completion.text for completion in rank_completions([("],\n", -0.1)], place)] == ["],"]


@pytest.mark.parametrize("language", ["python", None, "sql"])
def test_drafts_that_cannot_be_code_are_dropped_where_the_language_is_known(language):
    drafts = rank_completions([("a b)", -0.1), ("a, b)", -0.2)], LINE)
    source = "x = 1\ny = f(\nz = 3\n"
    kept = can_be_code(drafts, source, source.index("f(") + 2, language)
    assert [draft.text for draft in kept] == (["a, b)"] if language == "python" else ["a b)", "a, b)"])


@pytest.mark.parametrize(
    ("drafts", "names", "expected"),
    [
        ({"mpute(x)": 0.4, "mpute(y)": 0.05}, {"compute": 0.5, "count": 0.1}, ["mpute(x)", "mpute(y)", "unt"]),
        ({"mpute(x)": 0.4, "mpute(y)": 0.01}, {"compute": 0.5, "count": 0.2}, ["mpute(x)", "unt", "mpute(y)"]),
        ({"mpute(x)": 0.4, "mpute(y)": 0.2}, {"compute": 0.5, "count": 0.1}, ["mpute(x)", "mpute(y)", "unt"]),
        ({"mpute": 0.4, "lour": 0.2}, {"compute": 0.5, "count": 0.1}, ["mpute", "lour", "unt"]),
        ({"mpute": 0.4, "lour": 0.01}, {"compute": 0.5, "count": 0.2}, ["mpute", "unt", "lour"]),
        ({"lour": 0.05}, {"count": 0.2}, ["lour", "unt"]),
        ({"lour": 0.05}, {"count": 0.9}, ["unt", "lour"]),
        ({"lour": 0.5}, {"count": 0.9}, ["lour", "unt"]),
        ({}, {"count": 0.9}, ["unt"]),
        ({"lour": 0.5, "lumn": 0.1}, {}, ["lour", "lumn"]),
    ],
)
def test_names_that_are_there_come_before_unlikely_drafts_that_say_nothing_new(drafts, names, expected):
    completions = [Completion(text, probability) for text, probability in drafts.items()]
    assert [one.text for one in with_names(completions, names, "x = co")] == expected


def test_a_draft_without_a_line_end_was_cut_off():
    assert [draft.ends for draft in rank_completions([("f(a)\n", -0.1), ("f(b", -0.2)], LINE)] == [True, False]


def test_probabilities_follow_the_scores():
    shown = rank_completions([("a", -0.1), ("b", -0.7)], LINE)
    assert [round(c.probability, 3) for c in shown] == [0.905, 0.497]


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
        lambda: rank_completions([("x(", -0.1)], there),
        lambda: rank_completions([(line, -0.1)], here),
    ]
    for work in works:
        assert min(seconds(work) for _ in range(3)) < 0.5


def seconds(work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
