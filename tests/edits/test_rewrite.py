"""What one edit, or two, say of other places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.edits.rewrite import edits_between, rewrites
from spd_lsp.edits.sites import find_sites


def results(before: str, after: str, other: str) -> set[str]:
    """What the edit of a line makes of another line."""
    return {
        other[: site.start] + site.text + other[site.end :]
        for edit in edits_between(before, after)
        for rewrite in rewrites(edit, [])
        for site in find_sites(rewrite, other)
    }


@pytest.mark.parametrize(
    ("before", "after", "other", "expected"),
    [
        ("f(width)", "f(breadth)", "return width * 2", "return breadth * 2"),
        ("log(1)", "log(1, end)", "x = log(1)", "x = log(1, end)"),
        ("f(a, debug=True)", "f(a)", "g(b, debug=True)", "g(b)"),
        ("retries = 3", "retries = 5", "timeout = 3", "timeout = 5"),
        ("size = old.size()", "size = new.size()", "name = old.name()", "name = new.name()"),
        ("f(x)", "f(x=x)", "f(y)", "f(y=y)"),
        ("self.size", 'self["size"]', "self.width", 'self["width"]'),
    ],
)
def test_an_edit_says_what_becomes_of_a_line_like_it(before: str, after: str, other: str, expected: str):
    assert expected in results(before, after, other)


def test_two_edits_are_generalised_to_what_they_share():
    first = ("assertEqual(a, 1)", "check(a == 1)")
    [*_, whole] = edits_between(*first)
    [*_, other] = edits_between("assertEqual(b, 2)", "check(b == 2)")
    found = [
        site.text for rewrite in rewrites(whole, [other]) for site in find_sites(rewrite, "assertEqual(c, 3)")
    ]
    assert "check(c ==" in found


@pytest.mark.parametrize("other", ["widths", "self.x", "a_width"])
def test_parts_of_words_and_what_is_changed_already_stay(other: str):
    assert results("f(width)", "f(breadth)", other) == set()
    assert results("f(x)", "f(self.x)", other) == set()


@pytest.mark.parametrize(
    "text", ["a." * 100_000, " " * 200_000, "\t" * 200_000 + "a", "a " * 100_000, "((" * 100_000]
)
@pytest.mark.parametrize(
    ("before", "after"), [("f(x.y)", "f(x.y=x.y)"), ("a  b", "a  c"), ("f a", "f (a"), ("a b", "a  + b")]
)
def test_no_file_makes_a_search_take_long(before: str, after: str, text: str):
    assert len(results(before, after, text)) <= 1000  # would not be reached in an hour


@given(
    st.text("ab1_ .,()=\n\"'é", max_size=40),
    st.text("ab1_ .,()=\n\"'é", max_size=40),
    st.text("ab. (\né", max_size=30),
)
def test_whatever_changes_an_edit_is_what_stands_there_and_no_text_breaks_it(before: str, after: str, other: str):
    for edit in edits_between(before, after):
        assert after[edit.start : edit.start + len(edit.new)] == edit.new
        for rewrite in rewrites(edit, [edit]):
            for site in find_sites(rewrite, other):
                assert 0 <= site.start <= site.end <= len(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a)\n", "f(a)\r\n"),
        ("f(a)\r\n", "f(a)\n"),
        ("f(a)\r", "f(a)"),
        ("f(a, b)\n", "f(a,\rb)\n"),
        ("f(a)\n", "f(\0)\n"),
        ("f(\0, a)\n", "f(a)\n"),
        ("f(a)\n", "f(a\0b)\n"),
    ],
)
def test_line_ends_and_nulls_are_no_edits(before: str, after: str):
    other = "f(a)\r\nf(a)\nf(\0)\nf(\0, a)\nf(a, b)\n"
    for edit in edits_between(before, after):
        for rewrite in rewrites(edit, []):
            assert not any(set("\r\0") & set(site.text) for site in find_sites(rewrite, other))


_ODD = st.text("ab1(),. =\t\r\n\0\u2028\x0c", max_size=30)


@given(_ODD, _ODD, _ODD, _ODD)
def test_no_text_ends_it_and_none_gets_half_a_line_end(before: str, after: str, earlier: str, other: str):
    others = edits_between(earlier, before)
    for edit in edits_between(before, after):
        for rewrite in rewrites(edit, others):
            for site in find_sites(rewrite, other):
                assert not set("\r\n\0") & set(site.text)


def test_an_edit_before_a_line_end_of_two_characters_is_one_as_before_another():
    for end in ("\n", "\r\n"):
        assert f"return breadth * 2{end}" in results(
            f"f(width){end}", f"f(breadth){end}", f"return width * 2{end}"
        )
