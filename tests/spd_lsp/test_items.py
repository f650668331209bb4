"""Items: a completion ends where the line or block ends, repeats nothing, and is shown once."""

from __future__ import annotations

import pytest

from spd_lsp.items import Place, ending, rank, trim, without_overlap

LINE = Place("line", "    ", "")


def block(indent):
    return Place("block", indent, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("foo(a)\n    return", "foo(a)"), ("foo(a)", "foo(a)"), ("foo(a)  ", "foo(a)"), ("\nreturn", "")],
)
def test_a_line_ends_at_its_line_break(text, expected):
    assert trim(text, LINE) == expected


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
    assert ending(text, place) is not None
    assert trim(text, place) == expected


def test_a_block_cut_off_by_the_length_limit_loses_its_unfinished_line():
    assert trim("\n    a = 1\n    b = fo", block("    ")) == "\n    a = 1"


def test_an_open_block_may_go_on():
    assert ending("\n    a = 1\n    b", block("    ")) is None
    assert ending("\n    a = 1\n", block("    ")) is None


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [("x)", ")", "x"), ("len(x)", ")", "len(x)"), ("len(x))", ")\n", "len(x)"), ("x", "", "x"), ("a:", ":", "a")],
)
def test_what_stands_behind_the_cursor_is_not_repeated(text, after, expected):
    assert without_overlap(text, after) == expected


def test_drafts_equal_after_trimming_are_shown_once_and_empty_ones_never():
    drafts = [("a\n  b", -0.1), ("   \n", -0.2), ("a", -0.3), ("c", -0.4)]
    assert [completion.text for completion in rank(drafts, LINE)] == ["a", "c"]


@pytest.mark.parametrize("text", ["self.assertEqual(" * 4, "x = " + "abc" * 6, "a.b," * 7])
def test_a_draft_that_ran_into_a_loop_is_not_shown(text):
    assert rank([(text, -0.1)], LINE) == []


@pytest.mark.parametrize("text", ["self.assertEqual(" * 3, "=" * 17, "[0, 0, 0, 0, 0]", "abcabc"])
def test_a_draft_that_repeats_a_little_is_shown(text):
    assert [completion.text for completion in rank([(text, -0.1)], LINE)] == [text]


def test_probabilities_follow_the_scores():
    shown = rank([("a", -0.1), ("b", -0.7)], LINE)
    assert [round(c.probability, 3) for c in shown] == [0.905, 0.497]
