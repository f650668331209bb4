"""A table gives its counts back exactly, changes in memory add to it, and only its own tokenizer opens it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, merge, negate, prune
from ngram_builders.table import reader
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.reference import (
    END,
    LARGE,
    LARGE_VOCABULARY,
    SMALL,
    Documents,
    as_dict,
    documents,
    run_of_texts,
    write_texts,
)

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]


def mean(table: Table, context: list[int], candidates: list[int]) -> tuple[np.ndarray, np.ndarray]:
    p, matched = open_query([[table.columns]], [1.0]).probabilities(np.array([context]), np.array(candidates))
    return p[0], matched[0]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    write_texts(tmp_path / "t.ngt", TEXTS)
    return Table.open(tmp_path / "t.ngt")


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
    assert as_dict(merge(list(Table.open(path).runs()))) == as_dict(expected)


def test_counts_come_back_from_directories_of_any_size(tmp_path: Path) -> None:
    ids = np.random.default_rng(5).integers(0, 3_000, 120_000)
    write_texts(tmp_path / "t.ngt", [ids.tolist()], 3_000, orders=(3,))
    table = Table.open(tmp_path / "t.ngt")
    assert table.columns.orders[3][1] > 12  # more bits than a small table has
    run = run_of_texts([ids.tolist()], 3_000, (3,))
    found = merge(list(table.runs()))
    np.testing.assert_array_equal(found.records, run.records)
    np.testing.assert_array_equal(found.counts, run.counts)


@settings(max_examples=40, deadline=None)
@given(texts=documents(), more=documents())
def test_a_table_plus_a_change_equals_a_table_of_the_present_text(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents, more: Documents
) -> None:
    folder = tmp_path_factory.mktemp("change")
    write_texts(folder / "old.ngt", texts)
    write_texts(folder / "new.ngt", [*texts[:1], *more])
    change = build_columns(merge([run_of_texts(more), negate(run_of_texts(texts[1:]))]), 4)
    contexts = np.array([[a, b, c, d, e] for a, b, c, d, e in np.random.default_rng(1).choice(SMALL, (30, 5))])
    both = open_query([[Table.open(folder / "old.ngt").columns, change]], [1.0])
    new = open_query([[Table.open(folder / "new.ngt").columns]], [1.0])
    for found, expected in zip(
        both.probabilities(contexts, np.arange(5)), new.probabilities(contexts, np.arange(5)), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert both.successors(contexts, 3).tolist() == new.successors(contexts, 3).tolist()


def test_contexts_may_be_narrower_or_wider_than_the_longest_order(table: Table) -> None:
    full, matched = mean(table, [3, 1, 2, 3, 1], [2])
    wide, _ = mean(table, [9, 9, 3, 1, 2, 3, 1], [2])
    narrow, some = mean(table, [3, 1], [2])
    assert matched.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    np.testing.assert_array_equal(full, wide)
    assert some.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(narrow[:2], full[:2])


def test_orders_with_gaps_keep_their_positions(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", TEXTS, orders=(5, 2, 3))
    write_texts(tmp_path / "all.ngt", TEXTS)
    some, whole = Table.open(tmp_path / "t.ngt"), Table.open(tmp_path / "all.ngt")
    assert some.summary.orders == (2, 3, 5)
    p, matched = mean(some, [2, 3, 1, 2, 3], [0, 1, 2, 3])
    expected_p, expected_matched = mean(whole, [2, 3, 1, 2, 3], [0, 1, 2, 3])
    asked = np.isin(np.arange(8), [0, 1, 3])
    np.testing.assert_array_equal(p, expected_p * asked[:, None])
    np.testing.assert_array_equal(matched, expected_matched * asked)


def test_successors_are_those_of_the_longest_context_most_likely_first(table: Table) -> None:
    asked = open_query([[table.columns]], [1.0])
    assert asked.successors(np.array([[1, 2]]), 2).tolist() == [0, 3]  # after 1 2: 3 twice, 0 and 2 once each
    assert asked.successors(np.array([[0, 0, 0, 3]]), 9).tolist() == [1]  # only the last token is a context
    assert asked.successors(np.array([[77]]), 9).tolist() == []


def test_an_empty_table_gives_no_probabilities(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", [])
    table = Table.open(tmp_path / "t.ngt")
    table.verify()
    p, matched = mean(table, [1, 2, 3, 1, 2], [1, 2])
    assert not p.any()
    assert not matched.any()
    assert len(open_query([[table.columns]], [1.0]).successors(np.array([[1]]), 3)) == 0
    assert list(table.runs()) == []


def test_a_mapped_table_survives_its_replacement(tmp_path: Path, table: Table) -> None:
    before, _ = mean(table, [1], [2])
    write_texts(tmp_path / "t.ngt", [[1, 3]] * 500)
    after, _ = mean(table, [1], [2])
    np.testing.assert_array_equal(before, after)
    assert mean(Table.open(tmp_path / "t.ngt"), [1], [2])[0][0, 0] == 0


def test_a_table_whose_memory_was_given_back_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_KEPT_BYTES", 0)
    monkeypatch.setattr(reader, "_CHECKED_BYTES", 100)
    write_texts(tmp_path / "t", [[1, 2, 3, 1, 2, 3, 1]] * 20)
    table, kept = Table.open(tmp_path / "t"), Table.open(tmp_path / "t")
    counts = as_dict(merge(list(kept.runs())))
    table.verify_checksums()
    table.release_pages()
    assert as_dict(merge(list(table.runs()))) == counts
    data = bytearray((tmp_path / "t").read_bytes())
    data[data.index(table.columns.tokens.tobytes())] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(UserError, match="damaged data in section tokens"):
        Table.open(tmp_path / "damaged").verify_checksums()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what of a file is in memory")
def test_what_was_read_of_a_large_table_does_not_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that adds to a large table takes no more memory than one that adds to a small one."""
    monkeypatch.setattr(reader, "_CHUNK_ROWS", 20_000)
    monkeypatch.setattr(reader, "_KEPT_BYTES", 0)
    text = np.random.default_rng(0).integers(0, 30_000, 300_000)
    write_texts(tmp_path / "t", [text.tolist()], 30_000)
    table = Table.open(tmp_path / "t")
    mapped = [_resident_bytes(tmp_path / "t") for _ in table.runs()]
    assert len(mapped) > 50
    assert table.summary.size > 8_000_000
    assert mapped[-1] < table.summary.size / 3, "all of it at the end, once"


def _resident_bytes(path: Path) -> int:
    """How much of a mapped file is in this process's memory."""
    maps = Path("/proc/self/smaps").read_text().split(str(path) + "\n")[1:]
    return sum(1024 * int(re.search(r"^Rss: +(\d+) kB", one, re.MULTILINE)[1]) for one in maps)


def test_another_tokenizer_is_refused_and_both_are_named(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", TEXTS)
    with pytest.raises(UserError, match="built with tokenizer a1b2, the model uses c3d4; run: spd-lsp "):
        Table.open(tmp_path / "t.ngt", fingerprint="c3d4")


def test_the_end_of_text_token_predicts_how_files_begin(table: Table) -> None:
    p, _ = mean(table, [END], [1, 3])
    assert p[0].tolist() == [1 / 3, 1 / 3]
