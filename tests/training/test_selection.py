"""Packages give even shares; what is held out is held out in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.training.selection import even_share, is_held_out, select


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A giant of 600 files and a dwarf of 5."""
    for package, files in (("giant", 600), ("dwarf", 5)):
        (tmp_path / package).mkdir()
        for number in range(files):
            (tmp_path / package / f"m{number}.py").write_text("x" * 99 + "\n")
    return tmp_path


@given(sizes=st.lists(st.integers(1, 1000), min_size=1), budget=st.integers(1, 20_000))
def test_the_cap_spends_the_budget_as_far_as_there_is_text(sizes: list[int], budget: int) -> None:
    spent = sum(min(size, even_share(sizes, budget)) for size in sizes)
    assert spent <= budget
    assert spent > min(budget, sum(sizes)) - len(sizes)


def test_a_giant_does_not_crowd_out_a_dwarf(corpus: Path) -> None:
    chosen = select(corpus, budget=5_000, seed=0).learnt
    assert sum(path.parent.name == "dwarf" for path in chosen) == 5
    assert 40 <= len(chosen) <= 55


def test_the_same_seed_gives_the_same_files(corpus: Path) -> None:
    assert select(corpus, 5_000, seed=1) == select(corpus, 5_000, seed=1)
    assert select(corpus, 5_000, seed=1) != select(corpus, 5_000, seed=2)


def test_no_run_learns_what_any_run_holds_out(corpus: Path) -> None:
    everything = select(corpus, 10**9, seed=0)
    other = select(corpus, 10**9, seed=7)
    assert set(everything.learnt).isdisjoint(other.held_out)
    assert set(everything.held_out) == set(other.held_out) != set()
    assert all(is_held_out(path, corpus) for path in everything.held_out)
