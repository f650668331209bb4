"""Texts come from the cache as they are counted, or are known to be missing."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from ngram_builders.counting.layers import IndexedFile
from ngram_builders.counting.pipeline import CountOptions, CountTask, MissingTokens, count_ngrams, load_streams
from ngram_builders.counting.token_cache import TokenCache
from ngram_builders.errors import UserError

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


@pytest.fixture
def cache() -> TokenCache:
    cache = TokenCache(None, "f")
    cache.add(TEXTS, [])
    return cache


def test_too_many_tokens_are_refused_before_any_is_counted(cache: TokenCache, tmp_path: Path) -> None:
    task = task_of(cache, list(TEXTS))
    large = CountTask(task.files, dict.fromkeys(TEXTS, 2**28), OPTIONS)
    with patch.object(cache, "load_ids") as loading, pytest.raises(UserError, match="too many for one file"):
        next(count_ngrams(large, cache, tmp_path, quiet))
    assert not loading.called


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
