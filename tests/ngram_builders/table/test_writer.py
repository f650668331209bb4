"""The same counts give the same file, whatever pieces they came in; a place that takes no file is said so."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.counting.external_merge import merge_in_pieces
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, Run, merge, negate
from ngram_builders.table.format import TableSummary
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import write_table
from tests.ngram_builders.reference import Documents, documents, run_of_texts, write_texts

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]


def write(path: Path, pieces: Iterable[Run], **options: object) -> TableSummary:
    plain = {"fingerprint": "a1b2", "vocab_size": 4, "orders": ORDERS, "min_count": {}}
    rest = {"tokens": 15, "files": 3, "sources": {"python": 3}}
    return write_table(path, pieces, **(plain | rest | options))  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(texts=documents(), piece=st.integers(1, 30), least=st.integers(1, 2))
def test_pieces_of_any_size_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, piece: int, least: int
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    run, least_counts = run_of_texts(texts), dict.fromkeys(ORDERS, least)
    write(folder / "whole", [run], min_count=least_counts)
    write(folder / "cut", list(merge_in_pieces([run], 4, piece)), min_count=least_counts)
    assert (folder / "whole").read_bytes() == (folder / "cut").read_bytes()


def test_an_opened_table_is_what_was_written(tmp_path: Path) -> None:
    written = write_texts(tmp_path / "t.ngt", TEXTS)
    table = Table.open(tmp_path / "t.ngt", fingerprint="a1b2")
    table.verify()
    assert table.summary == written
    assert written.size == (tmp_path / "t.ngt").stat().st_size
    assert (written.tokens, written.files, written.sources) == (15, 3, {"python": 3})
    assert written.ngrams == written.entries == len(run_of_texts(TEXTS))
    assert not list(tmp_path.glob(".*"))


def test_entries_for_pruned_ngrams_are_not_counted_as_ngrams(tmp_path: Path) -> None:
    pruned = write_texts(tmp_path / "t.ngt", [[1, 2], [1, 2], [1, 3]], least=2)
    assert pruned.entries > pruned.ngrams > 0


def test_a_stored_ngram_takes_at_most_twelve_bytes(tmp_path: Path) -> None:
    """Phrases that come again, as in code; in much smaller tables the directories weigh more."""
    rng = np.random.default_rng(3)
    phrases = rng.integers(0, 5_000, (60_000, 6))
    text = phrases[rng.zipf(1.2, 80_000) % len(phrases)].ravel().tolist()
    for vocab_size in (5_000, 150_000):
        summary = write_texts(tmp_path / "t.ngt", [text], vocab_size)
        assert summary.size / summary.ngrams <= 12


def test_counts_that_are_not_positive_are_not_written(tmp_path: Path) -> None:
    run = run_of_texts(TEXTS)
    assert write(tmp_path / "t.ngt", [negate(run)]).entries == 0
    assert write(tmp_path / "t.ngt", [merge([run, negate(run), run])]).entries == len(run)


@pytest.mark.parametrize(("cause", "remedy"), [
    (errno.ENOSPC, "free space there"), (errno.EDQUOT, "free space there"), (errno.EFBIG, "ulimit -f"),
    (errno.EROFS, "make it writable or choose another folder"),
])  # fmt: skip
def test_what_the_system_does_not_let_us_write_has_a_remedy(tmp_path: Path, cause: int, remedy: str) -> None:
    def fail() -> Iterator[Run]:
        yield run_of_texts(TEXTS)
        raise OSError(cause, os.strerror(cause))

    with pytest.raises(UserError, match=rf"cannot write .*t\.ngt: {os.strerror(cause)}; .*{remedy}.*, and run"):
        write(tmp_path / "t.ngt", fail())
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_path_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*; make it writable or choose another folder"):
        write(tmp_path / "file" / "t.ngt", [run_of_texts(TEXTS)])
    assert (tmp_path / "file").read_text() == "in the way"
