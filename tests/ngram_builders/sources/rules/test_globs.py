"""A set of globs matches what its globs match one by one; a path matches a glob name by name."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.sources.rules.globs import NameMatcher


@given(globs=st.lists(st.text("ab.*?[]!", max_size=6), max_size=4), name=st.text("ab.*[", max_size=5))
def test_a_set_of_globs_matches_what_each_matches(globs: list[str], name: str) -> None:
    assert NameMatcher(globs)(name) == any(fnmatchcase(name, glob) for glob in globs)
