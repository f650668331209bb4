"""A context is found wherever it stands, at its longest; a crafted array finds nothing worse than nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, count_streams, with_boundaries
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import (
    DEPTH,
    Occurrence,
    Rewriting,
    SearchedTexts,
    SuffixArray,
    build_suffix_array,
    find_occurrences,
    join_backwards,
    pack_places,
    scan,
)
from ngram_builders.table.writer import write_table

END = 0
ALL = 10**6


def occurrences(documents: Sequence[Sequence[int]], history: Sequence[int], follow: int) -> list[Occurrence]:
    """Every place where at least the last token of a history stands, found by looking at each."""
    # Read forwards, the first document comes last.
    text = [END, *(token for ids in documents[::-1] for token in (*ids, END))]
    owner = [None, *(n for n in range(len(documents) - 1, -1, -1) for _ in (*documents[n], END))]
    found = []
    for place in range(1, len(text)):
        before = text[:place]
        length = 0
        while length < min(DEPTH, len(history), place) and before[-1 - length] == history[-1 - length]:
            length += 1
        if length:
            at = sum(owner[n] == owner[place] for n in range(1, place))
            found.append(Occurrence(length, owner[place], tuple(text[place : place + follow]), at=at))
    return found


documents_of = st.lists(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=50), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(documents_of, st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=40), st.sampled_from([10, 70_000]))
def test_every_place_is_found_at_its_longest_match(documents, history, vocab_size):
    documents = [*documents, [1, 2] * 40, [1, 2] * 40]  # long runs that repeat
    array = build_suffix_array([np.array(ids) for ids in documents], END, vocab_size)
    found = list(array.find(history, ALL, 5))
    assert sorted(found) == sorted(occurrences(documents, history, 5))
    assert [place.length for place in found] == sorted((place.length for place in found), reverse=True)


@settings(max_examples=40, deadline=None)
@given(documents_of, st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=40))
def test_a_text_that_is_being_written_is_searched_as_a_table_is(documents, history):
    ids = [token for part in documents for token in part]
    text = join_backwards([np.array([END, *ids, END])])
    wanted = [place for place in occurrences([ids], history, 5) if place.length > 1]
    wanted = [place._replace(at=place.at + 1) for place in wanted]  # the end-of-text before it is a part of it
    assert sorted(scan(text, history, ALL, 5)) == sorted(wanted)


@settings(max_examples=40, deadline=None)
@given(documents_of, st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=40), st.integers(0, 6))
def test_of_several_texts_that_are_being_written_each_is_searched_as_if_it_were_alone(documents, history, cut):
    """The parts around the cursor's line have an end-of-text on one side only."""
    parts = [np.array([END, *ids, END])[: len(ids) + 2 - cut] for ids in documents]
    alone = [
        place._replace(document=number)
        for number, part in enumerate(parts)
        for place in scan(join_backwards([part]), history, ALL, 5)
    ]
    assert sorted(scan(join_backwards(parts), history, ALL, 5)) == sorted(alone)


def test_of_a_text_that_is_being_written_the_longest_matches_are_taken_and_of_these_the_last():
    text = join_backwards([np.array([END, 7, 1, 2, 3, 7, 1, 2, 4, 1, 2, 5, 7, 1, 2, 6, END])])
    assert [(place.length, place.next[0]) for place in scan(text, [7, 1, 2], 2, 1)] == [(3, 6), (3, 4)]
    assert [place.next[0] for place in scan(text, [7, 1, 2], 4, 1)] == [6, 4, 3, 5]


def test_few_places_of_many_are_taken_and_always_the_same():
    array = build_suffix_array([np.array([1, 2, 3] * 200)], END, 10)
    few = list(array.find([3, 1, 2], 4, 2))
    assert few == list(array.find([3, 1, 2], 4, 2))
    assert [place.length for place in few] == sorted((place.length for place in few), reverse=True)
    assert 4 <= len([place for place in few if place.length == 3]) <= 5


SWAPPED = {1: 4, 4: 1}
AS_SWAPPED = Rewriting(*2 * [lambda ids: [SWAPPED.get(i, i) for i in ids]])


@pytest.mark.parametrize("is_open", [False, True])
def test_a_history_is_found_as_it_is_written_elsewhere_if_its_match_there_is_longer(is_open):
    def found(*documents):
        known = [np.array(ids) for ids in documents]
        array = None if is_open else build_suffix_array(known, END, 10)
        added = join_backwards(with_boundaries(ids, END) for ids in known) if is_open else None
        places = find_occurrences([SearchedTexts(array, added=added)], [1, 2, 3], 2, [AS_SWAPPED])
        return [(place.length, place.next) for place in places if place.length > 1]

    assert found([4, 2, 3, 4, 5], [6, 2, 3, 7, 7]) == [(3, (1, 5)), (2, (7, 7))]
    assert found([4, 2, 3, 4, 5], [1, 2, 3, 7, 7]) == [(3, (7, 7)), (2, (4, 5))]


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200),
    st.lists(st.integers(0, 2**32 - 1), max_size=100),
    st.lists(st.integers(0, 2**32 - 1), max_size=5),
    st.lists(st.integers(0, 65_534), max_size=40),
)
def test_arrays_of_anything_end_the_search(data, suffixes, documents, history):
    text = np.frombuffer(data[: len(data) // 2 * 2], ">u2")
    array = SuffixArray(text, pack_places(np.array(suffixes, "<u4")), np.array(documents, "<u4"))
    for place in array.find(history, 3, 4):
        assert len(place.next) <= 4


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_suffixes_in_any_order_end_the_search(ids, chance):
    suffixes = chance.sample(range(len(ids)), len(ids))
    array = SuffixArray(np.array(ids, ">u2"), pack_places(np.array(suffixes)), np.array([0], "<u4"))
    assert len(list(array.find(ids[::-1], 3, 4))) <= 4 * DEPTH


@pytest.mark.parametrize("vocab_size", [65_535, 65_536, 65_537])
def test_the_last_id_of_a_vocabulary_sorts_last(vocab_size):
    last = vocab_size - 1
    array = build_suffix_array([np.array(ids) for ids in ([last, 5, last, last], [5, last, 3])], END, vocab_size)
    text = array.text.tolist()
    assert array.places().tolist() == sorted(range(len(text)), key=lambda place: text[place:])


# --- in a table ---

DOCUMENTS = [[1, 2, 3, 1, 2, 4], [5, 1, 2, 3], [6]]


def write(path: Path, texts: SuffixArray | None) -> Table:
    counts = count_streams([with_boundaries(ids, END) for ids in DOCUMENTS], orders=ORDERS, vocab_size=10)
    write_table(
        path,
        [counts],
        fingerprint="f",
        vocab_size=10,
        orders=ORDERS,
        min_count={},
        tokens=sum(len(ids) + 1 for ids in DOCUMENTS),
        files=len(DOCUMENTS),
        sources={},
        texts=texts,
    )
    return Table.open(path)


def sorted_documents() -> SuffixArray:
    return build_suffix_array([np.array(ids) for ids in DOCUMENTS], END, 10)


def test_a_table_keeps_its_texts(tmp_path):
    table = write(tmp_path / "t.ngt", sorted_documents())
    table.verify()
    assert table.texts is not None
    assert sorted(table.texts.find([5, 1, 2], ALL, 2)) == sorted(occurrences(DOCUMENTS, [5, 1, 2], 2))


@pytest.mark.parametrize("section", ["text", "suffixes", "documents"])
def test_texts_that_no_build_writes_are_refused(tmp_path, section):
    arrays = sorted_documents()
    wrong = {name: getattr(arrays, name).copy() for name in ("text", "suffixes", "documents")}
    if section == "suffixes":
        wrong[section][3:6] = wrong[section][:3]
    else:
        wrong[section][1] = 65_535 if section == "text" else wrong[section][0]
    table = write(tmp_path / "t.ngt", SuffixArray(**wrong))
    with pytest.raises(UserError, match=f"invalid data in section {section}"):
        table.verify()


# --- with what changed since ---


def lines_after(ledger: Ledger, history: list[int]) -> list[int]:
    texts = ledger.searched_texts([sorted_documents()], [[b"a", b"b", b"c"]])
    places = find_occurrences(texts, history, 1)
    return sorted(place.next[0] for place in places if place.length == len(history))


def test_an_edited_text_is_found_as_it_is_now():
    built_from = {"a.py": b"a", "b.py": b"b", "c.py": b"c"}
    ledger = Ledger(Overlay(vocab_size=10), built_from, lambda key: ())
    assert lines_after(ledger, [1, 2]) == [3, 3, 4]
    ledger.put("a.py", CountedText("edited", (np.array([END, 1, 2, 7]), np.array([1, 2, 8, END]))))
    assert lines_after(ledger, [1, 2]) == [3, 7, 8]
    ledger.put("b.py", None)
    assert lines_after(ledger, [1, 2]) == [7, 8]
    ledger.put("a.py", CountedText(b"a", (np.array([END, *DOCUMENTS[0], END]),)))  # undone: it stands in the table
    assert lines_after(ledger, [1, 2]) == [3, 4]


def test_a_table_of_other_texts_is_not_searched():
    ledger = Ledger(Overlay(vocab_size=10), {"a.py": b"a"}, lambda key: ())
    (texts,) = ledger.searched_texts([sorted_documents()], [[b"a"]])
    assert texts.table is None


def test_a_text_that_a_segment_replaces_is_not_searched():
    ledger = Ledger(Overlay(vocab_size=10), {"a.py": b"a", "b.py": b"x", "c.py": b"c"}, lambda key: ())
    base, segment = sorted_documents(), build_suffix_array([[1, 2, 9]], END, 10)
    found = find_occurrences(ledger.searched_texts([base, segment], [[b"a", None, b"c"], [b"x"]]), [1, 2], 1)
    assert sorted(place.next[0] for place in found) == [3, 4, 9]
