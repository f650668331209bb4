"""A document counts in the first shard that has it, however the digests are cut for comparison."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.distributed import plan as plans
from ngram_builders.distributed.duplicates import find_duplicates, find_new, write_digests
from ngram_builders.distributed.plan import Plan
from ngram_builders.ngrams import TokenSpace

DIGESTS = st.sampled_from(
    [bytes([high]) + bytes(14) + bytes([low]) for high in (0, 1, 127, 255) for low in (0, 1, 9)]
)


def plan_of(shards: int) -> Plan:
    return Plan(
        shards=shards,
        parts=1,
        orders=(2,),
        min_count={2: 1},
        token_space=TokenSpace("bytes", 4, 0),
        language=None,
    )


@settings(deadline=None, max_examples=40)
@given(
    shards=st.lists(st.lists(DIGESTS, max_size=9), min_size=1, max_size=5),
    at_once=st.integers(1, 20),
    per_comparison=st.integers(1, 5),
)
def test_a_document_is_new_in_the_first_shard_that_has_it(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[bytes]], at_once: int, per_comparison: int
) -> None:
    work, plan = tmp_path_factory.mktemp("work"), plan_of(len(shards))
    for folder in ("digests", "duplicates"):
        (work / folder).mkdir()
    for rank, digests in enumerate(shards):
        assert write_digests(work, rank, digests, range(5, 5 + len(digests))) == len(set(digests))
    with patch.object(plans, "_SHARDS_PER_COMPARISON", per_comparison):
        for rank in range(plan.stages["duplicates"]):
            find_duplicates(work, plan, rank, at_once)
        found = [find_new(work, plan, rank) for rank in range(len(shards))]
    earlier: set[bytes] = set()
    for digests, (new, duplicates) in zip(shards, found, strict=True):
        own = set(digests)
        assert new == {5 + digests.index(digest): digest for digest in own - earlier}
        assert duplicates == len(own & earlier)
        earlier |= own
