"""Copies of earlier files are skipped, even with a few lines changed; files that only begin alike are kept."""

from __future__ import annotations

from spd_lsp.training.corpus.copies import Copies

TEXT = [f"value_{number} = compute_the_value({number})" for number in range(40)]


def content(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def test_an_equal_file_is_a_duplicate_however_short() -> None:
    copies = Copies()
    assert copies.skip_reason(b"x = 1\n") == ""
    assert copies.skip_reason(b"x = 1\n") == "duplicate"


def test_a_file_with_a_few_different_lines_is_a_near_copy() -> None:
    copies = Copies()
    assert copies.skip_reason(content(TEXT)) == ""
    assert copies.skip_reason(content(["another_line = something_else()", *TEXT[2:]])) == "near duplicate"
    assert copies.skip_reason(content(TEXT[5:30])) == "near duplicate"


def test_half_of_a_file_in_common_is_no_copy() -> None:
    copies = Copies()
    copies.skip_reason(content(TEXT))
    assert (
        copies.skip_reason(content([*TEXT[:20], *(f"other_{n} = something_else({n})" for n in range(20))])) == ""
    )


def test_lines_that_many_files_share_do_not_make_a_copy() -> None:
    """Common lines are in every file; a copy is of one file."""
    copies = Copies()
    for start in range(0, 40, 8):
        copies.skip_reason(content(TEXT[start : start + 8]))
    assert copies.skip_reason(content(TEXT)) == ""


def test_short_files_are_only_compared_as_a_whole() -> None:
    copies = Copies()
    copies.skip_reason(content(TEXT))
    assert copies.skip_reason(content(TEXT[:5])) == ""
