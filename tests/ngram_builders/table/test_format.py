"""A file that is not what was written is refused, or at worst gives wrong numbers; it never ends the process."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.errors import UserError
from ngram_builders.table.format import FILE_PREFIX, VERSION
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import build_suffix_array
from ngram_builders.table.validation import find_foreign_ids
from tests.ngram_builders.reference import write_texts

TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]
# A context with more successors than fit a narrow row, and counts beyond a byte: every section holds something.
RICH = [*TEXTS * 300, [1, 1], [token for other in range(4, 60) for token in (1, other)]]
CONTEXTS = np.array([[3, 1, 2, 3, 1], [0, 3, 1, 2, 0], [1, 2, 3, 1, 2]])
CANDIDATES = np.array([0, 1, 2, 3, 9, 65_535])


def first_section(data: bytes) -> int:
    return -(-(FILE_PREFIX.size + struct.unpack_from("<I", data, 8)[0]) // 64) * 64


def with_header(data: bytes, changed: dict[str, object]) -> bytes:
    """A table with other facts, its checksum right."""
    length = struct.unpack_from("<I", data, 8)[0]
    header = msgpack.packb(msgpack.unpackb(data[FILE_PREFIX.size : FILE_PREFIX.size + length]) | changed)
    prefix = FILE_PREFIX.pack(b"SPDNGT\0", data[7], len(header), zlib.crc32(header))
    return (prefix + header).ljust(-(-(len(prefix) + len(header)) // 64) * 64, b"\0") + data[first_section(data) :]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_texts(tmp_path / "t.ngt", RICH, 60)
    return tmp_path / "t.ngt"


def ask(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    asked = open_query([[table.columns]], [1.0])
    return (*asked.probabilities(CONTEXTS, CANDIDATES), asked.successors(CONTEXTS, 4))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "no such file"),
        (b"", "too short"),
        (b"SPD", "too short"),
        (b"#!/bin/sh\necho not a table\n", "not an n-gram table"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(tmp_path: Path, content: bytes | None, found: str) -> None:
    path = tmp_path / "x.ngt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{found}.*; run: spd-lsp "):
        Table.open(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run: spd-lsp "):
        Table.open(tmp_path)


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION + 1, "update spd-lsp"), (VERSION - 1, "run: spd-lsp ngrams rebuild")]
)
def test_another_format_is_refused(path: Path, version: int, advice: str) -> None:
    data = bytearray(path.read_bytes())
    data[7] = version
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"format {version}.*{advice}"):
        Table.open(path)


def test_every_truncation_is_refused_at_open(path: Path) -> None:
    data = path.read_bytes()
    header = first_section(data)
    for length in [*range(0, header, 7), *range(header, len(data), 4_999), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(UserError):
            Table.open(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(UserError, match=f"{len(data) + 1:,} bytes instead of {len(data):,}"):
        Table.open(path)


def test_every_flipped_byte_is_detected_or_harmless(path: Path) -> None:
    """In the header at open, in the data by verify; and no question crashes on damaged data."""
    data = path.read_bytes()
    header = FILE_PREFIX.size + struct.unpack_from("<I", data, 8)[0]
    intact = ask(Table.open(path))
    for place in [*range(header), *range(header, len(data), 499)]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            table = Table.open(path)
        except UserError:
            continue
        assert place >= header
        found = ask(table)
        assert np.isfinite(found[0]).all()
        try:
            table.verify()
        except UserError:
            continue
        for one, expected in zip(found, intact, strict=True):  # only padding
            np.testing.assert_array_equal(one, expected)


@given(
    changed=st.dictionaries(
        st.sampled_from(["vocab_size", "orders", "contexts", "entries", "sources", "sections", "directories"]),
        st.one_of(
            st.none(),
            st.integers(-5, 5),
            st.binary(max_size=3),
            st.lists(st.integers(-1, 12), max_size=3),
            st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=3, max_size=3), max_size=5),
        ),
        min_size=1,
    )
)
@settings(max_examples=80, deadline=None)
def test_an_invalid_header_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, changed: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("header") / "t.ngt"
    write_texts(path, TEXTS)
    path.write_bytes(with_header(path.read_bytes(), changed))
    try:
        table = Table.open(path)
    except UserError as error:
        assert "; run: spd-lsp " in str(error)
    else:
        assert np.isfinite(ask(table)[0]).all()


def test_a_table_with_fields_of_an_older_spd_lsp_opens(path: Path) -> None:
    """The weights that headers once held and nothing read."""
    before = Table.open(path).summary
    path.write_bytes(with_header(path.read_bytes(), {"weights": bytes(512)}))
    table = Table.open(path)
    table.verify()
    assert replace(table.summary, size=before.size) == before


@pytest.mark.parametrize(
    "changed",
    [
        {"vocab_size": float("inf")},
        {"tokens": float("nan")},
        {"orders": [2, float("inf")]},
        {"directories": [[2, float("inf"), 0]]},
        {"sources": {"x" * 70_000: 1}},
        {"more": [[]] * 70_000},
        {"fingerprint": "f" * 5_000_000},
        {"fingerprint": "f" * 60_000},
        {"fingerprint": "\x1b[2J"},
        {"fingerprint": None},
        {"tokens": 1e300},  # a number that no index could store
        {"tokens": float("inf")},
        {"files": -1},
        {"ngrams": 2**63},
        {"min_count": []},
        {"min_count": [float("inf")] * 5},
        {"sources": {"python": float("inf")}},
        {"sources": {"\x1b[2J": 1}},
        {"sources": {7: 1}},
    ],
    ids=lambda changed: f"{str(changed)[:24]} {len(str(changed))}",
)
def test_a_header_with_impossible_values_is_refused(path: Path, changed: dict[str, object]) -> None:
    path.write_bytes(with_header(path.read_bytes(), changed))
    with pytest.raises(UserError, match=r"its header is .*; run: spd-lsp "):
        Table.open(path)


def test_a_deeply_nested_header_is_refused(path: Path) -> None:
    header = b"\x91" * 60_000 + b"\x00"
    prefix = FILE_PREFIX.pack(b"SPDNGT\0", VERSION, len(header), zlib.crc32(header))
    path.write_bytes(prefix + header)
    with pytest.raises(UserError, match="its header is unreadable"):
        Table.open(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Opening one would wait for whoever writes into it."""
    os.mkfifo(tmp_path / "pipe.ngt")
    with pytest.raises(UserError, match="not a regular file"):
        Table.open(tmp_path / "pipe.ngt")


def test_ids_beyond_the_vocabulary_are_found_by_whoever_reads_all(tmp_path: Path) -> None:
    """As in a table whose header was changed to fit a smaller model; opening reads no ids."""
    path = tmp_path / "t.ngt"
    searched = build_suffix_array([np.array([7, 300])], 0, 301)
    write_texts(path, [[7, 300, 0]], 301, searched=searched)
    Table.open(path).verify()
    path.write_bytes(with_header(path.read_bytes(), {"vocab_size": 300}))
    with pytest.raises(UserError, match="ids beyond its vocabulary in section tokens; run: spd-lsp "):
        Table.open(path).verify()
    write_texts(path, [[7, 8, 0]], 300)
    assert find_foreign_ids(Table.open(path).columns, searched) == "text"
    assert find_foreign_ids(Table.open(path).columns, None) is None
