"""A table answers as dictionaries would, and a file that is not what was written is refused or harmless."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.counts import count
from ngram_builders.errors import UserError
from ngram_builders.tables import PREFIX, Table, TableSummary, write
from tests.ngram_builders.reference import (
    END,
    LARGE,
    LARGE_VOCABULARY,
    SMALL,
    Documents,
    arrays,
    documents,
    successors,
)

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]


def write_texts(path: Path, texts: Documents, vocab_size: int = 4, **options: object) -> TableSummary:
    counts = count(arrays(texts), end_of_text=END, vocab_size=vocab_size, **options)  # type: ignore[arg-type]
    return write(path, counts, fingerprint="a1b2", sources={"python": len(texts)})


def naive_lookup(
    texts: Documents, contexts: list[list[int]], candidates: list[int]
) -> tuple[list[list[list[float]]], list[list[bool]]]:
    p, seen = [], []
    for context in contexts:
        rows, heard = [], []
        for order in range(2, 7):
            tail = tuple(context[len(context) - order + 1 :]) if len(context) >= order - 1 else (-1,)
            followed = successors(texts, order).get(tail, {})
            total = sum(followed.values())
            heard.append(total > 0)
            rows.append([followed.get(c, 0) / total if total else 0.0 for c in candidates])
        p.append(rows)
        seen.append(heard)
    return p, seen


@pytest.fixture
def table(tmp_path: Path) -> Table:
    write_texts(tmp_path / "t.ngt", TEXTS)
    return Table.open(tmp_path / "t.ngt")


@pytest.mark.parametrize(("ids", "vocab_size"), [(SMALL, 4), (LARGE, LARGE_VOCABULARY)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_lookup_equals_a_dictionary_loop(
    tmp_path_factory: pytest.TempPathFactory, ids: tuple[int, ...], vocab_size: int, data: st.DataObject
) -> None:
    texts = data.draw(documents(ids))
    path = tmp_path_factory.mktemp("lookup") / "t.ngt"
    write_texts(path, texts, vocab_size)
    short = data.draw(st.lists(st.lists(st.sampled_from(ids), max_size=5), min_size=1, max_size=4))
    candidates = data.draw(st.lists(st.sampled_from((*ids, vocab_size - 1)), unique=True, max_size=6))
    contexts = np.array([[-1] * (5 - len(context)) + context for context in short])
    p, seen = Table.open(path).lookup(contexts, np.array(candidates, dtype=np.int64))
    expected_p, expected_seen = naive_lookup(texts, short, candidates)
    assert p.shape == (len(short), 5, len(candidates))
    assert seen.tolist() == expected_seen
    np.testing.assert_array_equal(p, np.reshape(expected_p, p.shape))


def test_contexts_may_be_narrower_or_wider_than_the_longest_order(table: Table) -> None:
    full, seen = table.lookup(np.array([[3, 1, 2, 3, 1]]), np.array([2]))
    wide, _ = table.lookup(np.array([[9, 9, 3, 1, 2, 3, 1]]), np.array([2]))
    narrow, some = table.lookup(np.array([[3, 1]]), np.array([2]))
    assert seen.all()
    np.testing.assert_array_equal(full, wide)
    assert some.tolist() == [[True, True, False, False, False]]
    np.testing.assert_array_equal(narrow[:, :2], full[:, :2])


def test_orders_with_gaps_answer_in_ascending_order(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", TEXTS, orders=(5, 2, 3))
    some = Table.open(tmp_path / "t.ngt")
    write_texts(tmp_path / "all.ngt", TEXTS)
    whole = Table.open(tmp_path / "all.ngt")
    assert some.orders == (2, 3, 5)
    contexts, candidates = np.array([[2, 3, 1, 2, 3], [1, 1, 1, 1, 1]]), np.array([0, 1, 2, 3])
    p, seen = some.lookup(contexts, candidates)
    expected_p, expected_seen = whole.lookup(contexts, candidates)
    np.testing.assert_array_equal(p, expected_p[:, [0, 1, 3]])
    np.testing.assert_array_equal(seen, expected_seen[:, [0, 1, 3]])


@pytest.mark.parametrize("repeats", [200, 253, 254, 255, 256, 300, 65_535, 65_536, 70_000])
def test_large_counts_are_exact(tmp_path: Path, repeats: int) -> None:
    write_texts(tmp_path / "t.ngt", [[1, 2]] * repeats + [[1, 3]])
    p, _ = Table.open(tmp_path / "t.ngt").lookup(np.array([[1]]), np.array([3, 2]))
    assert p[0, 0].tolist() == [1 / (repeats + 1), repeats / (repeats + 1)]


@given(texts=documents())
@settings(max_examples=20, deadline=None)
def test_pruned_ngrams_still_count_in_the_total(
    tmp_path_factory: pytest.TempPathFactory, texts: Documents
) -> None:
    path = tmp_path_factory.mktemp("pruned") / "t.ngt"
    write_texts(path, texts, min_count=2)
    table = Table.open(path)
    for context, followed in successors(texts, 2).items():
        p, seen = table.lookup(np.array([context]), np.array(SMALL))
        kept = [followed[c] if followed[c] >= 2 else 0 for c in SMALL]
        assert seen[0, 0] == any(kept)
        assert p[0, 0].tolist() == [c / sum(followed.values()) for c in kept]


def test_successors_are_those_of_the_longest_context_likeliest_first(table: Table) -> None:
    tokens, p = table.successors(np.array([1, 2]), limit=2)
    assert tokens.tolist() == [3, 0]  # after 1 2: 3 twice, 0 and 2 once each
    assert p.tolist() == [0.5, 0.25]
    tokens, p = table.successors(np.array([0, 0, 0, 3]), limit=9)  # only the last token was seen as a context
    assert tokens.tolist() == [1]
    tokens, p = table.successors(np.array([77]), limit=9)
    assert len(tokens) == len(p) == 0


def test_a_table_of_nothing_knows_nothing(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", [])
    table = Table.open(tmp_path / "t.ngt")
    table.verify()
    p, seen = table.lookup(np.array([[1, 2, 3, 1, 2]]), np.array([1, 2]))
    assert not p.any()
    assert not seen.any()
    assert len(table.successors(np.array([1]), 3)[0]) == 0


def test_what_is_opened_is_what_was_written(tmp_path: Path) -> None:
    written = write_texts(tmp_path / "t.ngt", TEXTS)
    table = Table.open(tmp_path / "t.ngt", fingerprint="a1b2")
    assert table.summary == written
    assert written.size == (tmp_path / "t.ngt").stat().st_size
    assert (written.tokens, written.files, written.sources) == (15, 3, {"python": 3})
    assert not list(tmp_path.glob(".*"))


def test_the_same_counts_give_the_same_bytes(tmp_path: Path) -> None:
    write_texts(tmp_path / "a", TEXTS)
    write_texts(tmp_path / "b", TEXTS, block_tokens=3)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_mapped_table_survives_its_replacement(tmp_path: Path, table: Table) -> None:
    before, _ = table.lookup(np.array([[1]]), np.array([2]))
    write_texts(tmp_path / "t.ngt", [[1, 3]] * 500)
    after, _ = table.lookup(np.array([[1]]), np.array([2]))
    np.testing.assert_array_equal(before, after)
    assert Table.open(tmp_path / "t.ngt").lookup(np.array([[1]]), np.array([2]))[0][0, 0, 0] == 0


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no such file"),
        (b"", "a file without content"),
        (b"SPD", "a file without content"),
        (b"#!/bin/sh\necho not a table\n", "a file of another kind"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes | None, found: str) -> None:
    path = tmp_path / "x.ngt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{found}.*; run: spd-lsp build-ngrams REPO"):
        Table.open(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run: spd-lsp build-ngrams"):
        Table.open(tmp_path)


@pytest.mark.parametrize(("version", "advice"), [(2, "update spd-lsp"), (0, "run: spd-lsp build-ngrams")])
def test_another_format_is_refused(tmp_path: Path, version: int, advice: str) -> None:
    path = tmp_path / "t.ngt"
    write_texts(path, TEXTS)
    data = bytearray(path.read_bytes())
    data[7] = version
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"format {version}.*{advice}"):
        Table.open(path)


def test_another_tokenizer_is_refused_with_both_names(tmp_path: Path) -> None:
    write_texts(tmp_path / "t.ngt", TEXTS)
    with pytest.raises(
        UserError, match="built with tokenizer a1b2, the model uses c3d4; run: spd-lsp build-ngrams"
    ):
        Table.open(tmp_path / "t.ngt", fingerprint="c3d4")


def test_every_truncation_is_refused_at_open(tmp_path: Path) -> None:
    path = tmp_path / "t.ngt"
    write_texts(path, TEXTS)
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(UserError):
            Table.open(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(UserError, match=f"{len(data) + 1:,} bytes instead of {len(data):,}"):
        Table.open(path)


def test_every_flipped_byte_is_found_or_harmless(tmp_path: Path) -> None:
    """In the header at open, in the data by verify; and no look-up crashes on damaged data."""
    path = tmp_path / "t.ngt"
    write_texts(path, [*TEXTS * 300, [1, 1]])
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 8)[0]
    contexts = np.array([[3, 1, 2, 3, 1], [0, 3, 1, 2, 0], [1, 2, 3, 1, 2]])
    candidates = np.array([0, 1, 2, 3, 9])
    intact = Table.open(path).lookup(contexts, candidates)
    for place in [*range(PREFIX.size + length), *range(PREFIX.size + length, len(data), 5)]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            table = Table.open(path)
        except UserError:
            continue
        assert place >= PREFIX.size + length
        p, seen = table.lookup(contexts, candidates)
        table.successors(contexts[0], 4)
        assert np.isfinite(p).all()
        try:
            table.verify()
        except UserError:
            continue
        np.testing.assert_array_equal(p, intact[0])  # only padding
        np.testing.assert_array_equal(seen, intact[1])


@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
@pytest.mark.parametrize("section", ["keys", "pointers", "totals", "tokens", "counts", "overflow_places"])
def test_a_wiped_section_gives_wrong_numbers_but_no_crash(tmp_path: Path, section: str, byte: bytes) -> None:
    path = tmp_path / "t.ngt"
    write_texts(path, [*TEXTS * 300, [1, 1]])
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 8)[0]
    offset, size, _, _ = msgpack.unpackb(data[PREFIX.size : PREFIX.size + length])["sections"][section]
    start = -(-(PREFIX.size + length) // 64) * 64 + offset
    spared = 4 if section == "pointers" else 0  # the last pointer is looked at when the table is opened
    path.write_bytes(data[:start] + byte * (size - spared) + data[start + size - spared :])
    table = Table.open(path)
    p, _ = table.lookup(np.array([[3, 1, 2, 3, 1], [0, 3, 1, 2, 0]]), np.array([0, 1, 2, 3, 65_535]))
    assert np.isfinite(p).all()
    assert np.isfinite(table.successors(np.array([3, 1]), 5)[1]).all()
    with pytest.raises(UserError, match=rf"damaged data \(section {section}\)"):
        table.verify()


def test_damaged_data_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.ngt"
    write_texts(path, TEXTS)
    data = bytearray(path.read_bytes())
    data[-64] ^= 1  # without overflow the counts are the last section, one boundary long
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"damaged data \(section counts\)"):
        Table.open(path).verify()


@given(noise=st.binary(min_size=16, max_size=200))
@settings(max_examples=50, deadline=None)
def test_noise_behind_the_magic_is_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "t.ngt"
    path.write_bytes(b"SPDNGT\0\x01" + noise)
    with pytest.raises(UserError):
        Table.open(path)


@given(
    fields=st.dictionaries(
        st.sampled_from(["fingerprint", "vocab_size", "orders", "min_count", "contexts", "sources", "sections"]),
        st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3), st.lists(st.integers(-1, 12), max_size=3)),
    )
)
@settings(max_examples=100, deadline=None)
def test_a_header_that_makes_no_sense_is_refused(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("header") / "t.ngt"
    good = {"fingerprint": "f", "vocab_size": 4, "orders": [2], "min_count": [1], "tokens": 1, "files": 1}
    header = msgpack.packb({**good, "contexts": 1, "ngrams": 1, "sources": {}, "sections": {}, **fields})
    path.write_bytes(PREFIX.pack(b"SPDNGT\0", 1, len(header), zlib.crc32(header)) + header + bytes(64))
    with pytest.raises(UserError, match="run: spd-lsp build-ngrams"):
        Table.open(path)


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*; free space there or choose another folder"):
        write_texts(tmp_path / "file" / "t.ngt", TEXTS)
    assert (tmp_path / "file").read_text() == "in the way"
