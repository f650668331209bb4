"""Counting is exact, whatever the vocabulary and however the text is cut into blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.counts import Contexts, Counts, count, hash_contexts
from ngram_builders.errors import UserError
from tests.ngram_builders.reference import (
    END,
    LARGE,
    LARGE_VOCABULARY,
    SMALL,
    Successors,
    arrays,
    documents,
    successors,
)


def as_dict(part: Contexts) -> dict[int, Counter[int]]:
    """Context hash -> successors."""
    slices = zip(part.pointers[:-1].tolist(), part.pointers[1:].tolist(), strict=True)
    return {
        key: Counter(dict(zip(part.tokens[a:b].tolist(), part.counts[a:b].tolist(), strict=True)))
        for key, (a, b) in zip(part.keys.tolist(), slices, strict=True)
    }


def hashed(found: Successors, vocab_size: int) -> dict[int, Counter[int]]:
    """The reference under the same keys."""
    return {
        int(hash_contexts(np.array(context[::-1]), vocab_size)[-1]): counter for context, counter in found.items()
    }


def same(a: Counts, b: Counts) -> bool:
    return all(
        np.array_equal(getattr(x, name), getattr(y, name))
        for x, y in zip(a.by_order, b.by_order, strict=True)
        for name in ("keys", "pointers", "tokens", "counts", "totals")
    )


@pytest.mark.parametrize(("ids", "vocab_size"), [(SMALL, 4), (LARGE, LARGE_VOCABULARY)])
@given(data=st.data())
def test_every_order_equals_a_counter(ids: tuple[int, ...], vocab_size: int, data: st.DataObject) -> None:
    texts = data.draw(documents(ids))
    counts = count(arrays(texts), end_of_text=END, vocab_size=vocab_size)
    for part in counts.by_order:
        expected = hashed(successors(texts, part.order), vocab_size)
        assert as_dict(part) == expected
        assert part.totals.tolist() == [sum(expected[key].values()) for key in part.keys.tolist()]
        assert np.all(part.keys[1:] > part.keys[:-1])
    assert counts.tokens == sum(map(len, texts))
    assert counts.documents == sum(1 for text in texts if text)


@given(texts=documents(), block_tokens=st.integers(1, 20))
def test_blocks_of_any_size_give_the_same_counts(texts: list[list[int]], block_tokens: int) -> None:
    whole = count(arrays(texts), end_of_text=END, vocab_size=4)
    assert same(whole, count(arrays(texts), end_of_text=END, vocab_size=4, block_tokens=block_tokens))


@given(texts=documents())
def test_the_order_of_documents_does_not_matter(texts: list[list[int]]) -> None:
    forwards = count(arrays(texts), end_of_text=END, vocab_size=4)
    assert same(forwards, count(arrays(texts[::-1]), end_of_text=END, vocab_size=4))


@given(texts=documents(), least=st.integers(2, 4))
def test_pruning_drops_rare_ngrams_and_keeps_the_totals(texts: list[list[int]], least: int) -> None:
    counts = count(arrays(texts), end_of_text=END, vocab_size=4, min_count={2: 1, 3: least}, orders=(2, 3))
    assert counts.min_count == (1, least)
    unpruned, pruned = counts.by_order
    assert as_dict(unpruned) == hashed(successors(texts, 2), 4)
    full = hashed(successors(texts, 3), 4)
    kept = {k: Counter({t: c for t, c in v.items() if c >= least}) for k, v in full.items()}
    assert as_dict(pruned) == {k: v for k, v in kept.items() if v}
    assert pruned.totals.tolist() == [sum(full[key].values()) for key in pruned.keys.tolist()]


def test_the_example_of_the_docstring() -> None:
    (bigrams,) = count([np.array([5, 7, 0])], end_of_text=0, vocab_size=8, orders=(2,)).by_order
    assert as_dict(bigrams) == hashed({(0,): Counter([5]), (5,): Counter([7]), (7,): Counter([0])}, 8)


def test_ngrams_do_not_reach_into_the_next_document() -> None:
    (trigrams,) = count([np.array([1, 0]), np.array([2, 0])], end_of_text=0, vocab_size=3, orders=(3,)).by_order
    assert as_dict(trigrams) == hashed({(0, 1): Counter([0]), (0, 2): Counter([0])}, 3)


def test_counts_above_sixteen_bits_are_exact() -> None:
    counts = count([np.full(70_000, 3)], end_of_text=0, vocab_size=4, block_tokens=10_000)
    for part in counts.by_order:
        assert int(part.counts.max()) == 70_000 - (part.order - 1)


def test_nothing_counted_is_a_valid_result() -> None:
    counts = count([np.array([], dtype=np.int64)], end_of_text=0, vocab_size=4)
    assert counts.tokens == counts.documents == 0
    assert all(len(part.keys) == 0 and part.pointers.tolist() == [0] for part in counts.by_order)


@pytest.mark.parametrize("wrong", [-1, 65_536])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    with pytest.raises(UserError, match=f"found {wrong}; give the size of the tokenizer's whole vocabulary"):
        count([np.array([1, wrong])], end_of_text=0, vocab_size=100)


@pytest.mark.parametrize("orders", [(), (1, 2), (2, 10)])
def test_impossible_orders_are_refused(orders: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="expected n-gram orders from 2 to 9"):
        count([np.array([1])], end_of_text=0, vocab_size=100, orders=orders)


def test_many_contexts_have_as_many_hashes() -> None:
    ids = np.arange(250_000)
    contexts = np.stack([ids % 500, ids // 500], axis=1)
    assert len(np.unique(hash_contexts(contexts, LARGE_VOCABULARY)[:, 1])) == 250_000
