"""Places, intervals and what follows are those of a plain reading of the streams."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.index import suffix_array
from ngram_builders.index.suffix_array import BREAK, SuffixArray, build_suffix_array

STREAMS = st.lists(st.lists(st.integers(0, 6), max_size=30), min_size=1, max_size=6)


def array_of(streams: list[list[int]]) -> SuffixArray:
    return build_suffix_array([np.array(stream, dtype=np.int64) for stream in streams])


def followers(streams: list[list[int]], context: list[int]) -> Counter[int]:
    """What follows a context, by reading every stream."""
    n = len(context)
    return Counter(
        stream[i + n] for stream in streams for i in range(len(stream) - n) if stream[i : i + n] == context
    )


@given(STREAMS, st.lists(st.integers(0, 7), min_size=1, max_size=8))
def test_intervals_hold_what_follows_every_end_of_a_history(streams: list[list[int]], history: list[int]) -> None:
    array = array_of(streams)
    spans = array.intervals(history, 8)

    for length in range(1, len(history) + 1):
        expected = followers(streams, history[-length:])
        if length > len(spans):
            assert not expected
            continue
        numbers, counts = array.tally(*spans[length - 1])
        assert dict(zip(array.ids[numbers].tolist(), counts.tolist(), strict=True)) == expected


@given(STREAMS)
def test_both_sorts_give_the_same_array(streams: list[list[int]]) -> None:
    def build() -> list[bytes]:
        return [array_of(streams).places.tobytes(), array_of(streams).text.tobytes()]

    with pytest.MonkeyPatch.context() as patch:
        found = build()
        patch.setattr(suffix_array, "divsufsort", None)
        assert build() == found


@given(STREAMS)
def test_streams_are_read_back(streams: list[list[int]]) -> None:
    array = array_of(streams)

    assert [array.stream(number).tolist() for number in range(len(streams))] == streams
    assert array.tokens == sum(map(len, streams))
    for place in np.flatnonzero(array.text != BREAK).tolist():
        stream = array.stream_at(place)
        assert array.breaks[stream] < place < array.breaks[stream + 1]


def test_ids_that_two_bytes_cannot_number_take_four() -> None:
    many = build_suffix_array([np.arange(2**16)])
    few = build_suffix_array([np.arange(2**16 - 1) + 10_000_000])

    assert (many.text.dtype, few.text.dtype) == (np.dtype("<u4"), np.dtype("<u2"))
    assert many.ids[many.following(*many.intervals([70], 1)[0])].tolist() == [71]
