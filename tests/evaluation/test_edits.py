"""Next edits measured on a small history of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.edits import describe_edits, replay

CALLS = "\n".join(f"shape{n} = area({n}{n}, width, height)" for n in range(4)) + "\nother = 1\n"
RIGHT = CALLS.replace("height)", "height, debug=True)")
WRONG = RIGHT.replace("33, width, height, debug=True)", "33)")  # the last one is changed otherwise


def git(repo: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(repo), *author, *arguments], check=True, capture_output=True)


def commit(repo: Path, **texts: str) -> None:
    for name, text in texts.items():
        (repo / f"{name}.py").write_text(text)
    git(repo, "add", ".")
    git(repo, "commit", "-m", "a change")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    commit(tmp_path, area=CALLS)
    return tmp_path


@pytest.mark.parametrize(
    ("after", "proposed"),
    [
        (RIGHT, [None, True, True, None]),
        (WRONG, [None, True, False, None]),
        (CALLS.replace("other = 1", "other = 2"), [None]),
        (CALLS.replace("other = 1\n", ""), [None]),
    ],
)
def test_what_is_proposed_is_right_if_the_author_did_it_next(repo: Path, after: str, proposed: list[bool | None]):
    commit(repo, area=after)
    assert [moment.right for moment in replay(repo, 1)] == proposed


def test_changes_in_the_files_of_a_commit_are_counted_together(repo: Path):
    commit(repo, other=CALLS.replace("shape", "size"))
    commit(repo, area=RIGHT, other=RIGHT.replace("shape", "size"))
    moments = list(replay(repo, 1))
    assert [(moment.made, moment.left) for moment in moments] == [(n, 8 - n) for n in range(1, 9)]
    assert moments[4].right is True
    assert next(describe_edits([repo], 1)).startswith("first proposals right: 1.000")


def test_a_folder_without_history_is_named(tmp_path: Path):
    with pytest.raises(UserError, match="no git history"):
        list(replay(tmp_path, 10))
