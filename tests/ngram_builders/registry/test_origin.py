"""What a stranger's header says of a table's origin is only text."""

from __future__ import annotations

import pytest

from ngram_builders.registry.origin import Origin, read_origin


@pytest.mark.parametrize(
    "stored",
    [None, 5, [], {"built": float("inf")}, {"built": float("nan")}, {"built": -1}, {"built": "now"}, {"model": 5}],
)
def test_what_a_header_says_of_itself_is_nothing_if_it_is_impossible(stored: object) -> None:
    assert read_origin({"origin": stored}) == Origin()


def test_what_a_header_says_of_itself_is_short() -> None:
    assert len(read_origin({"origin": {"model": "m" * 60_000}}).model) == 200
