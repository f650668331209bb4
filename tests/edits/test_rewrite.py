"""What two like edits say of other places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.edits.edit import edit_between
from spd_lsp.edits.rewrite import proposals_of, rewrite_of


def results(first: tuple[str, str], second: tuple[str, str], text: str) -> list[str]:
    """What two edits of lines make of a text, a place each."""
    one, other = (edit_between("a", *pair) for pair in (first, second))
    rewrite = rewrite_of(one, other) if one and other else None
    found = proposals_of(rewrite, text) if rewrite else []
    return [text[: one.start] + one.text + text[one.end :] for one in found]


@pytest.mark.parametrize(
    ("first", "second", "other", "expected"),
    [
        (("a = f(x, 1)", "a = f(x, 1, y)"), ("b = f(x, 1)", "b = f(x, 1, y)"), "c = f(x, 1)", "c = f(x, 1, y)"),
        (("f(a, x=1)", "f(a)"), ("f(b, x=1)", "f(b)"), "f(c, x=1)", "f(c)"),
        (("f(a, x=1)", "f(a, x=a)"), ("f(b, x=1)", "f(b, x=b)"), "f(c, x=1)", "f(c, x=c)"),
        (("x = a.b + 1", 'x = a["b"] + 1'), ("x = a.c + 1", 'x = a["c"] + 1'), "x = a.d + 1", 'x = a["d"] + 1'),
        (("f(a, 1)\n", "is a == 1\n"), ("f(b, 1)\n", "is b == 1\n"), "f(c, 1)\r\n", "is c == 1\r\n"),
    ],
)
def test_two_edits_are_generalised_to_what_they_share(
    first: tuple[str, str], second: tuple[str, str], other: str, expected: str
):
    assert results(first, second, other) == [expected]
    assert results(first, second, expected) == []  # that is done already


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a = f(x)", "a = g(x)"), ("b = f(x)", "b = h(x)")),  # not alike
        (("a = f(x, 1)", "a = f(x)"), ("a = f(x, 2)", "a = f(x)")),  # what another line should lose is not said
        (("a = x + 1", "a = y + 1"), ("b = x - 2", "b = y - 2")),  # too little around it
        (("a = x\n", "a = x\r\n"), ("b = x\n", "b = x\r\n")),  # line ends
        (("if (a and b) {", "if (a and b {"), ("if (c and b) {", "if (c and b {")),  # half a pair of brackets
    ],
)
def test_what_says_too_little_is_proposed_nowhere(first: tuple[str, str], second: tuple[str, str]):
    assert results(first, second, f"{first[0]}\n{second[0]}\n") == []


@pytest.mark.parametrize("other", ["x = f(width_2, a)", "x = f(my.widths, a)", "x = f(width)"])
def test_parts_of_words_and_other_surroundings_stay(other: str):
    assert results(("x = f(width, a)", "x = f(size, a)"), ("y = f(width, a)", "y = f(size, a)"), other) == []


@pytest.mark.parametrize(
    "text", ["a." * 100_000, " " * 200_000, "\t" * 199_999 + "a", "f(a, " * 40_000, "((" * 100_000]
)
@pytest.mark.parametrize("new", ["f(a, b)  == c", "  f(a.b)", "f(a=a, b)"])
def test_no_file_makes_a_search_take_long(new: str, text: str):
    for indent in ("", " " * 100):
        edits = (f"{indent}f(a, b)", indent + new), (f"{indent}f(a, b)", indent + new)
        assert len(results(*edits, text)) <= 200  # would not be reached in an hour


_ODD = st.text("ab1(),. =\t\r\n\0\u2028\x0c\ud800é", max_size=30)


@given(_ODD, _ODD, _ODD, _ODD, _ODD)
def test_no_text_ends_it_and_none_gets_half_a_line_end(
    before: str, after: str, earlier: str, later: str, other: str
):
    for pair in ((earlier, later), (before, after)):
        one, second = edit_between("a", before, after), edit_between("a", *pair)
        if one and second and (rewrite := rewrite_of(one, second)):
            assert after[one.start :].startswith("".join(one.new))
            for found in proposals_of(rewrite, other):
                assert 0 <= found.start <= found.end <= len(other)
                assert not set("\r\n") & set(found.text + other[found.start : found.end])
