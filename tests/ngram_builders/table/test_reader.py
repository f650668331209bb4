"""A table gives its counts back exactly, changes in memory add to it, and only its own tokenizer opens it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, merge, prune
from ngram_builders.table import reader
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table, added_runs
from tests.ngram_builders.reference import (
    LARGE,
    LARGE_VOCABULARY,
    SMALL,
    as_dict,
    documents,
    run_of_texts,
    write_texts,
)

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]


def mean(table: Table, context: list[int], candidates: list[int]) -> tuple[np.ndarray, np.ndarray]:
    p, matched = open_query([[table.columns]], [1.0]).probabilities(np.array([context]), np.array(candidates))
    return p[0], matched[0]


@pytest.mark.parametrize(("ids", "vocab_size"), [(SMALL, 4), (LARGE, LARGE_VOCABULARY)])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), least=st.integers(1, 3))
def test_a_table_gives_back_the_counts_it_was_written_from(
    tmp_path_factory: pytest.TempPathFactory,
    ids: tuple[int, ...],
    vocab_size: int,
    data: st.DataObject,
    least: int,
) -> None:
    texts = data.draw(documents(ids))
    path = tmp_path_factory.mktemp("runs") / "t.ngt"
    write_texts(path, texts, vocab_size, least=least)
    expected = prune(run_of_texts(texts, vocab_size), dict.fromkeys(ORDERS, least), vocab_size)
    assert as_dict(merge(list(added_runs([Table.open(path)])))) == as_dict(expected)


def test_counts_come_back_from_directories_of_any_size(tmp_path: Path) -> None:
    ids = np.random.default_rng(5).integers(0, 3_000, 120_000)
    write_texts(tmp_path / "t.ngt", [ids.tolist()], 3_000, orders=(3,))
    table = Table.open(tmp_path / "t.ngt")
    assert table.columns.orders[3][1] > 12  # more bits than a small table has
    run = run_of_texts([ids.tolist()], 3_000, (3,))
    found = merge(list(added_runs([table])))
    np.testing.assert_array_equal(found.records, run.records)
    np.testing.assert_array_equal(found.counts, run.counts)


def test_an_empty_table_gives_no_probabilities(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", [])
    table = Table.open(tmp_path / "t.ngt")
    table.verify()
    p, matched = mean(table, [1, 2, 3, 1, 2], [1, 2])
    assert not p.any()
    assert not matched.any()
    assert len(open_query([[table.columns]], [1.0]).successors(np.array([[1]]), 3)) == 0
    assert not any(map(len, added_runs([table])))


def test_a_table_whose_memory_was_given_back_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_KEPT_BYTES", 0)
    monkeypatch.setattr(reader, "_CHECKED_BYTES", 100)
    write_texts(tmp_path / "t", [[1, 2, 3, 1, 2, 3, 1]] * 20)
    table, kept = Table.open(tmp_path / "t"), Table.open(tmp_path / "t")
    counts = as_dict(merge(list(added_runs([kept]))))
    table.verify_checksums()
    table.release_pages()
    assert as_dict(merge(list(added_runs([table])))) == counts
    data = bytearray((tmp_path / "t").read_bytes())
    data[data.index(table.columns.tokens.tobytes())] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(UserError, match="damaged data in section tokens"):
        Table.open(tmp_path / "damaged").verify_checksums()


def test_another_tokenizer_is_refused_and_both_are_named(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", TEXTS)
    with pytest.raises(UserError, match="built with tokenizer a1b2, the model uses c3d4; run: spd-lsp "):
        Table.open(tmp_path / "t.ngt", fingerprint="c3d4")
