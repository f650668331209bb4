"""Code of others is not counted, and the user has the last word on what is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import explain_skipped, skip_reason, survey
from ngram_builders.sources.rules.selection import Selection
from tests.ngram_builders.sources.test_git_repository import repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

OWN = ("main.c", "deps/glue.c", "deps/lua/lua.c", "src/lua/b.c")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", *OWN, "vendor/x/x.c", "old/y.c", "z_pb2.py", "deps/.env")


def counted(root: Path, **chosen: tuple[str, ...]) -> set[str]:
    """What is counted, and `--why` agrees."""
    selection = Selection(**chosen)  # type: ignore[arg-type]
    found = survey(root, selection=selection)
    assert all(skip_reason(Path(file.path), root, selection) is None for file in found.files)
    files = [Path(path) for path in found.skipped if Path(path).is_file()]
    assert all(skip_reason(path, root, selection) == found.skipped[str(path)] for path in files)
    return {Path(file.path).relative_to(root.resolve()).as_posix() for file in found.files}


def test_the_user_brings_back_what_rules_leave_out(root: Path) -> None:
    own = {*OWN, "old/y.c"}
    assert counted(root) == own
    assert counted(root, include=("./vendor/",)) == {*own, "vendor/x/x.c"}
    assert counted(root, include=("./vendor/x/*.c",)) == own, "nothing in a skipped folder is looked at"
    assert counted(root, include=("*_pb2.py",)) == {*own, "z_pb2.py"}
    assert counted(root, include=("deps/.env",)) == own, "but no secrets"
    (root / ".gitignore").write_text("new*\nlog/\nbuild/\n")
    for name in ("new.c", "log/a.c", "log/b.c", "build/new/c.c", "build/d.c"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text("int x;\n")
    brought_back = {"new.c", "log/a.c", "log/b.c", "build/d.c"}
    assert counted(root, include=("new.c", "log/", "/build")) == {*own, *brought_back}


def test_the_user_leaves_out_what_rules_count(root: Path) -> None:
    assert counted(root, exclude=("deps/", "y.c")) == {"main.c", "src/lua/b.c"}
    assert counted(root, exclude=("*.c", "!main.c")) == {"main.c"}
    assert counted(root, include=("deps/",), exclude=("deps/lua",)) == {*OWN, "old/y.c"} - {"deps/lua/lua.c"}
    found = explain_skipped(root / "deps/lua/lua.c", root, Selection(exclude=("lua/",)))
    assert found == ("excluded", "--exclude lua/")


def test_the_user_outweighs_attributes(root: Path) -> None:
    (root / ".gitattributes").write_text("src/** linguist-vendored\nmain.c linguist-vendored\n")
    assert counted(root) == {*OWN, "old/y.c"} - {"main.c", "src/lua/b.c"}
    assert counted(root, include=("src/", "main.c")) == {*OWN, "old/y.c"}


@pytest.mark.parametrize("glob", ["", "# mine", "[a"])
def test_what_is_no_pattern_is_refused(root: Path, glob: str) -> None:
    with pytest.raises(UserError, match=r"is no pattern of \.gitignore; name files or folders"):
        survey(root, selection=Selection(include=(glob,)))
