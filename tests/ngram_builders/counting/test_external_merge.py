"""Counting in little memory gives the counts of counting in much, and leaves nothing behind."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.counting import external_merge
from ngram_builders.counting.external_merge import NgramCounter, check_token_count, merge_in_pieces
from ngram_builders.counting.memory import MemoryLimits, share_memory
from ngram_builders.counting.stored_run import StoredRun, read_ranges, write_run
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, Run, merge
from tests.ngram_builders.reference import Documents, arrays, as_dict, documents, run_of_texts


def counted(folder: Path, texts: Documents, held_bytes: int, block_tokens: int = 10) -> NgramCounter:
    limits = MemoryLimits(held_bytes, block_tokens, piece_records=50)
    counter = NgramCounter(folder, orders=ORDERS, vocab_size=4, limits=limits)
    counter.add(arrays(texts))
    return counter


def in_memory(run: StoredRun) -> Run:
    return run.load(0, len(run))


@settings(deadline=None)
@given(texts=documents(), block_tokens=st.integers(1, 20), held_bytes=st.integers(0, 2_000))
def test_blocks_and_spills_of_any_size_give_the_same_counts(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, block_tokens: int, held_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("spill")
    with patch.object(external_merge, "FAN_IN", 3):
        counter = counted(folder, texts, held_bytes, block_tokens)
        assert as_dict(merge(list(counter.runs()))) == as_dict(run_of_texts(texts))
    assert counter.tokens == sum(map(len, texts))


def test_spilled_runs_are_unnamed_files(tmp_path: Path) -> None:
    counter = counted(tmp_path, [[1, 2, 3]] * 20, held_bytes=0)
    assert counter.spilled
    assert list(tmp_path.iterdir()) == []


@given(texts=documents(), piece=st.integers(1, 40))
def test_a_merge_in_pieces_splits_only_between_contexts(texts: Documents, piece: int) -> None:
    runs = [run_of_texts(texts), run_of_texts(texts[1:])]
    pieces = [part for part in merge_in_pieces(runs, 4, piece) if len(part)]
    assert as_dict(merge(pieces)) == as_dict(merge(runs))
    for left, right in itertools.pairwise(pieces):
        assert left.records[-1] >> np.uint64(16) < right.records[0] >> np.uint64(16)


@given(texts=documents(), starts=st.lists(st.integers(1, 2**63)), piece=st.integers(1, 40))
def test_a_run_has_its_ranges_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, starts: list[int], piece: int
) -> None:
    file, whole = tmp_path_factory.mktemp("run") / "run", run_of_texts(texts)
    pieces = [whole.load(at, min(at + piece, len(whole))) for at in range(0, len(whole), piece)]
    starts = [0, *sorted(starts)]
    write_run(file, pieces, starts)
    ranges = read_ranges(file)
    ends = [*map(whole.find, starts), len(whole)]
    expected = [as_dict(whole.load(start, end)) for start, end in itertools.pairwise(ends)]
    assert [as_dict(in_memory(one)) for one in ranges] == expected


def test_a_run_that_is_cut_short_while_it_is_read_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [run_of_texts([[1, 2, 3] * 400])])
    (run,) = read_ranges(tmp_path / "run")
    os.truncate(tmp_path / "run", 10)
    with pytest.raises(UserError, match="are damaged; if that is in a folder"):
        in_memory(run)


def test_more_tokens_than_counts_can_hold_are_refused() -> None:
    check_token_count(2**31 - 1)
    with pytest.raises(UserError, match=r"too many for one file .* in tasks, with --engine datatrove"):
        check_token_count(2**31)


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(UserError, match="at least 450 MB of memory, not 100; give more with --memory"):
        share_memory(10**8)


@pytest.mark.parametrize("length", [*range(20), -24, -17, -16, -12, -8, -1])
def test_a_truncated_run_is_refused(tmp_path: Path, length: int) -> None:
    write_run(tmp_path / "run", [run_of_texts([[1, 2, 3]])])
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:length])
    with pytest.raises(UserError, match="run are damaged; if that is in a folder"):
        read_ranges(tmp_path / "run")
