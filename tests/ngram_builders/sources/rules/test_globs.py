"""A set of globs matches what its globs match one by one; a path matches a glob name by name."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.sources.rules.globs import NameMatcher, match_parts, split_glob


@given(globs=st.lists(st.text("ab.*?[]!", max_size=6), max_size=4), name=st.text("ab.*[", max_size=5))
def test_a_set_of_globs_matches_what_each_matches(globs: list[str], name: str) -> None:
    assert NameMatcher(globs)(name) == any(fnmatchcase(name, glob) for glob in globs)


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("/*.py", "a/c.py", False),
        ("a/**/c.py", "a/c.py", True),
        ("a/**/c.py", "a/x/y/c.py", True),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("**/b", "b", True),
        ("a/b", "a", False),
        ("[^a]\\*", "b*", True),
        ("[^a]\\*", "bc", False),
        ("[]a]", "]", True),
    ],
)
def test_a_path_matches_name_by_name(glob: str, path: str, matches: bool) -> None:
    assert match_parts(split_glob(glob), path.split("/")) is matches
