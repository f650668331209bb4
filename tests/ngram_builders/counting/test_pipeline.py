"""A table plus what changed gives the runs of a full count, and is used only where that is right and quick."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from ngram_builders.counting import pipeline
from ngram_builders.counting.layers import IndexedFile
from ngram_builders.counting.pipeline import (
    CountOptions,
    CountTask,
    MissingTokens,
    PreviousTable,
    count_ngrams,
    load_streams,
)
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.errors import UserError
from ngram_builders.ngrams import Run, count_streams, merge, stream
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import write_table

ORDERS = (2, 3)
OPTIONS = CountOptions(
    fingerprint="f", vocab_size=50, end_of_text=0, orders=ORDERS, min_count=dict.fromkeys(ORDERS, 1)
)
TEXTS = {bytes([number]) * 16: np.arange(5 + number) % 7 + 1 for number in range(9)}


def quiet(*stage: object) -> None:
    """No progress."""


def task_of(cache: TokenCache, digests: list[bytes], options: CountOptions = OPTIONS) -> CountTask:
    files = [IndexedFile(f"/{digest.hex()}.py", 1, 2, digest, "python") for digest in digests]
    return CountTask(files, cache.token_counts(), options)


def as_lists(run: Run) -> tuple[list[int], list[int]]:
    return run.records.tolist(), run.counts.tolist()


@pytest.fixture
def cache() -> TokenCache:
    cache = TokenCache(None, "f")
    cache.add(TEXTS, [])
    return cache


def table_of(digests: list[bytes], path: Path) -> Table:
    streams = [stream(TEXTS[digest], 0) for digest in digests]
    run = count_streams(streams, orders=ORDERS, vocab_size=50)
    facts = {"tokens": 10_000, "files": len(digests), "sources": {"python": len(digests)}}
    write_table(path, [run], fingerprint="f", vocab_size=50, orders=ORDERS, min_count={}, **facts)
    return Table.open(path)


def test_a_change_added_to_the_previous_table_gives_the_full_count(cache: TokenCache, tmp_path: Path) -> None:
    before, now = list(TEXTS)[:7], list(TEXTS)[2:]
    previous = PreviousTable(table_of(before, tmp_path / "t"), task_of(cache, before).files)
    task = task_of(cache, now)
    full = merge(list(count_ngrams(task, None, cache, tmp_path, quiet)))
    with patch.object(pipeline, "apply_change", wraps=pipeline.apply_change) as applying:
        changed = merge(list(count_ngrams(task, previous, cache, tmp_path, quiet)))
    assert applying.called
    assert as_lists(changed) == as_lists(full)


def test_too_many_tokens_are_refused_before_any_is_counted(cache: TokenCache, tmp_path: Path) -> None:
    task = task_of(cache, list(TEXTS))
    large = CountTask(task.files, dict.fromkeys(TEXTS, 2**28), OPTIONS)
    with patch.object(cache, "load_ids") as loading, pytest.raises(UserError, match="too many for one file"):
        next(count_ngrams(large, None, cache, tmp_path, quiet))
    assert not loading.called


def test_pruned_tables_are_counted_in_full(cache: TokenCache, tmp_path: Path) -> None:
    digests = list(TEXTS)
    previous = PreviousTable(table_of(digests[:8], tmp_path / "t"), task_of(cache, digests[:8]).files)
    for options in (replace(OPTIONS, min_count={2: 1, 3: 2}), replace(OPTIONS, min_files=2)):
        with patch.object(pipeline, "apply_change") as applying:
            list(count_ngrams(task_of(cache, digests, options), previous, cache, tmp_path, quiet))
        assert not applying.called


def test_streams_come_in_batches_with_end_of_text_around_each_text(cache: TokenCache) -> None:
    digests = list(TEXTS)
    batches = list(load_streams(digests, task_of(cache, digests), cache, batch=4))
    assert [len(batch) for batch in batches] == [4, 4, 1]
    assert batches[0][0].tolist() == [0, 1, 2, 3, 4, 5, 0]


def test_texts_missing_from_the_cache_are_reported(cache: TokenCache) -> None:
    digests = list(TEXTS)
    task = task_of(cache, digests)
    cache.drop_texts(digests[3:5])
    with pytest.raises(MissingTokens) as missing:
        list(load_streams(digests, task, cache))
    assert missing.value.args == tuple(digests[3:5])
