"""In a git work tree, what git tracks decides; its index is read without running git, whatever is in it."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ngram_builders.sources.discovery import explain_skipped, skip_reason, survey
from ngram_builders.sources.git_repository import TrackedFiles, WorkTree, follow

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CODE = "x = 1\n"
_AS_SOMEBODY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def git(root: Path, *arguments: str) -> str:
    """Run git in a folder, without the user's settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(root), *_AS_SOMEBODY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def repository(root: Path, *names: str, ignore: str = "", options: tuple[str, ...] = ()) -> Path:
    """A work tree that tracks these files, whatever it ignores."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", *options)
    add_files(root, *names)
    (root / ".gitignore").write_text(ignore)
    git(root, "add", "--force", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def add_files(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CODE)


def sources(root: Path) -> list[str]:
    return [path.relative_to(root.resolve()).as_posix() for path in survey(root).paths]


def tracked(root: Path) -> list[str]:
    """What git says that it tracks."""
    listed = git(root, "ls-files", "-z", "--recurse-submodules").split("\0")
    return sorted(name for name in listed if name.endswith((".py", ".go", ".c")))


NAMES = ("setup.py", "src/build/__main__.py", "cmd/dist/main.go", "drivers/target/core.c", "src/virtualenv/run.py")


def test_tracked_folders_count_whatever_they_are_called(tmp_path: Path) -> None:
    root = repository(tmp_path, *NAMES)
    assert sources(root) == sorted(NAMES) == tracked(root)
    assert survey(root).count_skipped() == {"not source code": 1}
    assert skip_reason(root / "cmd" / "dist" / "main.go", root) is None
    assert sources(root / "cmd") == ["dist/main.go"], "a folder of a repository is judged as the repository is"


def test_new_files_beside_tracked_ones_count_and_new_build_output_does_not(tmp_path: Path) -> None:
    root = repository(tmp_path, "src/build/a.py")
    add_files(root, "src/build/new.py", "src/new.py", "build/lib/a.py")
    assert sources(root) == ["src/build/a.py", "src/build/new.py", "src/new.py"]
    assert survey(root).count_skipped() == {"build output": 1, "not source code": 1}


def test_tracked_files_count_although_a_rule_ignores_them(tmp_path: Path) -> None:
    root = repository(tmp_path, "build/a.py", "old.py", "deep/build/b.py", ignore="build/\nold.py\n")
    add_files(root, "build/new.py", "build/new/c.py", "deep/build/new.py", "other/build/d.py")
    assert sources(root) == ["build/a.py", "deep/build/b.py", "old.py"] == tracked(root)
    rule = f"{root.resolve() / '.gitignore'}:1: build/"
    assert explain_skipped(root / "build" / "new.py", root) == ("ignored by .gitignore", rule)
    assert explain_skipped(root / "build" / "new" / "c.py", root) == ("ignored by .gitignore", rule)
    assert explain_skipped(root / "build" / "a.py", root) is None


def test_vendored_trees_secrets_and_the_users_own_rules_hold_although_git_tracks_them(tmp_path: Path) -> None:
    names = ("a.py", "vendor/lib/b.py", "node_modules/c.py", "src/_vendor/d.py", "credentials.py", "build/mine.py")
    root = repository(tmp_path, *names)
    (root / ".spdignore").write_text("mine.py\n")
    assert sources(root) == ["a.py"]
    counts = survey(root).count_skipped()
    assert (counts["vendored"], counts["installed"]) == (2, 1)
    assert counts["secret"] == counts["ignored by .spdignore"] == 1


def test_a_repository_without_a_commit_follows_the_rules_for_names(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    add_files(tmp_path, "a.py", "build/b.py")
    assert sources(tmp_path) == ["a.py"]
    git(tmp_path, "add", "--intent-to-add", "build/b.py")
    assert sources(tmp_path) == ["a.py", "build/b.py"]


def test_submodules_track_their_own_files(tmp_path: Path) -> None:
    part = repository(tmp_path / "part", "dist/a.py")
    whole = repository(tmp_path / "whole", "b.py")
    git(whole, "submodule", "--quiet", "add", str(part), "build")
    git(whole, "submodule", "--quiet", "add", str(part), "vendor/part")
    add_files(whole, "build/target/output.py")
    assert sources(whole) == ["b.py", "build/dist/a.py"]


def test_a_worktree_tracks_what_its_own_branch_holds(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", "build/a.py")
    git(root, "worktree", "add", "-q", str(tmp_path / "other"))
    other = tmp_path / "other"
    add_files(other, "dist/b.py")
    git(other, "add", "dist/b.py")
    assert sources(other) == ["build/a.py", "dist/b.py"]
    assert sources(root) == ["build/a.py"]


OPTIONS = {
    "version 2": ("index.version=2",),
    "version 4": ("index.version=4",),
    "split": ("core.splitIndex=true", "splitIndex.maxPercentChange=100"),
    "untracked cache": ("core.untrackedCache=true",),
    "no checksum": ("index.skipHash=true",),
    "parallel": ("index.threads=2",),
}


@pytest.mark.parametrize("config", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("objects", ["sha1", "sha256"])
def test_every_format_of_an_index_is_read(tmp_path: Path, config: tuple[str, ...], objects: str) -> None:
    letters = random.Random(5)
    names = {f"build/{'x' * letters.randrange(1, 90)}/dist/é{number}.py" for number in range(40)}
    git(tmp_path, "init", "-q", f"--object-format={objects}")
    for setting in config:
        git(tmp_path, "config", *setting.split("="))
    add_files(tmp_path, *names, "build/" + "y/" * 100 + "z.py", "build/removed.py")
    git(tmp_path, "add", "--force", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "rm", "-q", "--cached", "build/removed.py")
    git(tmp_path, "update-index", "--skip-worktree", sorted(names)[3])  # needs version 3
    (tmp_path / sorted(names)[5]).write_text("y = 2\n")
    git(tmp_path, "add", "--update")
    (tmp_path / ".gitignore").write_text("build\n")
    missing = {name for name in tracked(tmp_path) if name not in sources(tmp_path)}
    assert not missing
    assert "build/removed.py" not in sources(tmp_path) or "core.splitIndex=true" in config


def test_a_sparse_index_is_read(tmp_path: Path) -> None:
    root = repository(tmp_path, "build/a.py", "build/b/c.py", "d/e.py")
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "build")
    assert sources(root) == ["build/a.py", "build/b/c.py"]


def test_nothing_that_a_repository_names_is_run(tmp_path: Path) -> None:
    root = repository(tmp_path / "root", "build/a.py")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'run'}\n")
    hook.chmod(0o700)
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "filter.x.clean"):
        git(root, "config", name, str(hook))
    (root / ".gitattributes").write_text("* filter=x\n")
    assert sources(root) == ["build/a.py"]
    assert not (tmp_path / "run").exists()


def test_a_damaged_index_is_as_none(tmp_path: Path) -> None:
    root = repository(tmp_path, "a.py", "build/b.py")
    index = root / ".git" / "index"
    whole, letters = index.read_bytes(), random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(letters.randrange(1, 5)):
            data[letters.randrange(len(data))] = letters.randrange(256)
        index.write_bytes(bytes(data[: letters.randrange(len(data) + 1)]))
        assert "a.py" in sources(root)
    index.write_bytes(b"DIRC" + struct.pack(">II", 2, 2**32 - 1))
    assert sources(root) == ["a.py"]


def test_a_crafted_index_takes_little_memory(tmp_path: Path) -> None:
    """Version 4 repeats the path before at the cost of one byte."""
    name = b"a/" * 2_000 + b"b"
    entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(32) + struct.pack(">H", 4_001)
    entries = entry + b"\0" + name + b"\0" + (entry + b"\x01c\0") * 50_000
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"DIRC" + struct.pack(">II", 4, 50_001) + entries + bytes(20))
    assert WorkTree(str(tmp_path))._tracked == TrackedFiles()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_an_index_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    root = repository(tmp_path, "a.py", "build/b.py")
    (root / ".git" / "index").unlink()
    os.mkfifo(root / ".git" / "index")
    assert sources(root) == ["a.py"]


@pytest.mark.parametrize(
    "place",
    [
        r"\\box\share\git",
        "//box/share/git",
        r"\/box/share/git",
        "/net/box/git",
        "/./net//box/git",
        "/Network/Servers/box/git",
        "{up}/net/box/git",
    ],
)
@pytest.mark.parametrize("file", [".git", "commondir"])
def test_data_on_another_machine_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, place: str
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "a.py").write_text(CODE)
    place = place.format(up="../" * 40)
    if file == ".git":
        (root / ".git").write_text(f"gitdir: {place}\n")
    else:
        (root / ".git").mkdir()
        (root / ".git" / "commondir").write_text(place + "\n")
    asked: list[str] = []
    for name in ("open", "stat", "lstat", "scandir"):
        ask = getattr(os, name)
        monkeypatch.setattr(
            os,
            name,
            lambda path=".", *more, ask=ask, **options: asked.append(str(path)) or ask(path, *more, **options),
        )
    assert sources(root) == ["a.py"]
    assert str(root / ".git") in "\n".join(asked)
    assert [path for path in asked if "box" in path] == []


def test_a_repository_on_another_machine_names_its_own_data_there() -> None:
    inside = Path("/net/box/main/.git/worktrees/a")
    assert follow(Path("/net/box/a"), str(inside)) == inside
    assert follow(Path("/net/box/a"), "/net/another/main/.git") is None
    assert follow(Path("/home/me/a"), "../main/.git") == Path("/home/me/a/../main/.git")
