"""What is kept comes back or is an error that a build survives; a server reads while a build writes."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ngram_builders.sources.discovery import SourceFile
from ngram_builders.token_cache import CACHE_FILE, FileState, TokenCache, read_indexed_files

IDS = np.array([5, 0, 65535])
WIDE = np.array([70_000, 1])
NONE = np.array([], np.int64)
SOURCE_FILE = SourceFile("/repo/a.py", 12, 10**18 + 1, 10**18 + 2)
COUNTED = FileState(SOURCE_FILE, b"a" * 16, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / CACHE_FILE


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_cached_ids_are_there_for_the_next_build_with_the_same_tokenizer(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS, digest(2): WIDE, digest(3): NONE}, [FileState(SOURCE_FILE, digest(1), None)])
    with TokenCache(path, "f") as cache:
        assert cache.token_counts() == {digest(1): 3, digest(2): 2, digest(3): 0}
        for number, ids in enumerate((IDS, WIDE, NONE), 1):
            assert_array_equal(cache.ids(digest(number)), ids)
        (state,) = cache.file_states().values()
        assert state.digest == digest(1)
        assert state.file == SOURCE_FILE
    with TokenCache(path, "other") as cache:
        assert cache.token_counts() == {}
        with pytest.raises(sqlite3.Error, match="lost the tokens"):
            cache.ids(digest(1))


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_the_owner_can_read_it(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS}, [])
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


def test_a_server_reads_while_a_build_writes(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({COUNTED.digest: IDS}, [])
        cache.record_files("shard", [COUNTED])
        cache.base.execute("BEGIN IMMEDIATE")
        cache.base.execute("DELETE FROM texts")
        indexed = read_indexed_files([path.parent / "shard"], "f")
        assert indexed is not None
        assert indexed.files == {SOURCE_FILE.path: (SOURCE_FILE.size, SOURCE_FILE.mtime_ns, COUNTED.digest)}
        assert_array_equal(indexed.ids(COUNTED.digest), IDS)
        cache.base.execute("ROLLBACK")
        assert indexed.ids(digest(7)) is None


def test_to_a_server_an_unreadable_cache_is_empty(path: Path) -> None:
    assert read_indexed_files([path.parent / "shard"], "f") is None
    assert not path.exists()
    with TokenCache(path, "f") as cache:
        cache.add({COUNTED.digest: IDS}, [])
        cache.record_files("shard", [COUNTED])
    assert read_indexed_files([path.parent / "other shard"], "f") is None
    indexed = read_indexed_files([path.parent / "shard"], "other tokenizer")
    assert indexed is not None
    assert indexed.ids(COUNTED.digest) is None
    path.write_bytes(b"no database" * 1000)
    assert indexed.ids(COUNTED.digest) is None
    assert read_indexed_files([path.parent / "shard"], "f") is None
