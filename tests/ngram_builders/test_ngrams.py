"""Counting is exact, whatever the vocabulary; runs add up and can be taken back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.errors import UserError
from ngram_builders.ngrams import (
    MAX_COUNT,
    ORDERS,
    Run,
    count_streams,
    merge,
    negate,
    other,
    prune,
    token_bits,
    with_boundaries,
)
from tests.ngram_builders.reference import (
    END,
    LARGE,
    LARGE_VOCABULARY,
    SMALL,
    Documents,
    as_dict,
    documents,
    expected_run,
    run_of_texts,
)


@pytest.mark.parametrize(("ids", "vocab_size"), [(SMALL, 4), (LARGE, LARGE_VOCABULARY)])
@given(data=st.data())
def test_the_counts_of_every_order_equal_a_counters(
    ids: tuple[int, ...], vocab_size: int, data: st.DataObject
) -> None:
    texts = data.draw(documents(ids))
    run = run_of_texts(texts, vocab_size)
    assert as_dict(run) == expected_run(texts, vocab_size)
    assert np.all(run.records[1:] > run.records[:-1])


@given(texts=documents(), orders=st.sets(st.integers(2, 9), min_size=1))
def test_only_the_given_orders_are_counted(texts: Documents, orders: set[int]) -> None:
    assert as_dict(run_of_texts(texts, 4, sorted(orders))) == expected_run(texts, 4, sorted(orders))


@given(texts=documents(), cut=st.integers(0, 6))
def test_runs_of_parts_add_up_to_the_run_of_the_whole(texts: Documents, cut: int) -> None:
    parts = [run_of_texts(texts[cut:]), run_of_texts(texts[:cut])]
    assert as_dict(merge(parts)) == as_dict(run_of_texts(texts))


@given(texts=documents(), more=documents())
def test_subtracting_a_text_gives_the_counts_without_it(texts: Documents, more: Documents) -> None:
    back = merge([run_of_texts([*texts, *more]), negate(run_of_texts(more))])
    assert as_dict(back) == as_dict(run_of_texts(texts))
    assert len(merge([run_of_texts(texts), negate(run_of_texts(texts))])) == 0


@given(texts=documents(), least=st.integers(2, 4))
def test_pruning_merges_rare_ngrams_into_one_entry_of_their_context(texts: Documents, least: int) -> None:
    pruned = prune(run_of_texts(texts), dict.fromkeys(ORDERS, least), 4)
    assert as_dict(pruned) == expected_run(texts, 4, least=least)


@given(texts=documents(), least=st.integers(2, 3))
def test_pruning_twice_equals_pruning_once_with_the_higher_threshold(texts: Documents, least: int) -> None:
    run = run_of_texts(texts)
    at_once = prune(run, dict.fromkeys(ORDERS, least + 1), 4)
    in_steps = prune(prune(run, dict.fromkeys(ORDERS, least), 4), dict.fromkeys(ORDERS, least + 1), 4)
    assert as_dict(at_once) == as_dict(in_steps)


def test_pruning_one_order_leaves_the_others() -> None:
    run = run_of_texts([[1, 2, 3]])
    assert as_dict(prune(run, {3: 2}, 4)) == expected_run([[1, 2, 3]], 4, orders=(2, 4, 5, 6))


def test_each_document_is_enclosed_in_end_of_text_tokens() -> None:
    assert with_boundaries([5, 7], END).tolist() == [0, 5, 7, 0]


def test_counts_above_sixteen_bits_are_exact() -> None:
    run = count_streams([np.full(70_000, 3)], orders=ORDERS, vocab_size=4)
    assert run.counts.tolist() == [70_000 - (order - 1) for order in ORDERS]


@pytest.mark.parametrize("wrong", [-1, 65_535])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    with pytest.raises(UserError, match=f"token id {wrong} is outside of .*; give the size of"):
        count_streams([np.array([1, wrong])], orders=(2,), vocab_size=100)


@pytest.mark.parametrize("vocab_size", [1, 100, 65_535, 65_536, 151_665, 2**20])
def test_no_id_may_equal_the_token_for_pruned_ngrams(vocab_size: int) -> None:
    assert vocab_size - 1 < other(vocab_size) < 2 ** token_bits(vocab_size)


@pytest.mark.parametrize("orders", [(), (1, 2), (2, 10)])
def test_impossible_orders_are_refused(orders: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="n-gram orders go from 2 to 9"):
        count_streams([np.array([1])], orders=orders, vocab_size=100)


def test_contexts_have_distinct_hashes() -> None:
    ids = np.arange(100_000)
    streams = list(np.stack([ids % 500, ids // 500, ids * 0], axis=1))
    assert len(count_streams(streams, orders=(3,), vocab_size=LARGE_VOCABULARY)) == 100_000


@given(counts=st.lists(st.integers(1, MAX_COUNT), min_size=1, max_size=6), cut=st.integers(0, 6))
def test_counts_end_at_the_largest_one_however_runs_are_grouped(counts: list[int], cut: int) -> None:
    """Also the mass of what is pruned."""
    records = np.array([7 << 16 | 1, 7 << 16 | 2], dtype=np.uint64)
    runs = [Run(records, np.array([count, 1], dtype=np.int32)) for count in counts]
    expected = [min(sum(counts), MAX_COUNT), len(counts)]
    grouped = merge([one for one in (merge(runs[:cut]), merge(runs[cut:])) if len(one)])
    assert grouped.counts.tolist() == merge(runs).counts.tolist() == expected
    heavy = Run(
        np.arange(4, dtype=np.uint64), np.array([MAX_COUNT, MAX_COUNT - 5, MAX_COUNT - 5, 9], dtype=np.int32)
    )
    pruned = prune(heavy, {2: MAX_COUNT}, 4)
    assert as_dict(pruned) == {0: MAX_COUNT, other(4): MAX_COUNT}
