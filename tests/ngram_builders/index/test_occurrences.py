"""The end of a history is found wherever it stands, at its longest; a crafted array ends the search, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.index import suffix_array
from ngram_builders.index.mixture import ORDER_COUNT, Mixture, Signed
from ngram_builders.index.suffix_array import (
    _DEPTH,
    Occurrence,
    SearchedTexts,
    find_occurrences,
    text_around,
)
from tests.ngram_builders.index.test_suffix_array import array_of

TOKENS = st.sampled_from([0, 1, 2, 3])
STREAMS = st.lists(st.lists(TOKENS, max_size=50), min_size=1, max_size=6)
HISTORY = st.lists(st.integers(0, 4), min_size=1, max_size=40)


def plain_search(streams: Sequence[list[int]], history: list[int], follow: int) -> list[Occurrence]:
    """Every place where at least the last token of a history stands, found by looking at each."""
    found = []
    for document, ids in enumerate(streams):
        for at in range(1, len(ids)):
            length = 0
            while length < min(_DEPTH, len(history), at) and ids[at - 1 - length] == history[-1 - length]:
                length += 1
            if length:
                found.append(Occurrence(length, document, tuple(ids[at : at + follow]), at=at))
    return found


every_place = partial(patch.multiple, suffix_array, _MAX_PLACES=10**6, _PLACES_PER_LENGTH=10**6)


@given(STREAMS, HISTORY, st.sets(st.integers(0, 5)))
def test_every_place_is_found_at_its_longest_match_the_longest_first(
    streams: list[list[int]], history: list[int], skipped: set[int]
) -> None:
    streams = [*streams, [1, 2] * 40, [1, 2] * 40]  # long runs that repeat
    texts = SearchedTexts(array_of(streams), frozenset(skipped))

    with every_place():
        found = texts.find(history, 5)

    wanted = [one for one in plain_search(streams, history, 5) if one.document not in skipped]
    assert sorted(found) == sorted(wanted)
    assert [place.length for place in found] == sorted((place.length for place in found), reverse=True)


@given(STREAMS, STREAMS, HISTORY)
def test_documents_of_several_arrays_are_numbered_apart(
    first: list[list[int]], second: list[list[int]], history: list[int]
) -> None:
    def searched(name: str, streams: list[list[int]], trust: float) -> SearchedTexts:
        return SearchedTexts(array_of(streams), trust=trust, holder=lambda number: (f"{name}{number}", None))

    texts = [searched("a", first, 1.0), searched("b", second, 0.5)]
    with every_place():
        found = find_occurrences(texts, history, 3)

    assert len(found) == len(plain_search(first, history, 3)) + len(plain_search(second, history, 3))
    for place in found:
        around = text_around(texts, place.document, place.at)
        assert around is not None
        streams, trust = (first, 1.0) if around.label[0] == "a" else (second, 0.5)
        ids = streams[int(around.label[1:])]
        assert [*around.before.tolist(), *around.after.tolist()] == ids
        assert (tuple(around.after[:3]), trust) == (place.next, place.trust)


def test_few_places_of_many_are_taken() -> None:
    found = SearchedTexts(array_of([[1, 2, 3] * 200])).find([3, 1, 2], 2)
    assert 16 <= len([place for place in found if place.length == 3]) <= 17
    assert len(found) <= 48


@given(STREAMS, HISTORY, st.randoms(use_true_random=False))
def test_places_in_any_order_end_every_search(
    streams: list[list[int]], history: list[int], chance: object
) -> None:
    """A table is read once when it is opened, and its order is not looked at."""
    array = array_of(streams)
    order = list(range(len(array.places)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    shuffled = replace(array, places=array.places[order])

    assert len(SearchedTexts(shuffled).find(history, 4)) <= 48
    query = Mixture([[Signed(shuffled)]], [1.0])
    p, _ = query.probabilities(np.array([history[-ORDER_COUNT:]]), np.arange(5))
    assert np.isfinite(p).all()
    query.successors(np.array([history[-ORDER_COUNT:]]), 3)
