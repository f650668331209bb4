"""Languages give their shares and packages even ones; what is held out is held out in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_lsp.training.selection import even_share, is_held_out, select_files, select_language_files


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A giant of 600 files and a dwarf of 5, in one language, and 300 files in each of two others."""
    packages = (("python/giant", 600), ("python/dwarf", 5), ("typescript/script", 300), ("go/gone", 300))
    for package, files in packages:
        (tmp_path / package).mkdir(parents=True)
        for number in range(files):
            (tmp_path / package / f"m{number}.py").write_text("x" * 99 + "\n")
    return tmp_path


@given(sizes=st.lists(st.integers(1, 1000), min_size=1), budget=st.integers(1, 20_000))
def test_the_cap_spends_the_budget_while_there_is_text(sizes: list[int], budget: int) -> None:
    spent = sum(min(size, even_share(sizes, budget)) for size in sizes)
    assert spent <= budget
    assert spent > min(budget, sum(sizes)) - len(sizes)


def test_a_large_package_does_not_crowd_out_a_small_one(corpus: Path) -> None:
    giant, dwarf = sorted(select_language_files(corpus / "python", 5_000, seed=0).learnt, key=len, reverse=True)
    assert len(dwarf) == 5
    assert 35 <= len(giant) <= 50


def test_languages_share_the_budget_among_those_present(corpus: Path) -> None:
    chosen = select_files(corpus, 16_000, seed=0)
    sizes = {language: sum(map(len, files.learnt)) for language, files in chosen.items()}
    assert list(chosen) == ["python", "typescript", "go"]
    assert sizes["python"] == pytest.approx(100, abs=3)
    assert sizes["typescript"] == pytest.approx(50, abs=3)
    assert sizes["go"] == pytest.approx(10, abs=3)


def test_files_are_grouped_by_package_and_sorted(corpus: Path) -> None:
    for package in select_language_files(corpus / "python", 10**9, seed=0).learnt:
        assert package == sorted(package)
        assert len({path.parent for path in package}) == 1


def test_the_same_seed_gives_the_same_files(corpus: Path) -> None:
    assert select_files(corpus, 5_000, seed=1) == select_files(corpus, 5_000, seed=1)
    assert select_files(corpus, 5_000, seed=1) != select_files(corpus, 5_000, seed=2)


def test_no_run_trains_on_files_that_any_run_holds_out(corpus: Path) -> None:
    folder = corpus / "python"
    everything = select_language_files(folder, 10**9, seed=0)
    other = select_language_files(folder, 10**9, seed=7)
    assert {path for package in everything.learnt for path in package}.isdisjoint(other.held_out)
    assert set(everything.held_out) == set(other.held_out) != set()
    assert all(is_held_out(path, folder) for path in everything.held_out)


def test_the_held_out_files_do_not_depend_on_the_training_files(corpus: Path) -> None:
    little, much = (select_language_files(corpus / "python", budget, seed=0) for budget in (5_000, 10**9))
    assert little.held_out == much.held_out
    assert little.learnt != much.learnt
