"""The shipped table holds what several packages share, with probabilities over all that was counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.training.ngrams import count_order, encode_packages, write_built_in

DOCUMENT = st.lists(st.integers(5, 8), max_size=12).map(lambda ids: np.array([*ids, 0], dtype=np.uint16))
PACKAGES = st.lists(st.lists(DOCUMENT, max_size=3), min_size=1, max_size=4).filter(any)
LEAST = {2: (2, 3), 3: (2, 2)}


@pytest.fixture(scope="session")
def tokens(tokenizer_folder: Path) -> ModelTokenizer:
    return ModelTokenizer(tokenizer_folder)


def naive(
    packages: list[list[np.ndarray]], order: int
) -> tuple[Counter[tuple[int, ...]], Counter[tuple[int, ...]]]:
    """Every n-gram with its count, and with how many packages have it."""
    counts: Counter[tuple[int, ...]] = Counter()
    sharing: Counter[tuple[int, ...]] = Counter()
    for documents in packages:
        found: Counter[tuple[int, ...]] = Counter()
        for document in documents:
            ids = [0, *map(int, document)]
            found.update(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))
        counts.update(found)
        sharing.update(dict.fromkeys(found, 1))
    return counts, sharing


@settings(deadline=None, max_examples=30)
@given(packages=PACKAGES, order=st.integers(2, 4))
def test_a_tally_is_what_a_loop_counts(
    tokens: ModelTokenizer, packages: list[list[np.ndarray]], order: int
) -> None:
    counts, sharing = naive(packages, order)
    found = count_order(packages, order, tokens)
    assert sorted(zip(found.counts.tolist(), found.packages.tolist(), strict=True)) == sorted(
        (counts[ngram], sharing[ngram]) for ngram in counts
    )


@settings(deadline=None, max_examples=30)
@given(packages=PACKAGES)
def test_the_table_answers_as_a_loop_over_all_packages(
    tokens: ModelTokenizer, packages: list[list[np.ndarray]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("table") / "python.ngt"
    write_built_in(packages, tokens, path, LEAST)
    table = Table.open(path, tokens.fingerprint)
    asked = open_query([[table.columns]], [1.0])
    for order in LEAST:
        counts, sharing = naive(packages, order)
        totals: Counter[tuple[int, ...]] = Counter()
        for ngram, number in counts.items():
            totals[ngram[:-1]] += number
        for ngram, number in counts.items():
            p, _ = asked.probabilities(np.array([ngram[:-1]]), np.array([ngram[-1]]))
            kept = sharing[ngram] >= LEAST[order][0] and number >= LEAST[order][1]
            assert p[0, order - 2, 0] == pytest.approx(number / totals[ngram[:-1]] if kept else 0.0)


def test_the_same_ids_give_the_same_bytes(tokens: ModelTokenizer, tmp_path: Path) -> None:
    packages = [[np.array([5, 6, 7, 0], dtype=np.uint16)]] * 3
    paths = [tmp_path / name / "python.ngt" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        write_built_in(packages, tokens, path, {2: (2, 1)})
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_table_holds_the_most_frequent_ngrams_within_its_size(tokens: ModelTokenizer, tmp_path: Path) -> None:
    """What is dropped still counts: a probability is of all that followed a context."""
    once, often = (np.array([*ids, 0], dtype=np.uint16) for ids in (range(5, 300), [5, 6, 5, 7] * 4))
    packages = [[once, often]] * 2
    whole = write_built_in(packages, tokens, tmp_path / "go.ngt", {2: (2, 1)})
    part = write_built_in(packages, tokens, tmp_path / "rust.ngt", {2: (2, 1)}, max_bytes=whole.size - 500)
    assert part.size <= whole.size - 500
    assert 0 < part.ngrams < whole.ngrams
    assert part.sources == {"rust": 4}
    query = open_query([[Table.open(tmp_path / "rust.ngt", tokens.fingerprint).columns]], [1.0])
    p, _ = query.probabilities(np.array([[5], [8]]), np.array([6, 9]))
    assert p[:, 0, 0] == pytest.approx([10 / 18, 0.0])


def test_no_table_is_too_small_to_be_written(tokens: ModelTokenizer, tmp_path: Path) -> None:
    document = np.array([5, 6, 7, 0], dtype=np.uint16)
    assert write_built_in([[document]], tokens, tmp_path / "c.ngt", {2: (1, 1)}, max_bytes=1).ngrams == 0


def test_only_the_wanted_files_are_encoded(tokens: ModelTokenizer, tmp_path: Path) -> None:
    for name in ("one/a.py", "one/b.py", "two/c.go", "two/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    folders = [tmp_path / "one", tmp_path / "two"]
    first, second = encode_packages(folders, lambda path: path.name not in ("b.py", "d.py"), tokens)
    assert len(first) == len(second) == 1
    assert first[0].tolist() == [*tokens.encode("x = 1\n"), tokens.end_of_text]
