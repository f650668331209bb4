"""Rows are full, documents with gaps are never broken, and the same files give the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spd_lsp.training.documents import END_ID, FILE_ID, SUFFIX_ID, TrainingDocument
from spd_lsp.training.rows import (
    Package,
    SourceFile,
    arrange,
    gap_rows,
    group_by_package,
    read_packages,
    read_texts,
    write_held_out_rows,
    write_training_rows,
)

NEIGHBOURS = [[100 + place] * 12 for place in range(4)]
DOCUMENTS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 12).flatmap(
            lambda size: st.builds(TrainingDocument, st.just([7] * size), st.integers(0, size - 1))
        ),
    )
).map(lambda documents: sorted(documents, key=lambda one: one[0]))


@pytest.fixture
def packages(sources: list[str]) -> list[Package]:
    files = [SourceFile(f"p/m{number:03}.py", text) for number, text in enumerate(sources)]
    return [files[:20], files[20:]]


@given(documents=DOCUMENTS, seed=st.integers(0, 99))
def test_no_document_is_broken_and_only_middles_are_measured(
    documents: list[tuple[int, TrainingDocument]], seed: int
) -> None:
    rows = list(gap_rows(documents, NEIGHBOURS, 12, random.Random(seed)))
    assert all(len(row.ids) == len(row.measured) == 12 for row in rows)
    found = [document for _, document in documents]
    assert sum(row.ids.count(7) for row in rows) == sum(len(document.ids) for document in found)
    assert sum(sum(row.measured) for row in rows) == sum(len(d.ids) - d.middle for d in found)
    assert all(row.ids[12 - row.ids.count(7) :] == [7] * row.ids.count(7) for row in rows), "after the neighbours"


def test_a_gap_stands_after_the_files_before_its_own_the_nearest_last() -> None:
    files = [[100] * 4, [101] * 4, [7] * 4, [103] * 4]
    rows = list(gap_rows([(2, TrainingDocument([7] * 4))], files, 10, random.Random(0)))
    assert [row.ids for row in rows] == [[100] * 2 + [101] * 4 + [7] * 4]


def test_no_neighbour_of_a_gap_is_a_file_of_the_same_row() -> None:
    """It would hold the answer."""
    files = [[10 + place] * 9 for place in range(3)]
    documents = [(place, TrainingDocument([20 + place] * 3)) for place in range(3)]
    for seed in range(20):
        for row in gap_rows(documents, files, 8, random.Random(seed)):
            assert not {token - 10 for token in row.ids if token >= 20} & {*row.ids}


def test_rows_end_when_no_neighbours_are_left_to_fill_them() -> None:
    assert list(gap_rows([(0, TrainingDocument([7] * 5))], [[7] * 5], 12, random.Random(0))) == []


def test_both_kinds_of_rows_are_full(tokenizer: Tokenizer, packages: list[Package]) -> None:
    plain, gaps = map(list, arrange(packages, tokenizer, 512, seed=1))
    assert plain
    assert gaps
    assert {len(row.ids) for row in plain + gaps} == {512}
    assert all(all(row.measured) for row in plain)
    assert all(SUFFIX_ID not in row.ids for row in plain)
    assert 0 < np.mean([row.measured for row in gaps]) < 0.5


def test_about_half_of_the_tokens_are_of_documents_with_gaps(
    tokenizer: Tokenizer, packages: list[Package]
) -> None:
    plain, gaps = map(list, arrange(packages * 2, tokenizer, 1024, seed=1))
    inside = sum(1024 - row.ids.index(SUFFIX_ID) for row in gaps)
    assert 0.4 < inside / (1024 * (len(plain) + len(gaps))) < 0.7


def test_neighbours_stand_below_their_paths(tokenizer: Tokenizer, packages: list[Package]) -> None:
    _, gaps = arrange(packages, tokenizer, 512, seed=1)
    heads = [row.ids[: row.ids.index(SUFFIX_ID)] for row in gaps]
    nearest = [head[len(head) - head[::-1].index(FILE_ID) :] for head in heads if FILE_ID in head[:-8]]
    whole = [ids for ids in nearest if len(ids) > 8]  # the farthest file of a row is cut
    assert whole
    assert all(tokenizer.decode(ids).startswith("p/m") for ids in whole)
    assert any(END_ID in head for head in heads)


@pytest.mark.slow
def test_the_same_files_and_seed_give_the_same_bytes(
    tokenizer: Tokenizer, packages: list[Package], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a.npy", "b.npy", "c.npy")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        assert len(write_training_rows([packages, packages[:1]], tokenizer, 512, seed, path)) == 2
    first, second, third = (path.read_bytes() for path in paths)
    assert first == second != third
    assert np.load(paths[0], mmap_mode="r").dtype == np.uint16


def test_held_out_rows_have_a_mask_of_measured_tokens(
    tokenizer: Tokenizer, packages: list[Package], tmp_path: Path
) -> None:
    write_held_out_rows(packages, tokenizer, 512, 0, tmp_path, most=3)
    for kind in ("plain", "gaps"):
        ids, measured = (np.load(tmp_path / f"{kind}.{part}.npy") for part in ("ids", "measured"))
        assert ids.shape == measured.shape == (3, 512)


def test_copyright_comments_are_not_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "package" / "a.py"
    path.parent.mkdir()
    path.write_text("# Copyright 2020 Someone\n# All rights reserved.\n\nx = 1\n")
    assert list(read_packages([[path]], tmp_path)) == [[SourceFile("package/a.py", "x = 1\n")]]
    assert next(read_texts([path])).startswith("# Copyright")


def test_files_are_sorted_into_their_packages() -> None:
    paths = [Path("c/b/2.py"), Path("c/a/1.py"), Path("c/b/x/1.py")]
    assert group_by_package(paths, Path("c")) == [[Path("c/a/1.py")], [Path("c/b/2.py"), Path("c/b/x/1.py")]]
