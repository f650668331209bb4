"""What a person changed, from the versions of documents, and where it is wanted, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.edits import Session, edit_between, proposals_of


def results(first: tuple[str, str], second: tuple[str, str], text: str) -> list[str]:
    """What two edits of lines make of a text, a place each."""
    one, other = (edit_between("a", *pair) for pair in (first, second))
    found = proposals_of(one, other, text) if one and other else []
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
        if one and second:
            assert after[one.start :].startswith("".join(one.new))
            for found in proposals_of(one, second, other):
                assert 0 <= found.start <= found.end <= len(other)
                assert not set("\r\n") & set(found.text + other[found.start : found.end])


LINES = "".join(f"shape{n} = area({n}{n}, width, height)\n" for n in range(5))
ALL = set(range(5))


def changed(text: str, *lines: int) -> str:
    """A text whose calls have one more argument in some lines."""
    split = text.splitlines(keepends=True)
    return "".join(line.replace("ht)", "ht, debug=True)") if n in lines else line for n, line in enumerate(split))


def typed(before: str, after: str) -> Iterator[str]:
    """The versions while a text is inserted, letter by letter."""
    start = next(n for n in range(len(after)) if before[n : n + 1] != after[n])
    added = len(after) - len(before)
    return (before[:start] + after[start : start + n] + before[start:] for n in range(1, added + 1))


def lines_after(*versions: str, session: Session | None = None) -> list[int]:
    """The lines that are proposed to a person who leaves these versions behind."""
    session = session or Session()
    for version in versions:
        session.see({**session.texts, "a": version})
    return [versions[-1].count("\n", 0, found.start) for found in session.proposals()]


def test_the_second_of_two_like_edits_is_proposed_where_it_is_wanted_too():
    once, twice = changed(LINES, 1), changed(LINES, 1, 2)
    assert lines_after(LINES, *typed(LINES, once)) == []
    assert lines_after(LINES, *typed(LINES, once), *typed(once, twice)) == [3, 4, 0]  # first those below
    assert lines_after(LINES, once, changed(LINES, 1, 4)) == []  # those between were passed over


def test_edits_in_two_documents_are_alike_too():
    session = Session()
    session.see({"a": LINES, "b": LINES})
    session.see({"a": LINES, "b": changed(LINES, 1)})
    assert lines_after(changed(LINES, 0), session=session) == [1, 2, 3, 4]
    session.see({"a": changed(LINES, 0)})  # the other one was closed
    assert lines_after(changed(LINES, 0, 1), session=session) == [2, 3, 4]


@pytest.mark.parametrize(
    "last",
    [
        [changed(LINES, 1, 2), changed(LINES, 1)],
        [changed(LINES, 1, 2), LINES],
        [changed(LINES, 1, 2), changed(LINES, 1, 2).replace("shape0", "size")],
        [changed(LINES, *ALL)],
        ["x = 1\n" * 100, changed(LINES, 1, 2)],
    ],
    ids=["taken back", "both taken back", "another edit", "all at once", "by a program"],
)
def test_after_anything_else_nothing_is_proposed(last: list[str]):
    assert lines_after(LINES, changed(LINES, 1), *last) == []
