"""Rows are full, documents with gaps are never broken, and the same files give the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.training.rows import gap_rows, select_files

NEIGHBOURS = [[100 + place] * 12 for place in range(4)]
DOCUMENTS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 12).map(lambda size: [7] * size))).map(
    lambda documents: sorted(documents, key=lambda one: one[0])
)


@given(documents=DOCUMENTS, seed=st.integers(0, 99))
def test_no_document_is_broken(documents: list[tuple[int, list[int]]], seed: int) -> None:
    rows = list(gap_rows(documents, NEIGHBOURS, 12, random.Random(seed)))
    assert all(len(row) == 12 for row in rows)
    assert sum(row.count(7) for row in rows) == sum(len(document) for _, document in documents)
    assert all(row[12 - row.count(7) :] == [7] * row.count(7) for row in rows), "after the neighbours"


def test_no_neighbour_of_a_gap_is_a_file_of_the_same_row() -> None:
    """It would hold the answer."""
    files = [[10 + place] * 9 for place in range(3)]
    documents = [(place, [20 + place] * 3) for place in range(3)]
    for seed in range(20):
        for row in gap_rows(documents, files, 8, random.Random(seed)):
            assert not {token - 10 for token in row if token >= 20} & {*row}


def test_languages_and_packages_have_their_shares(tmp_path: Path) -> None:
    """A giant of 600 files does not crowd out a dwarf of 5."""
    for package, files in (
        ("python/giant", 600),
        ("python/dwarf", 5),
        ("typescript/script", 300),
        ("go/gone", 300),
    ):
        (tmp_path / package).mkdir(parents=True)
        for number in range(files):
            (tmp_path / package / f"m{number}.py").write_text("x" * 99 + "\n")
    chosen = select_files(tmp_path, 16_000, seed=0)
    assert {language: sum(map(len, packages)) for language, packages in chosen.items()} == {
        "python": pytest.approx(100, abs=3),
        "typescript": pytest.approx(50, abs=3),
        "go": pytest.approx(10, abs=3),
    }
    giant, dwarf = sorted(chosen["python"], key=len, reverse=True)
    assert len(dwarf) == 5 and giant == sorted(giant)
    assert chosen == select_files(tmp_path, 16_000, seed=0) != select_files(tmp_path, 16_000, seed=1)
