"""Rows are full, documents with gaps are never broken, and the same texts give the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spd_lsp.training.documents import TrainingDocument
from spd_lsp.training.rows import (
    arrange,
    encode,
    gap_rows,
    order_rows,
    read_texts,
    read_training_texts,
    write_held_out_rows,
    write_training_rows,
)

DOCUMENTS = st.lists(
    st.integers(1, 12).flatmap(
        lambda size: st.builds(TrainingDocument, st.just([7] * size), st.integers(0, size - 1)),
    )
)


@given(documents=DOCUMENTS)
def test_no_document_is_broken_and_only_middles_are_measured(documents: list[TrainingDocument]) -> None:
    rows = list(gap_rows(documents, iter([9] * 10_000), 12))
    assert all(len(row.ids) == len(row.measured) == 12 for row in rows)
    assert sum(row.ids.count(7) for row in rows) == sum(len(d.ids) for d in documents)
    assert sum(sum(row.measured) for row in rows) == sum(len(d.ids) - d.middle for d in documents)
    assert all(
        9 not in row.ids[: row.ids.index(9)] and 7 not in row.ids[row.ids.index(9) :]
        for row in rows
        if 9 in row.ids
    )


def test_rows_end_when_no_text_is_left_to_fill_them() -> None:
    assert list(gap_rows([TrainingDocument([7] * 5)], iter([]), 12)) == []


def test_both_kinds_of_rows_are_full(tokenizer: Tokenizer, sources: list[str]) -> None:
    plain, gaps = map(list, arrange(sources * 3, tokenizer, 1024, seed=1))
    assert plain
    assert gaps
    assert {len(row.ids) for row in plain + gaps} == {1024}
    assert all(all(row.measured) for row in plain)
    assert 0 < np.mean([row.measured for row in gaps]) < 0.5


@pytest.mark.slow
def test_the_same_texts_and_seed_give_the_same_bytes(
    tokenizer: Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a.npy", "b.npy", "c.npy")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        assert len(write_training_rows([sources * 3, sources], tokenizer, 1024, seed, path)) == 2
    first, second, third = (path.read_bytes() for path in paths)
    assert first == second != third
    assert np.load(paths[0], mmap_mode="r").dtype == np.uint16


def test_held_out_rows_have_a_mask_of_measured_tokens(
    tokenizer: Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    write_held_out_rows(sources * 3, tokenizer, 1024, 0, tmp_path)
    for kind in ("plain", "gaps"):
        assert np.load(tmp_path / f"{kind}.ids.npy").shape == np.load(tmp_path / f"{kind}.measured.npy").shape


def test_gaps_of_a_row_are_from_neighbouring_texts(tokenizer: Tokenizer, sources: list[str]) -> None:
    """Documents are in the order of the texts, so those of one text are adjacent."""
    _, gaps = encode([f"x{number}\n" * 900 for number in range(9)], tokenizer, 1024, seed=1)
    numbers = [tokenizer.decode(document.ids).split("x")[-1].strip() for document in gaps]
    assert len(set(numbers)) > 2
    assert numbers == sorted(numbers)


def test_copyright_comments_are_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("# Copyright 2020 Someone\n# All rights reserved.\n\nx = 1\n")
    assert list(read_training_texts([tmp_path / "a.py"])) == ["x = 1\n"]
    assert next(read_texts([tmp_path / "a.py"])).startswith("# Copyright")


def test_the_rows_of_a_decay_have_the_share_of_python_that_was_asked_for(
    tokenizer: Tokenizer, sources: list[str], tmp_path: Path
) -> None:
    languages, path = [sources, [text.upper() for text in sources]], tmp_path / "rows.npy"
    counts = write_training_rows(languages, tokenizer, 64, 7, path)
    rows, spent = np.load(path), 10
    order = order_rows(counts, 7, spent, 0.75)
    assert sorted(order) == list(range(sum(counts))), "every row once"
    assert list(order[:spent]) == list(range(spent)), "what was learnt stays in place"
    drawn = [tokenizer.decode(rows[row]) for row in order[spent : spent + 40]]
    assert sum(any(letter.islower() for letter in text) for text in drawn) == 30


def test_a_language_of_which_no_rows_are_left_ends_its_share() -> None:
    order = order_rows([3, 20], 0, 0, 0.9)
    assert sorted(order) == list(range(23))
