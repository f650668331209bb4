"""A table comes back as it was written, or is refused with a sentence; whatever opens, no query of it fails."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_builders.index import suffix_array
from ngram_builders.index.mixture import Mixture, Signed
from ngram_builders.index.suffix_array import SuffixArray
from ngram_builders.index.table_file import (
    MAGIC,
    Table,
    TableError,
    TableSummary,
    read_summary,
    write_table,
)
from tests.ngram_builders.index.test_suffix_array import array_of
from tests.ngram_builders.small_tables import write_texts

ORIGIN = {"model": "tiny", "built": 5.0, "sources": "shop"}
STREAMS = [[0, 1, 2, 3, 1, 2, 3, 0], [0, 5, 1, 2, 0], [0, 0]]
SECTIONS = tuple(field.name for field in fields(SuffixArray))
REBUILD = "; run: spd-lsp ngrams rebuild"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.ngt"


def summary_of(array: SuffixArray, **facts: Any) -> TableSummary:
    of_array = {"fingerprint": "a1b2", "vocab_size": 2**17, "tokens": array.tokens, "files": len(array.breaks) - 1}
    return TableSummary(**{**of_array, "sources": {"python": 2}, **facts})


def small_array() -> SuffixArray:
    """One with lists of what follows wide contexts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_array, "WIDE", 2)
        return array_of(STREAMS)


def ask(table: Table) -> None:
    """Query everything that a completion does."""
    query = Mixture([[Signed(table.array)]], [1.0])
    contexts = np.array([[-1, -1, 1, 2], [5, 3, 1, 2], [0, 0, 0, 0]])
    query.probabilities(contexts, np.arange(6))
    query.successors(contexts, 3)


@pytest.mark.parametrize("large", [1, 2**16])  # ids, which take two or four bytes
def test_a_table_comes_back_as_it_was_written_and_the_same_again_is_the_same_bytes(path: Path, large: int) -> None:
    array = array_of([list(range(large)), [5, 6], []])
    write_table(path, array, summary_of(array, origin=ORIGIN))
    table = Table.open(path, "a1b2")
    table.verify()
    assert table.summary == read_summary(path) == summary_of(array, origin=ORIGIN, size=path.stat().st_size)
    for name in SECTIONS:
        found, expected = getattr(table.array, name), getattr(array, name)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    before = path.read_bytes()
    write_table(path, table.array, table.summary)  # while it is mapped
    assert path.read_bytes() == before
    with pytest.raises(TableError, match="built with tokenizer a1b2, the model uses c3"):
        Table.open(path, "c3")


def test_a_table_of_no_tokens_answers(path: Path) -> None:
    write_table(path, array_of([[]]), summary_of(array_of([[]])))
    table = Table.open(path)
    table.verify()
    ask(table)


def test_a_table_of_any_other_length_is_refused(path: Path) -> None:
    write_texts(path, [[1, 2, 3], [1, 2]])
    data = path.read_bytes()
    for other in [data + b"\0", *(data[:length] for length in range(len(data)))]:
        path.write_bytes(other)
        with pytest.raises(TableError, match=REBUILD):
            Table.open(path)


def test_with_any_byte_flipped_a_table_is_refused_or_says_the_same(path: Path) -> None:
    array = small_array()
    write_table(path, array, summary_of(array))
    data = path.read_bytes()
    same = 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            table = Table.open(path)
        except TableError:
            continue
        ask(table)  # a server does not verify
        try:
            table.verify()
        except TableError:
            continue
        same += 1
        assert all(np.array_equal(getattr(table.array, name), getattr(array, name)) for name in SECTIONS)
    assert same < 64 * (1 + len(SECTIONS))  # what lies between sections


@given(st.sampled_from(SECTIONS), st.data())
def test_whatever_a_section_holds_a_table_that_opens_answers(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.ngt"
    array = small_array()
    section = getattr(array, name)
    values = st.one_of(st.integers(0, 12), st.integers(0, np.iinfo(section.dtype).max))
    size = data.draw(st.sampled_from([len(section), max(0, len(section) - 1), len(section) + 1]))
    drawn = data.draw(st.lists(values, min_size=size, max_size=size))
    kept = data.draw(st.integers(0, size))
    changed = np.array([*section[:kept].tolist(), *drawn][:size], section.dtype)
    write_table(path, replace(array, **{name: changed}), summary_of(array))
    try:
        table = Table.open(path)
    except TableError:
        return
    ask(table)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "the file is too short" + REBUILD),
        (b"PK" + bytes(100), "it is not an n-gram table" + REBUILD),
        (MAGIC + b"\4" + bytes(100), "its format 4 is older than 5" + REBUILD),
        (
            MAGIC + b"\6" + bytes(100),
            "its format 6 is newer than 5; update spd-lsp or run: spd-lsp ngrams rebuild",
        ),
    ],
)
def test_what_is_no_table_of_this_format_is_refused(path: Path, data: bytes, cause: str) -> None:
    path.write_bytes(data)
    for read in (Table.open, read_summary):
        with pytest.raises(TableError) as caught:
            read(path)
        assert str(caught.value) == f"cannot use n-gram table {path}: {cause}"


@pytest.mark.parametrize("change", [{"tokens": 3}, {"files": 9}, {"vocab_size": 5}], ids=str)
def test_facts_that_the_sections_contradict_are_refused(path: Path, change: dict[str, int]) -> None:
    array = array_of(STREAMS)  # whose highest id is 5
    write_table(path, array, summary_of(array, **change))
    with pytest.raises(TableError, match="invalid data in section"):
        Table.open(path)
