"""The kernel says of tables what dictionaries say of the text they were counted from, and bears any damage."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.compile_kernel import PACKAGE
from ngram_builders.errors import UserError
from ngram_builders.ngrams import count_streams, prune
from ngram_builders.table import format as table_format
from ngram_builders.table import kernel
from ngram_builders.table import query as query_module
from ngram_builders.table.kernel import open_library
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.pools import Case, Expected, cases, counted
from tests.ngram_builders.reference import run_of_texts, write_texts

ROOT = Path(kernel.__file__).parents[2]
TEXT = np.random.default_rng(7).integers(0, 12, size=4000)
CONTEXTS = np.stack([TEXT[i : i + 5] for i in range(0, 3000, 7)])
CANDIDATES = np.arange(15)
TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 2, 0], [3, 1, 2, 0], [0]]
COLUMNS = build_columns(run_of_texts(TEXTS), 4)
PRUNED = build_columns(prune(run_of_texts(TEXTS), {3: 2}, 4), 4)


@pytest.fixture
def pool():
    return [build_columns(count_streams([TEXT], orders=(2, 3, 4), vocab_size=12), 12)]


@given(case=cases())
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_probabilities_and_successors_equal_those_by_dictionaries(case: Case) -> None:
    query = open_query(case.columns(), case.weights)
    p, matched = query.probabilities(case.contexts, case.candidates)
    expected_p, expected_matched = case.expected().probabilities(case.candidates)
    np.testing.assert_array_equal(matched, expected_matched)
    np.testing.assert_array_equal(p, expected_p)
    ids = query.successors(case.contexts, case.n)
    assert ids.tolist() == case.expected().successors(case.n)
    assert ids.dtype == np.int64


@pytest.mark.slow
@given(case=cases(), seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=300, deadline=None)
def test_model_and_tables_are_mixed_as_by_dictionaries(case: Case, seed: int, share: float) -> None:
    random, query, expected = (
        np.random.default_rng(seed),
        open_query(case.columns(), case.weights),
        case.expected(),
    )
    p = random.integers(0, 9, min(case.vocab_size, 1000)) / 64  # with many equals
    p = np.where(random.random(len(p)) < share, -1, p).astype(np.float32)
    weights = random.random((len(case.pools), 9, 8)) * np.tri(9, 8, -1) / 8  # of each pool its own
    ids, p_f = query.mix_candidates(case.contexts, p, case.n, weights)
    expected_ids, expected_p_f = expected.mix_candidates(p, case.n, weights)
    if case.n:
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_allclose(p_f, expected_p_f, rtol=1e-12, atol=1e-15)
    likely = random.random((len(case.contexts), len(case.candidates)))
    mixed = query.mix(case.contexts, case.candidates, likely, weights)
    expected_mixed = expected.mix(case.candidates, likely, weights)
    np.testing.assert_allclose(mixed, expected_mixed, rtol=1e-12, atol=1e-15)


def test_a_worked_example() -> None:
    """After 1 came 2 four times and nothing else, after 1 2: 3 twice, 0 and 2 once each."""
    query = open_query([[COLUMNS]], [1.0])
    p, matched = query.probabilities(np.array([[-1, 1, 2], [-1, -1, 1]]), np.array([3, 2, 9]))
    assert p.shape == (2, 8, 3)
    assert p[0, 1].tolist() == [2 / 4, 1 / 4, 0]
    assert p[1, 0].tolist() == [0, 1, 0]
    assert matched[:, :3].tolist() == [[1, 1, 0], [1, 0, 0]]
    assert query.successors(np.array([[-1, 1, 2]]), 2).tolist() == [0, 3]
    assert query.successors(np.array([[0, 0, 0, 3]]), 9).tolist() == [1]  # only the last token is a context
    assert query.successors(np.array([[77]]), 9).tolist() == []


def test_pruned_ngrams_still_count_in_the_total_and_are_never_proposed() -> None:
    """OTHER is no token: not even a candidate of that number hears of it."""
    query, contexts = open_query([[PRUNED]], [1.0]), np.array([[-1, 1, 2]])
    p, matched = query.probabilities(contexts, np.array([3, 2, 0, 65_535]))
    assert p[0, 1].tolist() == [2 / 4, 0, 0, 0]
    assert matched[0, 1] == 1
    assert query.successors(contexts, 9).tolist() == [3]


@pytest.mark.parametrize("repeats", [254, 255, 256, 65_535, 65_536, 70_000])
def test_large_counts_are_exact(tmp_path, repeats) -> None:
    write_texts(tmp_path / "t.ngt", [[1, 2]] * repeats + [[1, 3]])
    query = open_query([[Table.open(tmp_path / "t.ngt").columns]], [1.0])
    p, _ = query.probabilities(np.array([[1]]), np.array([3, 2]))
    assert p[0, 0].tolist() == [1 / (repeats + 1), repeats / (repeats + 1)]


def test_a_pool_with_weight_zero_is_skipped() -> None:
    p, matched = open_query([[COLUMNS], [COLUMNS]], [0.0, 0.5]).probabilities(np.array([[1]]), np.array([2]))
    assert (p[0, 0, 0], matched[0, 0]) == (1, 0.5)


@pytest.mark.parametrize("width", [1, 2, 5, 6, 10, 11, 31, 32, 33])
def test_rows_at_the_limit_between_narrow_and_wide(width: int) -> None:
    """Short rows store no counts if each is 1; the widths and totals of wide rows are stored apart."""
    text = np.stack([np.zeros(width, dtype=int), np.arange(width)], axis=1).reshape(-1)
    query = open_query([[build_columns(count_streams([text], orders=(2,), vocab_size=50), 50)]], [1.0])
    p, matched = query.probabilities(np.array([[0]]), np.arange(50))
    assert matched[0, 0] == 1
    assert p[0, 0].sum() == pytest.approx(1)
    assert np.count_nonzero(p[0, 0]) == width


def test_many_wide_rows_and_many_candidates() -> None:
    """Thousands of successors, more candidates than fit one byte, more ids than one context has."""
    random = np.random.default_rng(3)
    text = np.where(random.random(60_000) < 0.3, 5, random.integers(0, 5000, size=60_000))
    runs = [count_streams([part], orders=(2, 3), vocab_size=5000) for part in np.split(text, 2)]
    pool = [build_columns(run, 5000) for run in runs]
    contexts, candidates = np.array([[9, 5], [5, 5], [5, 77]]), random.integers(-5, 70_000, size=900)
    query, expected = open_query([pool], [1.0]), Expected([counted(pool)], [1.0], 5000, contexts)
    for got, wanted in zip(
        query.probabilities(contexts, candidates), expected.probabilities(candidates), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)
    assert query.successors(contexts, 700).tolist() == expected.successors(700)


def test_threads_do_not_interfere_and_results_stay_valid(pool) -> None:
    query = open_query([pool, pool], [0.5, 0.5])

    def ask(i: int) -> tuple[np.ndarray, np.ndarray]:
        return query.probabilities(CONTEXTS[i : i + 3], CANDIDATES)[0], query.successors(CONTEXTS[i : i + 3], 5)

    results = [ask(i) for i in range(200)]
    copies = [(p.copy(), ids.copy()) for p, ids in results]

    def again(_: int) -> bool:
        return all(
            all(map(np.array_equal, now, expected))
            for now, expected in zip(map(ask, range(200)), copies, strict=True)
        )

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(again, range(8)))
    assert all(all(map(np.array_equal, mine, copy)) for mine, copy in zip(results, copies, strict=True))


def test_arrays_of_other_types_and_strides_are_accepted(pool) -> None:
    query = open_query([pool], [1.0])
    p, _ = query.probabilities(CONTEXTS[:4], CANDIDATES)
    strided = np.repeat(CONTEXTS[:4], 2, axis=1)[:, ::2].astype(np.int32)
    np.testing.assert_array_equal(query.probabilities(strided, CANDIDATES.astype(np.uint16))[0], p)


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF and nothing more"])
def test_a_file_that_is_not_a_library_is_refused_with_the_remedy(tmp_path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "libkernel.so").write_bytes(content)
    with pytest.raises(UserError, match=r"missing or of another version .*libkernel.*; install spd-lsp again"):
        open_library(tmp_path / "libkernel.so")


def test_a_kernel_of_another_source_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kernel, "SOURCE_FILES", [tmp_path / "kernel.c"])
    (tmp_path / "kernel.c").write_text("/* edited */")
    with pytest.raises(UserError, match=r"was not compiled from the kernel.c beside it; install spd-lsp again"):
        open_library(kernel.LIBRARY)


def test_c_and_python_share_their_constants() -> None:
    source = (ROOT / PACKAGE / "rows.h").read_text(encoding="utf-8")
    constants = dict(re.findall(r"^ +([A-Z_]+) = (\d+)", source, flags=re.MULTILINE))
    named = ("COUNT_OVERFLOW", "SHAPE_BITS", "ONES", "WIDE", "BLOCK_ROWS", "POINTERS")
    shared = {name: getattr(table_format, name) for name in named}
    shared |= {name: getattr(query_module, name) for name in ("ORDER_COUNT", "SLICE_WORDS")}
    assert constants == {name: str(value) for name, value in shared.items()}
