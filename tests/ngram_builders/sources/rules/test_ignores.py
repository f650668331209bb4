"""Ignore files act as in git, whatever the rules."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.sources.discovery import explain_skipped, survey
from tests.ngram_builders.sources.test_discovery import write_files
from tests.ngram_builders.sources.test_git_repository import CODE, git, sources

ALPHABET = "a b c.py d.py *.py c* ? [ab] [!a] [^a] ** * c.p[xy] \\b *.*p*y"
RULE = st.builds(
    lambda negated, rooted, parts, folder: f"{negated}{rooted}{'/'.join(parts)}{folder}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(ALPHABET.split()), min_size=1, max_size=3),
    st.sampled_from(["", "", "/", " ", "\\ "]),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=60, deadline=None)
@given(outer=st.lists(RULE, max_size=5), inner=st.lists(RULE, max_size=3))
def test_all_rules_skip_what_git_ignores(
    outer: list[str], inner: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("repo")
    for folder in ("", "a/", "a/b/", "b/", "b/a/"):
        for name in ("c.py", "d.py"):
            (root / folder).mkdir(exist_ok=True)
            (root / folder / name).write_text(CODE)
    (root / ".gitignore").write_text("\n".join(outer))
    (root / "a" / ".gitignore").write_text("\n".join(inner))
    git(root, "init", "-q")
    listed = git(root, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    assert sources(root) == sorted(listed.split())


ODD = r"""
    {c,d}.py *.{py,c} [a a[ []c].py [!]c].py [\]c].py [a-b] [b-a] [\a] [c-].py a[/]b c[!a-z]py
    *** a*** a**b **a c** **.py a/** a/**/ **/a a/**/c.py /** **/ a/**/**/c.py a/***/c.py a/* */*/c.py /*/ a?b c?py
    / // a//b ! !!a \!x \#x #x \ a\ c.py\ /a/b a/b/c.py/ ./c.py a/./b *[.]py (c).py ^c.py$
"""
ODD_FILES = "c.py d.py a/c.py a/b/c.py a/b/d.py b/c.py (c).py ].py -.py !x/a.py #x/a.py {c,d}.py"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_odd_lines_skip_what_git_ignores(tmp_path: Path) -> None:
    write_files(tmp_path, dict.fromkeys(ODD_FILES.split(), CODE))
    git(tmp_path, "init", "-q")
    for line in (*ODD.split(), "c.py\t", "c.py\r", "c.py  ", "c.py\\ "):
        (tmp_path / ".gitignore").write_bytes(f"{line}\n".encode())
        listed = git(tmp_path, "ls-files", "-z", "--others", "--exclude-standard", "--", "*.py")
        assert sources(tmp_path) == sorted(listed.split("\0")[:-1]), line


def test_a_nested_repository_has_its_own_gitignore_and_shares_spdignore(tmp_path: Path) -> None:
    write_files(tmp_path, {".gitignore": "*_old.py\n", ".spdignore": "*_draft.py\n", ".git/HEAD": ""})
    write_files(tmp_path, {"inner/.git/info/exclude": "mine.py\n", "inner/.gitignore": "own.py\n"})
    names = ["a_old.py", "inner/a_old.py", "inner/mine.py", "inner/own.py", "inner/b_draft.py"]
    write_files(tmp_path, dict.fromkeys(names, CODE))
    assert sources(tmp_path) == ["inner/a_old.py"]
    assert sources(tmp_path / "inner") == ["inner/a_old.py".removeprefix("inner/"), "b_draft.py"]


def test_the_rule_that_skips_a_file_is_named(tmp_path: Path) -> None:
    write_files(
        tmp_path, {".gitignore": "# logs\n\n*.py\n!b.py\nold/\n", "a.py": CODE, "b.py": CODE, "old/c.py": CODE}
    )
    top = tmp_path.resolve()
    assert explain_skipped(tmp_path / "a.py", tmp_path) == (
        "ignored by .gitignore",
        f"{top / '.gitignore'}:3: *.py",
    )
    assert explain_skipped(tmp_path / "b.py", tmp_path) is None
    assert explain_skipped(tmp_path / "old" / "c.py", tmp_path) == (
        "ignored by .gitignore",
        f"{top / '.gitignore'}:5: old/",
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_rules_match_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        write_files(
            folder, {".gitignore": "old*\n", os.fsdecode(b"old\xff.py"): CODE, os.fsdecode(b"new\xff.py"): CODE}
        )
    except OSError:
        pytest.skip("this file system refuses such names")
    assert [os.fsencode(Path(file.path).name) for file in survey(tmp_path).files] == [b"new\xff.py"]
    assert [os.fsencode(Path(file.path).name) for file in survey(folder).files] == [b"new\xff.py"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_an_ignore_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"a.py": CODE, "pipe/a.py": CODE, "device/a.py": CODE, "link/a.py": CODE, "rules": "*.py\n"}
    )
    os.mkfifo(tmp_path / "pipe" / ".gitignore")
    (tmp_path / "device" / ".gitignore").symlink_to("/dev/zero")
    (tmp_path / "link" / ".gitignore").symlink_to(tmp_path / "rules")
    os.mkfifo(tmp_path / "pipe" / ".git")
    (tmp_path / "device" / ".git").symlink_to("/dev/zero")
    assert sources(tmp_path) == ["a.py", "device/a.py", "link/a.py", "pipe/a.py"]
