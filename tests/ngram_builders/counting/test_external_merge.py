"""Counting in little memory gives the counts of counting in much, and leaves nothing behind."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.counting.external_merge import NgramCounter, apply_change, merge_in_pieces, read_run, write_run
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, merge, negate
from tests.ngram_builders.reference import Documents, arrays, as_dict, documents, run_of_texts


def counted(folder: Path, texts: Documents, **options: int) -> NgramCounter:
    counter = NgramCounter(folder, orders=ORDERS, vocab_size=4, **options)
    counter.add(arrays(texts))
    return counter


@settings(deadline=None)
@given(texts=documents(), block_tokens=st.integers(1, 20), max_held_bytes=st.integers(0, 2_000))
def test_blocks_and_spills_of_any_size_give_the_same_counts(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, block_tokens: int, max_held_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    counter = counted(folder, texts, block_tokens=block_tokens, max_held_bytes=max_held_bytes)
    assert as_dict(merge(list(counter.runs()))) == as_dict(run_of_texts(texts))
    assert counter.tokens == sum(map(len, texts))


def test_a_counter_beyond_its_memory_limit_spills_everything(tmp_path: Path) -> None:
    counter = counted(tmp_path, [[1, 2, 3, 1, 2]] * 20, block_tokens=10, max_held_bytes=0)
    assert counter.held == []
    assert len(counter.spilled) > 5


def test_spilled_runs_are_unnamed_files(tmp_path: Path) -> None:
    counter = counted(tmp_path, [[1, 2, 3]] * 20, block_tokens=10, max_held_bytes=0)
    assert counter.spilled
    assert list(tmp_path.iterdir()) == []


@given(texts=documents(), piece=st.integers(1, 40))
def test_a_merge_in_pieces_splits_only_between_contexts(texts: Documents, piece: int) -> None:
    runs = [run_of_texts(texts), run_of_texts(texts[1:])]
    pieces = [part for part in merge_in_pieces(runs, 4, piece) if len(part)]
    assert as_dict(merge(pieces)) == as_dict(merge(runs))
    for left, right in itertools.pairwise(pieces):
        assert left.records[-1] >> np.uint64(16) < right.records[0] >> np.uint64(16)


@given(texts=documents(), more=documents(), piece=st.integers(1, 40))
def test_a_change_applied_to_pieces_equals_a_full_count(texts: Documents, more: Documents, piece: int) -> None:
    pieces = list(merge_in_pieces([run_of_texts(texts)], 4, piece))
    change = merge([run_of_texts(more), negate(run_of_texts(texts[1:]))])
    changed = [part for part in apply_change(pieces, change, 4) if len(part)]
    assert as_dict(merge(changed)) == as_dict(run_of_texts([*texts[:1], *more]))
    for left, right in itertools.pairwise(changed):
        assert left.records[-1] >> np.uint64(16) < right.records[0] >> np.uint64(16)


def test_a_run_in_a_file_can_be_read_back(tmp_path: Path) -> None:
    for texts in ([[1, 2, 3]], []):
        write_run(tmp_path / "run", [run_of_texts(texts)])
        assert as_dict(read_run(tmp_path / "run")) == as_dict(run_of_texts(texts))


def test_a_truncated_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [run_of_texts([[1, 2, 3]])])
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:-1])
    with pytest.raises(UserError, match="delete that file and count again"):
        read_run(tmp_path / "run")
