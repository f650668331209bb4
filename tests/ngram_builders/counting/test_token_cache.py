"""What is kept comes back or is missing, never wrong; and nothing that happens to the database ends a build."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ngram_builders.counting import token_cache as module
from ngram_builders.counting.layers import IndexedFile
from ngram_builders.counting.token_cache import CACHE_FILE, FileState, TokenCache, read_indexed_files
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import SourceFile

IDS = np.array([5, 0, 65535])
WIDE = np.array([70_000, 1])
SOURCE_FILE = SourceFile("/repo/a.py", 12, 10**18 + 1, 10**18 + 2, 2**64 - 1)
INDEXED = IndexedFile("/repo/a.py", 12, 10**18 + 1, b"a" * 16, "python")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / CACHE_FILE


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


@given(
    texts=st.dictionaries(
        st.binary(min_size=16, max_size=16), st.lists(st.integers(0, 2**31), max_size=9), max_size=5
    )
)
def test_ids_survive_a_round_trip(texts: dict[bytes, list[int]]) -> None:
    with TokenCache(None, "f") as cache:
        cache.add({key: np.array(ids, dtype=np.int64) for key, ids in texts.items()}, [])
        assert cache.token_counts() == {key: len(ids) for key, ids in texts.items()}
        assert {key: ids.tolist() for key, ids in cache.load_ids(list(texts)).items()} == texts


def test_more_texts_than_one_query_can_name_are_found() -> None:
    with TokenCache(None, "f") as cache:
        cache.add({digest(i): np.array([i]) for i in range(1200)}, [])
        ids = cache.load_ids([digest(i) for i in range(1200)])
        assert [int(ids[digest(i)][0]) for i in range(1200)] == list(range(1200))


def test_cached_ids_are_there_for_the_next_build_with_the_same_tokenizer(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS, digest(2): WIDE}, [FileState(SOURCE_FILE, digest(1), None)])
    with TokenCache(path, "f") as cache:
        assert_array_equal(cache.load_ids([digest(1)])[digest(1)], IDS)
        assert_array_equal(cache.load_ids([digest(2)])[digest(2)], WIDE)
        (state,) = cache.file_states().values()
        assert state.digest == digest(1)
        assert state.file[:4] == SOURCE_FILE[:4]
    with TokenCache(path, "other") as cache:
        assert cache.token_counts() == {}
        assert cache.load_ids([digest(1)]) == {}


def test_a_changed_file_is_not_found_in_the_cache(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({}, [FileState(SOURCE_FILE, digest(1), None)])
        cache.add({}, [FileState(SOURCE_FILE._replace(size=13), b"", "binary")])
        (state,) = cache.file_states().values()
        assert (state.file.size, state.skip_reason) == (13, "binary")
        cache.add({}, [], unsettled=[SOURCE_FILE.path])
        assert cache.file_states() == {}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_paths_of_any_bytes_survive_a_round_trip(path: Path) -> None:
    name = os.fsdecode(b"/repo/caf\xe9.py")
    with TokenCache(path, "f") as cache:
        cache.add({}, [FileState(SOURCE_FILE._replace(path=name), digest(1), None)])
        cache.record_files("table", [IndexedFile(name, 1, 2, digest(1), "python")])
        assert list(cache.file_states()) == [name]
        assert cache.indexed_files("table") == [IndexedFile(name, 1, 2, digest(1), "python")]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_the_owner_can_read_it(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS}, [])
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    changed = {
        "empty": b"",
        "text": b"this is not a database, and long enough to be looked at" * 100,
        "cut": data[: len(data) // 2],
        "zeros in the middle": data[:4096] + bytes(len(data) - 4096),
        "another version": data[:60] + (99).to_bytes(4, "big") + data[64:],
    }
    path.write_bytes(changed[kind])


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "zeros in the middle", "another version"])
def test_a_damaged_database_is_replaced_and_reported(path: Path, kind: str) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(i): np.arange(3000) for i in range(9)}, [])
    damage(path, kind)
    with TokenCache(path, "f") as cache:
        cache.token_counts()
        cache.load_ids([digest(i) for i in range(9)])
        cache.add({digest(100): IDS}, [])
        assert cache.load_ids([digest(100)])[digest(100)].tolist() == IDS.tolist()
        assert kind == "empty" or "started a new cache" in str(cache.problem)
    with TokenCache(path, "f") as cache:
        assert digest(100) in cache.token_counts()
        assert cache.problem is None


def test_a_build_continues_without_a_locked_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_SECONDS", 0.05)
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS}, [])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with TokenCache(path, "f") as cache:
        cache.add({digest(2): IDS}, [])
        assert cache.token_counts() == {digest(2): 3}
        assert "locked; continued without a cache" in str(cache.problem)
    other.execute("ROLLBACK")
    other.close()
    with TokenCache(path, "f") as cache:
        assert cache.token_counts() == {digest(1): 3}


def test_a_build_continues_without_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with TokenCache(tmp_path / "file" / CACHE_FILE, "f") as cache:
        cache.add({digest(1): IDS}, [])
        assert cache.token_counts() == {digest(1): 3}
        assert "continued without" in str(cache.problem)


def test_a_full_disk_is_an_error_and_earlier_entries_stay(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({digest(1): IDS}, [])
        assert cache.base is not None
        (pages,) = cache.base.execute("PRAGMA page_count").fetchone()
        cache.base.execute(f"PRAGMA max_page_count = {pages + 1}").fetchone()
        with pytest.raises(UserError, match=r"cannot write to .*full; free space there and run the same"):
            cache.add({digest(2): np.arange(60_000)}, [])
    with TokenCache(path, "f") as cache:
        assert cache.token_counts() == {digest(1): 3}


KILLED = """
import os, sys, numpy
from pathlib import Path
from ngram_builders.counting.token_cache import TokenCache
cache = TokenCache(Path(sys.argv[1]), "f")
cache.add({bytes(16): numpy.array([5, 0, 65535])}, [])
cache.base.execute("BEGIN IMMEDIATE")
cache.base.execute("DELETE FROM texts")
os._exit(9)
"""


def test_a_build_killed_in_a_batch_keeps_earlier_batches(path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    with TokenCache(path, "f") as cache:
        assert cache.token_counts() == {bytes(16): 3}
        assert cache.problem is None


def test_a_server_reads_while_a_build_writes(path: Path) -> None:
    with TokenCache(path, "f") as cache:
        cache.add({INDEXED.digest: IDS}, [])
        cache.record_files("table", [INDEXED])
        assert cache.base is not None
        cache.base.execute("BEGIN IMMEDIATE")
        cache.base.execute("DELETE FROM texts")
        indexed = read_indexed_files(path.parent, ["table"], "f")
        assert indexed is not None
        assert indexed.files == {INDEXED.path: (INDEXED.size, INDEXED.mtime_ns, INDEXED.digest)}
        assert_array_equal(indexed.ids(INDEXED.digest), IDS)  # type: ignore[arg-type]
        cache.base.execute("ROLLBACK")
        assert indexed.ids(digest(7)) is None


def test_an_unreadable_cache_is_empty(path: Path) -> None:
    assert read_indexed_files(path.parent, ["table"], "f") is None
    assert not path.exists()
    with TokenCache(path, "f") as cache:
        cache.add({INDEXED.digest: IDS}, [])
        cache.record_files("table", [INDEXED])
    assert read_indexed_files(path.parent, ["other table"], "f") is None
    indexed = read_indexed_files(path.parent, ["table"], "other tokenizer")
    assert indexed is not None
    assert indexed.ids(INDEXED.digest) is None
    damage(path, "text")
    assert indexed.ids(INDEXED.digest) is None
    assert read_indexed_files(path.parent, ["table"], "f") is None
