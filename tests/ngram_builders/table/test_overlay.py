"""An overlay: table and changes together say what a table of the present documents says; each change is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.ngrams import ORDERS, Run, count_streams, merge
from ngram_builders.table import overlay as module
from ngram_builders.table.format import Columns
from ngram_builders.table.overlay import CountedText, Ledger, Overlay
from ngram_builders.table.query import open_query
from tests.ngram_builders.reference import LARGE, LARGE_VOCABULARY, SMALL, as_dict

Text = tuple[tuple[int, ...], ...]  # one document: its streams

DOCUMENTS = ("a", "b", "c", "d")


def texts(ids: Sequence[int]) -> st.SearchStrategy[Text]:
    """Documents in one piece or in several, alike enough that edits share their ends."""
    return st.lists(st.lists(st.sampled_from(ids), max_size=14).map(tuple), max_size=3).map(tuple)


def edits(ids: Sequence[int]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Put a text, copy a place's, splice a part of one, put the one before back, remove."""
    place = st.sampled_from(DOCUMENTS)
    splice = st.tuples(
        st.just("splice"), place, st.integers(0, 14), st.integers(0, 5), st.lists(st.sampled_from(ids), max_size=4)
    )
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), place, texts(ids)),
            st.tuples(st.just("copy"), place, place),
            splice,
            st.tuples(st.just("undo"), place),
            st.tuples(st.just("remove"), place),
        ),
        max_size=14,
    )


def as_document(text: Text) -> CountedText:
    return CountedText(text, tuple(np.array(stream, dtype=np.int64) for stream in text))


def applied(now: dict[str, Text], before: dict[str, Text], edit: tuple[Any, ...]) -> Text | None:
    """What the edited place holds after the edit."""
    kind, place = edit[:2]
    if kind == "put":
        return edit[2]
    if kind == "copy":
        return now.get(edit[2])
    if kind == "undo":
        return before.get(place)
    if kind == "remove" or not now.get(place):
        return None
    start, length, new = edit[2:]
    first, *others = now[place]
    return ((*first[:start], *new, *first[start + length :]), *others)


def count(documents: Sequence[Text], vocab_size: int) -> Run:
    """What a table built from scratch counts: each text once."""
    streams = [np.array(stream, dtype=np.int64) for text in set(documents) for stream in text]
    return count_streams(streams, orders=ORDERS, vocab_size=vocab_size)


def held(overlay: Overlay) -> Run:
    return merge(overlay.levels)


def play(base: dict[str, Text], script: list[tuple[Any, ...]], vocab_size: int) -> tuple[dict[str, Text], Ledger]:
    """Run a script over a table's documents; what each place holds then, and the ledger."""
    known = {text: as_document(text).streams for text in base.values()}
    ledger = Ledger(Overlay(vocab_size=vocab_size), base, lambda key: known.get(key))  # type: ignore[arg-type]
    now, before = dict(base), dict(base)
    for edit in script:
        place, text = edit[1], applied(now, before, edit)
        before[place] = now.pop(place, ())
        if text is not None:
            now[place] = text
        assert ledger.put(place, None if text is None else as_document(text))
    return now, ledger


@pytest.mark.parametrize(("ids", "vocab_size"), [(SMALL, 4), (LARGE, LARGE_VOCABULARY)])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_table_and_overlay_hold_the_counts_of_the_present_documents(
    ids: tuple[int, ...], vocab_size: int, data: st.DataObject
) -> None:
    base = data.draw(st.dictionaries(st.sampled_from(DOCUMENTS), texts(ids)))
    now, ledger = play(base, data.draw(edits(ids)), vocab_size)
    together = merge([count(list(base.values()), vocab_size), held(ledger.overlay)])
    assert as_dict(together) == as_dict(count(list(now.values()), vocab_size))


def ask(pool: Sequence[Columns], contexts: Any, ids: Sequence[int]) -> tuple[Any, ...]:
    asked = open_query([pool], [1.0])
    array = np.array(contexts, dtype=np.int64)
    return *asked.probabilities(array, np.array(ids)), asked.successors(array, 3)


def test_only_the_surroundings_of_an_edit_are_counted(monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []
    real = module.count_streams

    def spy(streams: Any, **options: Any) -> Run:
        counted.extend(map(len, streams))
        return real(streams, **options)

    monkeypatch.setattr(module, "count_streams", spy)
    overlay = Overlay(vocab_size=20_000)
    text = np.arange(5_000)
    edited = np.concatenate((text[:2_000], [7, 7], text[2_001:]))
    assert overlay.replace([text], [edited])
    assert sum(counted) == (5 + 1 + 5) + (5 + 2 + 5)


def test_columns_held_by_readers_do_not_change():
    overlay = Overlay(vocab_size=9)
    overlay.replace([], [np.array([1, 2, 3])])
    taken = overlay.columns
    before = ask(taken, [[-1, -1, -1, 1, 2]], [3, 4])
    overlay.replace([], [np.array([1, 2, 4])])
    for mine, theirs in zip(ask(taken, [[-1, -1, -1, 1, 2]], [3, 4]), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert ask(overlay.columns, [[-1, -1, -1, 1, 2]], [3, 4])[0][0, 0].tolist() == [0.5, 0.5]


def test_many_changes_are_merged_into_a_few_sets_of_columns():
    random = np.random.default_rng(0)
    overlay, text = Overlay(vocab_size=5_000), random.integers(1, 5_000, 2_000)
    first = text
    for _ in range(300):
        at = int(random.integers(0, len(text)))
        edited = np.concatenate((text[:at], random.integers(1, 5_000, 9), text[at + 9 :]))
        assert overlay.replace([text], [edited])
        text = edited
    assert len(overlay.columns) <= len(module.LEVEL_SIZES)
    whole = [count([(tuple(one),)], 5_000) for one in (first, text)]
    assert as_dict(merge([whole[0], held(overlay)])) == as_dict(whole[1])
    assert len(overlay.levels[0]) <= module.LEVEL_SIZES[0]


def test_a_change_beyond_the_memory_limit_is_refused_and_changes_nothing():
    overlay = Overlay(vocab_size=5_000, max_ngrams=1_000)
    ledger = Ledger(overlay)
    assert ledger.put("small", as_document((tuple(range(100)),)))
    before, columns = as_dict(held(overlay)), overlay.columns
    assert not overlay.full
    assert not ledger.put("large", as_document((tuple(range(4_000)),)))
    assert overlay.full
    assert as_dict(held(overlay)) == before
    assert overlay.columns is columns
    assert ledger.put("large", None)
    assert ledger.put("small", as_document((tuple(range(1, 100)),)))


def test_a_change_can_be_limited_to_a_share_of_the_memory():
    overlay = Overlay(vocab_size=5_000, max_ngrams=1_000)
    assert not overlay.replace([], [np.arange(300)], share=0.5)
    assert overlay.replace([], [np.arange(300)])


def test_without_the_old_text_a_document_stays_unchanged():
    ledger = Ledger(Overlay(vocab_size=9), {"a": "lost"}, lambda key: None)
    assert not ledger.put("a", as_document(((1, 2),)))
    assert ledger.keys == {"a": "lost"}
    assert ledger.overlay.columns == ()
    assert ledger.put("b", as_document(((1, 2),)))
