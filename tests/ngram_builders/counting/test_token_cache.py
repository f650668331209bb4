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
from ngram_builders.counting.token_cache import FILE, Document, State, Store, read_contents
from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import SourceFile

IDS = np.array([5, 0, 65535])
WIDE = np.array([70_000, 1])
FOUND = SourceFile("/repo/a.py", 12, 10**18 + 1, 10**18 + 2, 2**64 - 1)
DOCUMENT = Document("/repo/a.py", 12, 10**18 + 1, b"a" * 16, "python")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


@given(
    texts=st.dictionaries(
        st.binary(min_size=16, max_size=16), st.lists(st.integers(0, 2**31), max_size=9), max_size=5
    )
)
def test_ids_come_back_as_they_were(texts: dict[bytes, list[int]]) -> None:
    with Store(None, "f") as store:
        store.keep({key: np.array(ids, dtype=np.int64) for key, ids in texts.items()}, [])
        assert store.known() == {key: len(ids) for key, ids in texts.items()}
        assert {key: ids.tolist() for key, ids in store.ids(list(texts)).items()} == texts


def test_more_texts_than_one_question_can_name_are_found() -> None:
    with Store(None, "f") as store:
        store.keep({digest(i): np.array([i]) for i in range(1200)}, [])
        found = store.ids([digest(i) for i in range(1200)])
        assert [int(found[digest(i)][0]) for i in range(1200)] == list(range(1200))


def test_what_was_kept_is_there_for_the_next_build_with_that_tokenizer(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({digest(1): IDS, digest(2): WIDE}, [State(FOUND, digest(1), None)])
    with Store(path, "f") as store:
        assert_array_equal(store.ids([digest(1)])[digest(1)], IDS)
        assert_array_equal(store.ids([digest(2)])[digest(2)], WIDE)
        (state,) = store.states().values()
        assert state.digest == digest(1)
        assert state.found[:4] == FOUND[:4]
    with Store(path, "other") as store:
        assert store.known() == {}
        assert store.ids([digest(1)]) == {}


def test_a_file_in_another_state_is_not_the_one_that_was_kept(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({}, [State(FOUND, digest(1), None)])
        store.keep({}, [State(FOUND._replace(size=13), b"", "binary")])
        (state,) = store.states().values()
        assert (state.found.size, state.fault) == (13, "binary")
        store.keep({}, [], unsure=[FOUND.path])
        assert store.states() == {}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_paths_of_any_bytes_come_back(path: Path) -> None:
    name = os.fsdecode(b"/repo/caf\xe9.py")
    with Store(path, "f") as store:
        store.keep({}, [State(FOUND._replace(path=name), digest(1), None)])
        store.record("table", [Document(name, 1, 2, digest(1), "python")])
        assert list(store.states()) == [name]
        assert store.contents("table") == [Document(name, 1, 2, digest(1), "python")]


def test_a_damaged_row_is_missing_and_not_wrong(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({digest(1): IDS, digest(2): IDS}, [])
    base = sqlite3.connect(path)
    base.execute("UPDATE texts SET ids = x'010002000300' WHERE digest = ?", (digest(1),))
    base.execute("UPDATE texts SET tokens = 2 WHERE digest = ?", (digest(2),))
    base.commit()
    base.close()
    with Store(path, "f") as store:
        assert store.ids([digest(1), digest(2)]) == {}


def test_what_a_table_was_made_of_is_known_by_its_name(path: Path) -> None:
    with Store(path, "f") as store:
        store.record("one", [DOCUMENT])
        store.record("two", [])
        assert store.contents("one") == [DOCUMENT]
        assert store.contents("two") == store.contents("three") == []


def test_what_no_table_holds_is_forgotten_without_a_trace(path: Path) -> None:
    secret = np.frombuffer(b"a secret that was deleted from the sources " * 40, "<u2").astype(np.int64)
    with Store(path, "old") as store:
        store.keep({digest(9): IDS}, [])
    with Store(path, "f") as store:
        store.keep({digest(1): IDS, digest(2): secret}, [State(FOUND, digest(1), None)])
        store.record("old", [Document("/repo/b.py", 1, 2, digest(2), "python")])
        store.record("new", [Document("/repo/a.py", 1, 2, digest(1), "python")])
        store.forget("new", ["/repo/a.py"])
        assert store.known().keys() == {digest(1)}
        assert store.contents("old") == []
        assert list(store.states()) == ["/repo/a.py"]
        store.forget("new", [])
        assert store.states() == {}
    assert b"secret that was deleted" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_the_owner_can_read_it(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({digest(1): IDS}, [])
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
def test_a_damaged_database_is_begun_anew_and_said(path: Path, kind: str) -> None:
    with Store(path, "f") as store:
        store.keep({digest(i): np.arange(3000) for i in range(9)}, [])
    damage(path, kind)
    with Store(path, "f") as store:
        store.known()
        store.ids([digest(i) for i in range(9)])
        store.keep({digest(100): IDS}, [])
        assert store.ids([digest(100)])[digest(100)].tolist() == IDS.tolist()
        assert kind == "empty" or "began a new file" in str(store.problem)
    with Store(path, "f") as store:
        assert digest(100) in store.known()
        assert store.problem is None


def test_damage_that_shows_while_writing_does_no_harm(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({digest(i): np.arange(3000) for i in range(9)}, [])
    with Store(path, "f") as store:
        damage(path, "text")
        for number in range(30):
            store.keep({digest(number): np.arange(5000)}, [])
        assert digest(29) in store.known()


def test_a_locked_database_is_done_without_and_left_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT", 0.05)
    with Store(path, "f") as store:
        store.keep({digest(1): IDS}, [])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store(path, "f") as store:
        store.keep({digest(2): IDS}, [])
        assert store.known() == {digest(2): 3}
        assert "locked; went on without" in str(store.problem)
    other.execute("ROLLBACK")
    other.close()
    with Store(path, "f") as store:
        assert store.known() == {digest(1): 3}


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with Store(tmp_path / "file" / FILE, "f") as store:
        store.keep({digest(1): IDS}, [])
        assert store.known() == {digest(1): 3}
        assert "went on without" in str(store.problem)


def test_a_full_disk_is_an_error_and_what_was_kept_before_stays(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({digest(1): IDS}, [])
        assert store.base is not None
        (pages,) = store.base.execute("PRAGMA page_count").fetchone()
        store.base.execute(f"PRAGMA max_page_count = {pages + 1}").fetchone()
        with pytest.raises(UserError, match=r"cannot write to .*full; free space there and run the same"):
            store.keep({digest(2): np.arange(60_000)}, [])
    with Store(path, "f") as store:
        assert store.known() == {digest(1): 3}


KILLED = """
import os, sys, numpy
from pathlib import Path
from ngram_builders.counting.token_cache import Store
store = Store(Path(sys.argv[1]), "f")
store.keep({bytes(16): numpy.array([5, 0, 65535])}, [])
store.base.execute("BEGIN IMMEDIATE")
store.base.execute("DELETE FROM texts")
os._exit(9)
"""


def test_a_build_that_is_killed_in_a_batch_keeps_the_batches_before(path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    with Store(path, "f") as store:
        assert store.known() == {bytes(16): 3}
        assert store.problem is None


def test_a_server_reads_while_a_build_writes(path: Path) -> None:
    with Store(path, "f") as store:
        store.keep({DOCUMENT.digest: IDS}, [])
        store.record("table", [DOCUMENT])
        assert store.base is not None
        store.base.execute("BEGIN IMMEDIATE")
        store.base.execute("DELETE FROM texts")
        contents = read_contents(path.parent, "table", "f")
        assert contents is not None
        assert contents.files == {DOCUMENT.path: (DOCUMENT.size, DOCUMENT.mtime_ns, DOCUMENT.digest)}
        assert_array_equal(contents.ids(DOCUMENT.digest), IDS)  # type: ignore[arg-type]
        store.base.execute("ROLLBACK")
        assert contents.ids(digest(7)) is None


def test_what_cannot_be_read_is_not_known(path: Path) -> None:
    assert read_contents(path.parent, "table", "f") is None
    assert not path.exists()
    with Store(path, "f") as store:
        store.keep({DOCUMENT.digest: IDS}, [])
        store.record("table", [DOCUMENT])
    assert read_contents(path.parent, "other table", "f") is None
    contents = read_contents(path.parent, "table", "other tokenizer")
    assert contents is not None
    assert contents.ids(DOCUMENT.digest) is None
    damage(path, "text")
    assert contents.ids(DOCUMENT.digest) is None
    assert read_contents(path.parent, "table", "f") is None
