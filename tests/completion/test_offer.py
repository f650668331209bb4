"""What is offered repeats nothing, can be code, and is shown once; what saves most keystrokes comes first."""

from __future__ import annotations

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.completion.context import build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import OfferInputs, can_be_offered, make_offer, usable_completions, without_broken
from spd_lsp.completion.ranking import WITH_NGRAMS, Completion, Weights, beginnings, choose_completions, is_variant
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.settings import Settings
from tests.completion.places import context_at

LINE = context_at("line", "    ", "")


def block(indent):
    return context_at("block", indent, "")


def test_drafts_equal_after_trimming_are_shown_once_and_empty_ones_never():
    drafts = [("a\n  b", -0.1), ("   \n", -0.2), ("a", -0.3), ("c", -0.4)]
    assert [completion.text for completion in usable_completions(drafts, LINE)] == ["a", "c"]


@pytest.mark.parametrize("text", ["self.assertEqual(" * 4, "x = " + "abc" * 6, "a.b," * 7])
def test_a_draft_that_ran_into_a_loop_is_not_shown(text):
    assert usable_completions([(text, -0.1)], LINE) == []


@pytest.mark.parametrize("text", ["self.assertEqual(" * 3, "=" * 17, "[0, 0, 0, 0, 0]", "abcabc"])
def test_a_draft_that_repeats_a_little_is_shown(text):
    assert [completion.text for completion in usable_completions([(text, -0.1)], LINE)] == [text]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("import os\nimport ", "\nx = 1\n", ["sys"]),
        ("import os\n\n    \nimport ", "", ["sys"]),
        ("import ", "\n\nimport os\n", ["sys"]),
        ("import os\nx = 1\nimport ", "\nx = 1\nimport os", ["sys"]),
    ],
)
def test_a_draft_that_repeats_the_line_above_or_below_is_not_shown(before, after, kept):
    drafts = [("os\n", -0.1), ("sys\n", -0.2)]
    place = context_at(after=after, left=before)
    assert [completion.text for completion in usable_completions(drafts, place)] == kept


def test_a_draft_that_would_run_into_the_word_right_of_the_cursor_is_not_shown():
    place = context_at(after="me\n", left="x = na")
    drafts = [("mespace\n", -0.1), ("me\n", -0.2), ("n(a) + \n", -0.3)]
    assert [completion.text for completion in usable_completions(drafts, place)] == ["n(a) +"]


@pytest.mark.parametrize(
    ("left", "text", "kept"),
    [
        ("import ", "RegistryRegistry", False),
        ("import Registry", "Registry", False),
        ("x = ", "exp.TypeType.DATE", False),
        ("import ", "registry.Registry", True),
        ("testtest", "(x)", True),  # the user's own name
        ("x = ", "0x00000000", True),
    ],
)
def test_a_draft_with_a_word_said_again_and_again_is_not_shown(left: str, text: str, kept: bool):
    place = context_at(after="\n", left=left)
    assert [completion.text for completion in usable_completions([(text, -0.1)], place)] == [text] * kept


@pytest.mark.parametrize(
    ("left", "text", "kept"),
    [
        ("def f():\n    ", '"""', False),  # quotes and nothing in them
        ("x = ", "''", True),
        ('def f():\n    """Adds.\n    ', '"""', True),  # what closes a literal
        ("import os\nimport re\n", "import os", False),
        ("import os\nimport re\n", "import os.path", True),
        ("from a import b\nx = 1\nfrom a import ", "b", False),
        ("def f(path):\n    return ", "self.path", False),
        ("class A:\n    def f(self, path):\n        if path:\n            return ", "self.path", True),
        ("class A:\n    def f(\n        self,\n        path,\n    ):\n        return ", "self.path", True),
        ("class A:\n    def f(self):\n        def g():\n            return ", "self.path", True),
        ("class A:\n    def f(self):", "\n        self.path = 1", True),
        ("def f(path):", "\n    self.path = 1", False),
    ],
)
def test_what_nobody_writes_there_is_not_shown(left: str, text: str, kept: bool):
    place = context_at("block" if text[0] == "\n" else "line", "    ", after="\n", left=left, language="python")
    assert [one.text for one in usable_completions([(text, -0.1)], place)] == [text] * kept


def test_a_line_of_signs_may_be_repeated():
    place = context_at("line", "  ", "\n", "f([\n  ],\n  [\n  ")
    assert [completion.text for completion in usable_completions([("],\n", -0.1)], place)] == ["],"]


@pytest.mark.parametrize("language", ["python", "sql"])
def test_lines_that_cannot_be_code_are_dropped_where_the_language_is_known(language):
    place = context_at(left="y = f(", after=")\nz = 3\n", language=language)
    lines = [Completion("a b", 0.4), Completion("a, b", 0.3), Completion("a c", 0.2, ends=False)]
    kept = [one.text for one in without_broken(lines, place, 3)]
    assert kept == (["a, b", "a c"] if language == "python" else ["a b", "a, b", "a c"])


@pytest.mark.parametrize(
    ("drafts", "names", "expected"),
    [
        ({"mpute(x)": 0.4, "mpute(y)": 0.05}, {"compute": 0.2, "count": 0.6}, ["mpute(x)", "unt", "mpute(y)"]),
        ({"mpute(x)": 0.4, "mpute(y)": 0.2}, {"compute": 0.5, "count": 0.1}, ["mpute(x)", "mpute(y)", "mpute"]),
        ({"mpute": 0.4, "lour": 0.2}, {"compute": 0.2, "count": 0.6}, ["mpute", "lour", "unt"]),
        ({"mpute": 0.4, "lour": 0.005}, {"compute": 0.2, "count": 0.6}, ["mpute", "unt", "lour"]),
        ({"lour": 0.05}, {"count": 0.9}, ["unt", "lour"]),
        ({"lour": 0.5}, {"count": 0.9}, ["lour", "unt"]),
        ({"unt(x)": 0.01}, {"count": 0.9}, ["unt", "unt(x)"]),
        ({"unt(x)": 0.5}, {"count": 0.9}, ["unt(x)", "unt"]),
    ],
)
def test_each_place_goes_to_what_adds_most_to_the_line_and_to_its_word(drafts, names, expected):
    completions = [Completion(text, probability) for text, probability in drafts.items()]
    assert [one.text for one in choose_completions(completions, {}, names, "x = co", 3)] == expected


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [("rows", "rows(", True), ("rows():", "rows(", True), ("rows", "rows(a)", False), ("rows", "row", False)],
)
def test_texts_that_differ_by_signs_at_the_end_are_variants(text, other, expected):
    assert is_variant(text, other) is is_variant(other, text) is expected


def test_a_variant_of_a_better_draft_gives_way_to_another_text(tokens):
    source = "x = "
    context = build_context(source, len(source), "python", 512, tokens.count, explicit=True)
    texts = DraftText(tokens, tokens.prompt(context.before, context.after), context)
    said = {"rows\n": 0.5, "rows()\n": 0.3, "count\n": 0.1}
    drafts = [Draft(tuple(tokens.encode(f" {text}")), math.log(p)) for text, p in said.items()]
    inputs = OfferInputs(texts, [], dict, WITH_NGRAMS)
    offer = make_offer(DecodingResult(drafts, 1, 1), inputs, Settings(drafts=2), explicit=True)
    assert [one.text for one in offer.completions] == ["rows", "count"]


def test_a_name_that_drafts_say_is_likelier_whether_or_not_they_are_shown():
    drafts = [Completion("mpute(x)", 0.4), Completion("py(x)", 0.01)]
    names = {"cost": 0.3, "copy": 0.3}
    for said, expected in (((), ["mpute(x)", "st", "py"]), (drafts, ["mpute(x)", "py", "st"])):
        assert [one.text for one in choose_completions(drafts[:1], {}, names, "x = co", 3, said)] == expected


@pytest.mark.parametrize(
    ("left", "drafts", "beginnings", "expected"),
    [
        ("", {"rows(a)": 0.4, "rows(b)": 0.01}, {"rows(": 0.8}, ["rows(a)", "rows(", "rows(b)"]),
        ("", {"rows(a)": 0.4, "rows(b)": 0.04}, {"rows(": 0.8}, ["rows(a)", "rows(b)", "rows("]),
        ("x_", {"rows(a)": 0.4, "rows(b)": 0.04}, {"rows(": 0.8}, ["rows(a)", "rows(", "rows(b)"]),
        ("x_", {"rows(a)": 0.8, "g": 0.05}, {"rows(": 0.85}, ["rows(a)", "g", "rows("]),
        (
            "x_",
            {"all_rows(a)": 0.4, "g": 0.001},
            {"all_rows(": 0.8, "all_rows": 0.9},
            ["all_rows(a)", "all_rows", "g"],
        ),
        ("x_", {"rows(a)": 0.4, "rows": 0.05, "g": 0.06}, {"rows": 0.8}, ["rows(a)", "rows", "g"]),
    ],
)
def test_each_place_behind_the_first_goes_to_the_draft_or_beginning_that_adds_most(
    left, drafts, beginnings, expected
):
    """Inside a word a line is worth less: mostly it was offered before, and passed by."""
    completions = [Completion(text, probability) for text, probability in drafts.items()]
    found = choose_completions(completions, beginnings, {}, left, 3)
    assert [one.text for one in found] == expected
    assert [one.text for one in found[1:] if not one.ends] == [text for text in expected[1:] if text in beginnings]


def test_a_beginning_that_is_a_name_as_well_stays_while_it_is_typed():
    found = choose_completions([Completion("unt(x)", 0.5)], {"unt": 0.8}, {"count": 0.9}, "x = co", 3)
    assert [(one.text, one.is_name) for one in found] == [("unt(x)", False), ("unt", False)]


UNCHANGED = Weights(0, 1, 1, 0, 0, 0)


def begun(said, drafts, is_usable=lambda text: True):
    """The beginnings of drafts, of what was said on the way, each with its probability."""
    written = [(text, math.log(p)) for text, p in said.items()]
    completions = [Completion(text, p) for text, p in drafts.items()]
    return beginnings(written, completions, UNCHANGED, is_usable)


def test_a_beginning_is_at_least_as_likely_as_its_draft_and_no_likelier_than_what_the_first_leaves():
    found = begun({"error": 0.5, "errors as": 0.5}, {"error.code": 0.8, "errors as found": 0.04})
    assert found == {"error": 0.8, "errors as": pytest.approx(0.2)}


def test_drafts_begin_at_the_ends_of_words_with_the_likeliest_way_to_write_that():
    said = {"tot": 0.9, "total": 0.8, "total(": 0.5, "total( ": 0.4, "total(row": 0.3, "other": 0.2, "else": 0.1}
    found = begun(said, {"total(rows)": 0.2, "otherwise": 0.1})
    # .8 and .5, as far as anything is foreseen
    assert {text: round(p, 3) for text, p in found.items()} == {"total": 0.752, "total(": 0.47}


def test_a_beginning_that_repeats_the_line_below_is_not_offered():
    context = context_at("line", "", "\nreturn\n")
    said = {"return": 0.9, "raise": 0.9}
    assert set(begun(said, {"return x": 0.2, "raise x": 0.2}, partial(can_be_offered, context=context))) == {
        "raise"
    }


def test_a_draft_without_a_line_end_was_cut_off():
    assert [draft.ends for draft in usable_completions([("f(a)\n", -0.1), ("f(b", -0.2)], LINE)] == [True, False]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["mpute(", "mpute", "py("]), st.floats(0, 1)),
    st.dictionaries(st.sampled_from(["compute", "count", "copy"]), st.floats(0.1, 1)),
)
def test_the_order_follows_the_probability_that_is_shown(p, beginnings_of_drafts, names):
    texts = ["mpute(x)", "mpute(y)", "py(y) and more", "x"]
    drafts = [Completion(text, one) for text, one in zip(texts, sorted(p, reverse=True), strict=False)]
    chosen = choose_completions(drafts, beginnings_of_drafts, names, "x = co", 3)
    shown = [one.shown_probability for one in chosen if one.shown_probability is not None]
    assert shown == sorted(shown, reverse=True)
    unrated = {one.text for one in chosen if one.shown_probability is None}
    assert all(one.is_name or one.text in beginnings_of_drafts for one in chosen if one.text in unrated)
