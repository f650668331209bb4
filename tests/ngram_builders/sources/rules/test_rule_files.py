"""A glob matches what it matches to `fnmatch` and to git, and no glob takes long."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.sources.rules.rule_files import Rule, RuleFile, name_matcher, whole_path
from tests.test_linear import is_quick

GLOBS = st.lists(st.text("ab.*", min_size=1, max_size=6), min_size=1, max_size=4)


@given(globs=GLOBS, name=st.text("ab.", max_size=5))
def test_a_set_of_globs_matches_what_each_matches(globs: list[str], name: str) -> None:
    assert bool(name_matcher(" ".join(globs))(name)) == any(fnmatchcase(name, glob) for glob in globs)


@pytest.mark.parametrize(
    ("glob", "unit"),
    [
        ("*a" * 16 + "b", "a"),
        ("*ab" * 16 + "*b?", "ab"),
        ("**/" + "a*" * 30 + "b", "a"),
        ("/" + "a/**/" * 30 + "b", "a/"),
        ("/" + "**/a*a*/" * 16 + "b", "aaa/"),
        ("[a-z]*" * 16 + "[!a-z]", "a"),
    ],
)
def test_a_glob_takes_linear_time(glob: str, unit: str) -> None:
    """`*a*a*a*b` took hours for one long name."""
    assert is_quick(re.compile(whole_path(glob)).fullmatch, unit, "")


def test_a_path_is_compared_with_a_bounded_number_of_wildcards() -> None:
    """Two thousand rules of sixteen stars; those at the end of the file are asked."""
    rules = [Rule.of("*a" * 16 + f"b{number}", "", number) for number in range(2_000)]
    file = RuleFile.of("/", [*rules, *(Rule.of(f"plain{number}", "", number) for number in range(2_000))])
    assert sum(rule.steps for rule in file.others) <= 4_000
    assert file.find("/" + "a" * 200 + "b1999", is_folder=False) is rules[-1]
    assert file.find("/a/plain0", is_folder=False), "those without wildcards are looked up"


@pytest.mark.parametrize("glob", ["[a", "a[", "a\\", "a[/]b", "/", " "])
def test_what_matches_nothing_is_no_rule(glob: str) -> None:
    with pytest.raises(ValueError):
        Rule.of(glob, "", 1)
