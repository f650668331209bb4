"""What was just changed, from the versions of a document."""

from __future__ import annotations

from spd_lsp.edits.observed import Observed

SOURCE = "one = first()\ntwo = one + 1\nthree = one + two\n"


def after(*versions: str) -> list[tuple[str, str]]:
    """The edits of the last line and those before, by a person who leaves these versions behind."""
    observed = Observed(SOURCE)
    for version in versions:
        observed.see(version)
    now, earlier = observed.recent
    return [(edit.old, edit.new) for edit in (*now, *earlier)]


def typed(before: str, old: str, new: str) -> list[str]:
    """The versions while a word is deleted, and another typed in its place."""
    start = before.index(old)
    rest = before[start + len(old) :]
    return [before[:start] + new[:length] + rest for length in range(len(new) + 1)]


def test_keystrokes_in_a_line_are_one_edit_of_whole_tokens():
    versions = typed(SOURCE, "first", "found")
    assert after(*versions) == [("first", "found")]
    assert after(*versions[:3]) == [("first", "fo")]


def test_an_edit_in_another_line_comes_before_the_one_that_was_left():
    versions = typed(SOURCE, "first", "found")
    assert after(*versions, *typed(versions[-1], "two =", "second =")) == [("two", "second"), ("first", "found")]


def test_an_edit_that_is_taken_back_leaves_nothing_to_repeat():
    changed = SOURCE.replace("first", "found")
    assert after(changed, SOURCE) == []
    elsewhere = changed.replace("two =", "second =")
    assert after(changed, elsewhere, elsewhere.replace("found", "first")) == []


def test_what_a_program_changes_is_no_edit():
    assert after("x = 1\n" * 100) == []
    assert after("x = 1\n" * 100, "x = 1\n" * 50 + "y = 1\n" + "x = 1\n" * 49) == [("x", "y")]


def test_two_changes_of_a_line_are_told_apart_and_together():
    assert after(SOURCE.replace("one = first()", "uno = found()")) == [
        ("one", "uno"),
        ("first", "found"),
        ("one = first", "uno = found"),
    ]
