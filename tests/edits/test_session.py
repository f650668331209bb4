"""What a person changed, from the versions of documents, and where it is wanted, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spd_lsp.edits.session import Session

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
