"""Next edits measured on a small history of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.edits.history import read_examples
from spd_lsp.evaluation.edits.measure import measure

BEFORE = "def area(width, height):\n    if width > 9:\n        raise ValueError\n    return width * height\n"


def git(repo: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(repo), *author, *arguments], check=True, capture_output=True)


def commit(repo: Path, **texts: str) -> None:
    for name, text in texts.items():
        (repo / f"{name}.py").write_text(text)
    git(repo, "add", ".")
    git(repo, "commit", "-m", "a change")


def test_the_first_change_of_a_commit_is_made_and_the_others_are_right(tmp_path: Path):
    git(tmp_path, "init")
    for text in (BEFORE, BEFORE.replace("width", "breadth"), BEFORE.replace("width", "breadth").replace("9", "8")):
        commit(tmp_path, area=text)
    once, renamed = read_examples(tmp_path, 10)
    assert [(hunk.old, hunk.new) for hunk in once.first] == [("9", "8")] and not once.alike
    assert len(renamed.alike) == 2
    outcome = measure(renamed)
    assert outcome and outcome.places == 2 and outcome.kind == "word" and not outcome.elsewhere
    assert outcome.right and all(outcome.right)


def test_changes_of_other_files_in_the_same_commit_are_right_too(tmp_path: Path):
    git(tmp_path, "init")
    calls = {"first": "shape = area(width, height)\n", "second": "other = 1\nshape = area(width, height)\n"}
    commit(tmp_path, **calls)
    commit(tmp_path, **{name: text.replace("height)", "height, debug=True)") for name, text in calls.items()})
    [example] = read_examples(tmp_path, 1)
    assert {number for number, _ in example.alike} == {1}
    outcome = measure(example)
    assert outcome and outcome.elsewhere and outcome.right == [True] * len(outcome.right) != []


def test_a_folder_without_history_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="no git history"):
        list(read_examples(tmp_path, 10))
