"""Items: a completion ends where the line or block ends, repeats nothing, and is shown once."""

from __future__ import annotations

import pytest

from spd_lsp.completion.context import Context
from spd_lsp.completion.postprocess import (
    Completion,
    can_be_code,
    find_end,
    rank_completions,
    trim_draft,
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


@pytest.mark.parametrize(
    ("left", "text", "kept"),
    [
        ("import ", "RegistryRegistry", False),
        ("import Registry", "Registry", False),
        ("import ", "RegistryRegistryRegistry", False),
        ("x = ", "exp.TypeType.DATE", False),
        ("import ", "Registry", True),
        ("import ", "registry.Registry", True),
        ("testtest", "(x)", True),  # the user's own name
        ("x = ", "strstr(a, b)", True),
        ("x = ", "0x00000000", True),
    ],
)
def test_a_draft_with_a_word_said_again_and_again_is_not_shown(left: str, text: str, kept: bool):
    place = Context(left, "\n", "line", "")
    assert [completion.text for completion in rank_completions([(text, -0.1)], place)] == [text] * kept


def test_a_line_of_signs_may_be_repeated():
    place = Context("f([\n  ],\n  ", "\n", "line", "  ")
    assert [completion.text for completion in rank_completions([("],\n", -0.1)], place)] == ["],"]


@pytest.mark.parametrize("language", ["python", None, "sql"])
def test_drafts_that_cannot_be_code_are_dropped_where_the_language_is_known(language):
    drafts = rank_completions([("a b)", -0.1), ("a, b)", -0.2)], LINE)
    source = "x = 1\ny = f(\nz = 3\n"
    kept = can_be_code(drafts, source, source.index("f(") + 2, language, 2)
    assert [draft.text for draft in kept] == (["a, b)"] if language == "python" else ["a b)", "a, b)"])
    assert len(can_be_code(drafts, source, source.index("f(") + 2, language, 1)) == 1


@pytest.mark.parametrize(
    ("drafts", "names", "expected"),
    [
        ({"mpute(x)": 0.4, "mpute(y)": 0.05}, {"compute": 0.2, "count": 0.6}, ["mpute(x)", "unt", "mpute(y)"]),
        ({"mpute(x)": 0.4, "mpute(y)": 0.2}, {"compute": 0.2, "count": 0.6}, ["mpute(x)", "mpute(y)", "unt"]),
        ({"mpute": 0.4, "lour": 0.2}, {"compute": 0.2, "count": 0.6}, ["mpute", "lour", "unt"]),
        ({"mpute": 0.4, "lour": 0.005}, {"compute": 0.2, "count": 0.6}, ["mpute", "unt", "lour"]),
        ({"lour": 0.05}, {"count": 0.2}, ["lour", "unt"]),
        ({"lour": 0.05}, {"count": 0.9}, ["unt", "lour"]),
        ({"lour": 0.5}, {"count": 0.9}, ["lour", "unt"]),
        ({"unt(x)": 0.01}, {"count": 0.9}, ["unt(x)"]),
        ({}, {"count": 0.9}, ["unt"]),
        ({"lour": 0.5, "lumn": 0.1}, {}, ["lour", "lumn"]),
    ],
)
def test_each_place_goes_to_what_adds_most_to_the_line_and_to_its_word(drafts, names, expected):
    completions = [Completion(text, probability) for text, probability in drafts.items()]
    assert [one.text for one in with_names(completions, names, "x = co")] == expected


def test_a_name_that_drafts_say_is_likelier_whether_or_not_they_are_shown():
    drafts = [Completion("mpute(x)", 0.4), Completion("lour(x)", 0.01)]
    names = {"count": 0.3, "colour": 0.3}
    for said, expected in (((), ["mpute(x)", "unt", "lour"]), (drafts, ["mpute(x)", "lour", "unt"])):
        assert [one.text for one in with_names(drafts[:1], names, "x = co", said)] == expected


def test_a_draft_without_a_line_end_was_cut_off():
    assert [draft.ends for draft in rank_completions([("f(a)\n", -0.1), ("f(b", -0.2)], LINE)] == [True, False]


def test_probabilities_follow_the_scores():
    shown = rank_completions([("a", -0.1), ("b", -0.7)], LINE)
    assert [round(c.probability, 3) for c in shown] == [0.905, 0.497]
