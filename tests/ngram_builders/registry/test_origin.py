"""Where a table is from: the commit is read without running git, and a stranger's header is only text."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ngram_builders.registry.origin import Origin, find_revision, read_origin, with_revision

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = COMMIT[::-1]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_commit_of_a_branch_a_tag_and_a_work_tree_is_found(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    (repository / "inner").mkdir()
    assert find_revision(repository) == find_revision(repository / "inner") == first
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    second = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert find_revision(repository) == second
    git(repository, "worktree", "add", "-q", "-b", "side/branch", str(tmp_path / "tree"), first)
    assert find_revision(tmp_path / "tree") == first
    git(repository, "pack-refs", "--all")
    assert find_revision(tmp_path / "tree") == first
    git(repository, "checkout", "-q", "--detach", first)
    assert find_revision(repository) == first


def test_a_folder_without_git_has_no_revision(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()  # ends the search above
    assert find_revision(tmp_path / "nowhere") is None
    assert find_revision(tmp_path) is None


@pytest.mark.parametrize(
    "head",
    [
        "ref: refs/../../secret",
        "ref: ../../secret",
        "ref: /etc/passwd",
        "ref: refs/heads/\0x",
        "ref: refs/heads/gone",
        "not a commit",
        "x" * 100_000,
        "",
    ],
)
def test_no_head_of_a_stranger_leads_out_of_the_repository(tmp_path: Path, head: str) -> None:
    own = tmp_path / "shop" / ".git"
    own.mkdir(parents=True)
    (tmp_path / "secret").write_text(COMMIT)
    (own / "HEAD").write_text(head)
    assert find_revision(own.parent) is None


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    own = tmp_path / ".git"
    own.mkdir()
    (tmp_path / "elsewhere").write_text(COMMIT)
    (own / "HEAD").symlink_to(tmp_path / "elsewhere")
    assert find_revision(tmp_path) is None
    (own / "HEAD").unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(own / "HEAD")
        assert find_revision(tmp_path) is None  # and does not wait for a writer


@pytest.mark.parametrize("place", ["//evil/share", r"\\evil\share", "", "\0", "/no/such/folder"])
def test_a_file_that_names_another_place_is_followed_only_on_this_machine(tmp_path: Path, place: str) -> None:
    (tmp_path / ".git").write_text(f"gitdir: {place}\n")
    assert find_revision(tmp_path) is None


@pytest.mark.parametrize(
    "stored",
    [None, 5, [], {"built": float("inf")}, {"built": float("nan")}, {"built": -1}, {"built": "now"}, {"model": 5}],
)
def test_what_a_header_says_of_itself_is_nothing_if_it_is_impossible(stored: object) -> None:
    assert read_origin({"origin": stored}) == Origin()


def test_what_a_header_says_of_itself_is_short() -> None:
    assert len(read_origin({"origin": {"model": "m" * 60_000}}).model) == 200


def test_a_commit_is_shown_as_people_know_it() -> None:
    assert with_revision("shop", COMMIT) == "shop at 012345678"
    assert with_revision("a, b", f"{COMMIT},{OTHER}") == f"a, b at 012345678, {OTHER[:9]}"
    assert (with_revision("shop", ""), with_revision("", COMMIT)) == ("shop", "")
