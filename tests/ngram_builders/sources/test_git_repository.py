"""In a git work tree, its ignore files decide; nothing that it names is run, or read on another machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ngram_builders.sources.discovery import skip_reason, survey
from ngram_builders.sources.git_repository import follow, git_folder, is_git_at_work

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CODE = "x = 1\n"
_AS_SOMEBODY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def git(root: Path, *arguments: str, told: str = "") -> str:
    """Run git in a folder, without the user's settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(root), *_AS_SOMEBODY, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, input=told).stdout


def repository(root: Path, *names: str, ignore: str = "") -> Path:
    """A work tree with these files, committed."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    add_files(root, *names)
    (root / ".gitignore").write_text(ignore)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def add_files(root: Path, *names: str, text: str = CODE) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def sources(root: Path) -> list[str]:
    return [Path(file.path).relative_to(root.resolve()).as_posix() for file in survey(root).files]


NAMES = ("setup.py", "src/build/__main__.py", "cmd/dist/main.go", "drivers/target/core.c", "src/virtualenv/run.py")


def test_folders_that_git_does_not_ignore_count_whatever_they_are_called(tmp_path: Path) -> None:
    root = repository(tmp_path, *NAMES, ignore="/build/\n")
    add_files(root, "build/lib/a.py", "src/build/new.py")
    assert sources(root) == sorted([*NAMES, "src/build/new.py"])
    assert survey(root).count_skipped() == {"ignored by .gitignore": 1, "not source code": 1}
    assert skip_reason(root / "cmd" / "dist" / "main.go", root) is None
    assert sources(root / "cmd") == ["dist/main.go"], "a folder of a repository is judged as the repository is"


def test_worktrees_and_submodules_are_distinguished(tmp_path: Path) -> None:
    """A further tree of a repository would count its files twice; a submodule is code of its own."""
    main = repository(tmp_path / "main", "main.py")
    library = repository(tmp_path / "library", "dist/library.py", ignore="output.py\n")
    other = main / "trees" / "other"
    git(main, "worktree", "add", "-q", str(other))
    git(main, "submodule", "--quiet", "add", str(library), "build")
    git(main, "submodule", "--quiet", "add", str(library), "vendor/library")
    (main / ".git" / "info" / "exclude").write_text("hidden.py\n")
    add_files(main, "hidden.py", "trees/other/hidden.py", "build/output.py")
    assert sources(main) == ["build/dist/library.py", "main.py"]
    assert survey(main).count_skipped()["another worktree of a repository"] == 1
    assert sources(other) == ["main.py"]
    assert git_folder(str(other)).resolve() == (main / ".git").resolve()


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


@pytest.mark.parametrize("place", [r"\\box\share\git", "/./net//box/git", "{up}/net/box/git"])
@pytest.mark.parametrize("file", [".git", "commondir"])
def test_data_on_another_machine_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, place: str
) -> None:
    root = tmp_path / "repository"
    add_files(root, "a.py")
    place = place.format(up="../" * 40)
    if file == ".git":
        (root / ".git").write_text(f"gitdir: {place}\n")
    else:
        add_files(root, ".git/commondir", text=place + "\n")
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


@pytest.mark.parametrize(("age", "at_work"), [(0, True), (9**9, False), (-(9**9), False)])
def test_a_lock_of_another_time_does_not_say_that_git_is_at_work(tmp_path: Path, age: int, at_work: bool):
    """A repository could name a time in the far future, and would be out of date for good."""
    lock = tmp_path / ".git" / "index.lock"
    lock.parent.mkdir()
    lock.write_bytes(b"")
    os.utime(lock, (time.time() - age,) * 2)
    assert is_git_at_work(tmp_path) is at_work
