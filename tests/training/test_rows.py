"""Rows are full, documents with gaps are never broken, and the same files give the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spd_lsp.training.rows import gap_rows, select_files, write_rows
from spd_lsp.training.tokenizer import FILE_ID, SUFFIX_ID

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


@pytest.mark.slow
def test_half_of_the_tokens_are_plain_and_a_seed_decides_every_byte(
    tokenizer: Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    files = [tmp_path / "python" / "p" / f"m{number:03}.py" for number in range(len(sources))]
    files[0].parent.mkdir(parents=True)
    for file, text in zip(files, sources, strict=True):
        file.write_text(text)
    found = []
    for seed in (1, 1, 2):
        counts = write_rows(
            {"python": [files[:20], files[20:]]}, tmp_path, tokenizer, 512, seed, tmp_path / "rows.npy"
        )
        found.append((tmp_path / "rows.npy").read_bytes())
        rows = np.load(tmp_path / "rows.npy")
        assert rows.dtype == np.uint16 and rows.shape == (counts["python"], 512)
    assert found[0] == found[1] != found[2]
    gaps = [row for row in rows.tolist() if SUFFIX_ID in row]
    assert 0.4 < sum(512 - row.index(SUFFIX_ID) for row in gaps) / rows.size < 0.75
    heads = [row[: row.index(SUFFIX_ID)] for row in gaps]
    nearest = [head[len(head) - head[::-1].index(FILE_ID) :] for head in heads if FILE_ID in head[:-8]]
    assert any(tokenizer.decode(ids).startswith("p/m") for ids in nearest if len(ids) > 8)


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
