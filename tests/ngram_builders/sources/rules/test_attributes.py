"""`.gitattributes` says what is vendored or generated; it is read as git reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.sources.discovery import explain_skipped, skip_reason, survey
from tests.ngram_builders.sources.rules.test_ignores import ALPHABET
from tests.ngram_builders.sources.test_git_repository import git, repository, sources

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_attributes_leave_out_files_at_any_level(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", "a.py", "jq/a.py", "jq/own.py", "src/api.py", "src/deep/api.py")
    (root / ".gitattributes").write_text(
        "* text=auto\njq/** linguist-vendored\njq/own.py linguist-vendored=false\n"
    )
    (root / "src" / ".gitattributes").write_text("api.py linguist-generated=true\n")
    git(root, "add", ".")
    assert sources(root) == ["a.py", "jq/own.py"]
    assert survey(root).count_skipped() == {"generated": 2, "not source code": 3, "vendored": 1}
    assert sources(root / "src" / "deep") == [], "those of the folders around it apply"
    rule = f"{root.resolve() / 'src' / '.gitattributes'}:1: api.py linguist-generated=true"
    assert explain_skipped(root / "src" / "deep" / "api.py", root) == ("generated", rule)


def test_attributes_bring_back_what_names_exclude(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", "vendor/c.py", "x_pb2.py", "y_pb2.py", "a.min.js", ".env.py")
    (root / ".gitattributes").write_text("x_pb2.py linguist-generated=false\n*.env* linguist-generated=false\n")
    assert sources(root) == ["x_pb2.py"]
    assert explain_skipped(root / "x_pb2.py", root) is None
    assert skip_reason(root / "vendor" / "c.py", root) == "vendored"


def test_attributes_end_where_a_nested_repository_begins(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", "a.py", "b.c")
    (root / ".gitattributes").write_text("*.py linguist-generated\n")
    repository(root / "inner", "a.py")
    assert sources(root) == ["b.c", "inner/a.py"]


STATES = "linguist-vendored -linguist-vendored !linguist-vendored linguist-vendored=false linguist-vendored=true"
LINE = st.builds(
    lambda rooted, parts, end, state: f"{rooted}{'/'.join(parts)}{end} text {state}",
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(ALPHABET.split()), min_size=1, max_size=3),
    st.sampled_from(["", "", "/", "/**"]),
    st.sampled_from(STATES.split()),
)


@settings(max_examples=60, deadline=None)
@given(outer=st.lists(LINE, max_size=5), inner=st.lists(LINE, max_size=3))
def test_all_lines_mean_what_they_mean_to_git(
    outer: list[str], inner: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("repo")
    names = [f"{folder}{name}" for folder in ("", "a/", "a/b/", "b/", "b/a/") for name in ("c.py", "d.py")]
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x = 1\n")
    (root / ".gitattributes").write_text("\n".join(['"a/b/c.py" -text', *outer]))
    (root / "a" / ".gitattributes").write_text("\n".join(inner))
    git(root, "init", "-q")
    told = git(root, "check-attr", "-z", "--stdin", "linguist-vendored", told="\0".join(names))
    states = dict(zip(told.split("\0")[::3], told.split("\0")[2::3], strict=False))
    assert sources(root) == sorted(name for name in names if states[name] not in ("set", "true"))
