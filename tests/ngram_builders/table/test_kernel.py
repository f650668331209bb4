"""The compiled kernel says what numpy says, bears any damage, and is done without where it cannot be had."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import PACKAGE, SOURCES
from ngram_builders.ngrams import count_streams
from ngram_builders.table import format as table_format
from ngram_builders.table import kernel, numpy_query, shared_library
from ngram_builders.table.kernel import CompiledQuery
from ngram_builders.table.query import open_query
from ngram_builders.table.shared_library import KERNEL_VARIABLE, open_library
from ngram_builders.table.writer import build_columns
from tests.ngram_builders.pools import Case, cases

ROOT = Path(kernel.__file__).parents[2]
TRAPS = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
TEXT = np.random.default_rng(7).integers(0, 12, size=4000)
CONTEXTS = np.stack([TEXT[i : i + 5] for i in range(0, 3000, 7)])
CANDIDATES = np.arange(15)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The kernel of the source as it is now, whatever is installed."""
    path, failure = compile_kernel.compile_kernel(ROOT, tmp_path_factory.mktemp("kernel"))
    if not path:
        pytest.skip(failure)
    return open_library(path)


@pytest.fixture
def fresh(monkeypatch):
    """Nothing loaded yet, and nothing left loaded."""
    monkeypatch.delenv(KERNEL_VARIABLE, raising=False)
    kernel._load_checked.cache_clear()
    yield
    kernel._load_checked.cache_clear()


@pytest.fixture
def pool():
    return [build_columns(count_streams([TEXT], orders=(2, 3, 4), vocab_size=12), 12)]


def in_python(code: str, **environment: str) -> str:
    """What another Python says."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@given(case=cases())
@settings(max_examples=400, deadline=None)
@pytest.mark.slow
def test_the_kernel_equals_numpy_bit_for_bit(compiled, case: Case) -> None:
    pools = case.columns()
    asked = CompiledQuery(compiled, pools, case.weights)
    p, matched = asked.probabilities(case.contexts, case.candidates)
    expected_p, expected_matched = numpy_query.probabilities(pools, case.weights, case.contexts, case.candidates)
    np.testing.assert_array_equal(matched, expected_matched)
    np.testing.assert_array_equal(p, expected_p)
    ids = asked.successors(case.contexts, case.n)
    np.testing.assert_array_equal(ids, numpy_query.successors(pools, case.contexts, case.n))
    assert ids.dtype == np.int64


@pytest.mark.slow
@given(case=cases(), seed=st.integers(0, 1000), share=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=300, deadline=None)
def test_both_sides_in_one_call_equal_numpy(compiled, case: Case, seed: int, share: float) -> None:
    pools = case.columns()
    random = np.random.default_rng(seed)
    p = np.where(random.random(case.vocab_size) < share, -1, random.integers(0, 9, case.vocab_size) / 64)
    p = p.astype(np.float32)  # with many equals
    weights = random.random((len(pools), 9, 8)) * np.tri(9, 8, -1) / 8  # of each pool its own
    query = CompiledQuery(compiled, pools, case.weights)
    ids, p_f = query.mix_candidates(case.contexts, p, case.n, weights)
    expected_ids, expected = numpy_query.mix_candidates(pools, case.weights, case.contexts, p, case.n, weights)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(p_f, expected, rtol=1e-12, atol=1e-15)
    candidates = np.unique(case.candidates)
    likely = random.random((len(case.contexts), len(candidates)))
    mixed = query.mix(case.contexts, candidates, likely, weights)
    expected = numpy_query.mix(pools, case.weights, case.contexts, candidates, likely, weights)
    np.testing.assert_allclose(mixed, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("asked", ["compiled", "numpy"])
def test_both_sides_are_the_top_tokens_of_each_mixed_by_the_longest_match(compiled, asked, pool) -> None:
    query = CompiledQuery(compiled, [pool], [1.0]) if asked == "compiled" else numpy_query
    given = () if asked == "compiled" else ([pool], [1.0])
    p = np.zeros(12, dtype=np.float32)
    p[[3, 7, 9]] = 0.5, 0.3, 0.2
    p[9] = -1
    contexts = np.array([TEXT[:5], [-1] * 5])
    weights = np.zeros((9, 8))
    weights[3, :3] = 0.1, 0.2, 0.3
    ids, p_f = query.mix_candidates(*given, contexts, p, 2, weights)
    theirs = numpy_query.successors([pool], contexts, 2)
    assert set(ids.tolist()) == {3, 7, *theirs.tolist()} - {9}
    p_o, _ = numpy_query.probabilities([pool], [1.0], contexts, ids)
    np.testing.assert_allclose(p_f[0], 0.4 * p[ids] + weights[3] @ p_o[0])
    np.testing.assert_allclose(p_f[1], p[ids])  # nothing is known after nothing


@pytest.mark.parametrize("width", [1, 2, 5, 6, 10, 11, 31, 32, 33])
def test_rows_at_the_limit_between_narrow_and_wide(compiled, width: int) -> None:
    """Short rows store no counts if each is 1; the widths and totals of wide rows are stored apart."""
    text = np.stack([np.zeros(width, dtype=int), np.arange(width)], axis=1).reshape(-1)
    asked = CompiledQuery(
        compiled, [[build_columns(count_streams([text], orders=(2,), vocab_size=50), 50)]], [1.0]
    )
    p, matched = asked.probabilities(np.array([[0]]), np.arange(50))
    assert matched[0, 0] == 1
    assert p[0, 0].sum() == pytest.approx(1)
    assert np.count_nonzero(p[0, 0]) == width


def test_many_wide_rows_and_many_candidates(compiled) -> None:
    """Thousands of successors, more candidates than fit one byte, more ids than one context has."""
    random = np.random.default_rng(3)
    text = np.where(random.random(60_000) < 0.3, 5, random.integers(0, 5000, size=60_000))
    pools = [
        [build_columns(count_streams([part], orders=(2, 3), vocab_size=5000), 5000) for part in np.split(text, 2)]
    ]
    contexts, candidates = np.array([[9, 5], [5, 5], [5, 77]]), random.integers(-5, 70_000, size=900)
    asked = CompiledQuery(compiled, pools, [1.0])
    for got, expected in zip(
        asked.probabilities(contexts, candidates),
        numpy_query.probabilities(pools, [1.0], contexts, candidates),
        strict=True,
    ):
        np.testing.assert_array_equal(got, expected)
    for n in (1, 300, 5000):
        np.testing.assert_array_equal(asked.successors(contexts, n), numpy_query.successors(pools, contexts, n))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected by mprotect")
@pytest.mark.parametrize("seed", range(2))
def test_damage_gives_wrong_numbers_but_no_fault(compiled, tmp_path, monkeypatch, seed) -> None:
    """Every read beyond an array, every write beyond the kernel's memory, and every undefined operation would end
    the process."""
    monkeypatch.setattr(compile_kernel, "COMPILER_FLAGS", (*compile_kernel.COMPILER_FLAGS, *TRAPS))
    path, _ = compile_kernel.compile_kernel(ROOT, tmp_path)
    command = [sys.executable, "-m", "tests.ngram_builders.damage", path or compiled._name, str(seed), "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


def test_threads_do_not_interfere(compiled, pool) -> None:
    asked = CompiledQuery(compiled, [pool, pool], [0.5, 0.5])
    expected = [
        (asked.probabilities(CONTEXTS[i : i + 3], CANDIDATES)[0], asked.successors(CONTEXTS[i : i + 3], 5))
        for i in range(200)
    ]

    def again(_: int) -> bool:
        return all(
            np.array_equal(asked.probabilities(CONTEXTS[i : i + 3], CANDIDATES)[0], p)
            and np.array_equal(asked.successors(CONTEXTS[i : i + 3], 5), ids)
            for i, (p, ids) in enumerate(expected)
        )

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(again, range(8)))


def test_a_result_stays_valid_after_its_query_and_the_next_result(pool) -> None:
    query = open_query([pool], [1.0])
    p, matched = query.probabilities(CONTEXTS[:2], CANDIDATES)
    before = p.copy(), matched.copy()
    query.probabilities(CONTEXTS[2:9], CANDIDATES)
    del query
    np.testing.assert_array_equal(p, before[0])
    np.testing.assert_array_equal(matched, before[1])


def test_arrays_of_other_types_and_strides_are_accepted(compiled, pool) -> None:
    asked = CompiledQuery(compiled, [pool], [1.0])
    p, _ = asked.probabilities(CONTEXTS[:4], CANDIDATES)
    strided = np.repeat(CONTEXTS[:4], 2, axis=1)[:, ::2].astype(np.int32)
    np.testing.assert_array_equal(asked.probabilities(strided, CANDIDATES.astype(np.uint16))[0], p)


def test_the_switch_turns_the_kernel_off_with_the_same_results(pool, monkeypatch) -> None:
    said = open_query([pool], [1.0]).probabilities(CONTEXTS, CANDIDATES)
    monkeypatch.setenv(KERNEL_VARIABLE, "0")
    plain = open_query([pool], [1.0])
    assert not isinstance(plain, CompiledQuery)
    assert kernel.load_kernel().reason == "SPD_LSP_KERNEL=0 is set"
    for with_kernel, without in zip(said, plain.probabilities(CONTEXTS, CANDIDATES), strict=True):
        np.testing.assert_array_equal(with_kernel, without)


def test_the_installed_kernel_is_in_use_or_the_reason_is_known() -> None:
    said = in_python("from ngram_builders.table import kernel; print(kernel.load_kernel().reason, end='')")
    assert (said == "") == (kernel.load_kernel().library is not None)
    assert "kernel" in said or not said or "compiled" in said


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "not compiled"), (b"", "libkernel"), (b"\x7fELF and nothing more", "libkernel")]
)
def test_a_file_that_is_not_a_library_is_ignored(
    fresh, tmp_path, monkeypatch, caplog, pool, content: bytes | None, reason: str
) -> None:
    """One line in the log where it is broken, none where it was never compiled; the answers are numpy's."""
    monkeypatch.setattr(shared_library, "LIBRARY", tmp_path / "libkernel.so")
    if content is not None:
        (tmp_path / "libkernel.so").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        queries = [open_query([pool], [1.0]) for _ in range(3)]
    assert not any(isinstance(query, CompiledQuery) for query in queries)
    assert reason in kernel.load_kernel().reason
    assert len(caplog.records) == (content is not None)
    assert queries[0].probabilities(CONTEXTS, CANDIDATES)[0].any()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0xC4CEB9FE1A85EC53u", "0xC4CEB9FE1A85EC55u"),  # no context is found
        ("share * (likely", "0.99 * share * (likely"),
        ("a.token > b.token", "a.token < b.token"),
        ("count < COUNT_OVERFLOW", "count <= COUNT_OVERFLOW"),
    ],
)
def test_a_kernel_with_wrong_results_is_detected(compiled, tmp_path, before: str, after: str) -> None:
    (tmp_path / PACKAGE).mkdir(parents=True)
    sources = {name: (ROOT / PACKAGE / name).read_text(encoding="utf-8") for name in SOURCES}
    assert sum(source.count(before) for source in sources.values()) == 1
    for name, source in sources.items():
        (tmp_path / PACKAGE / name).write_text(source.replace(before, after), encoding="utf-8")
    path, failure = compile_kernel.compile_kernel(tmp_path, tmp_path)
    assert path, failure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_library, "SOURCE_FILES", [tmp_path / "none"])
        library = open_library(path)
    with pytest.raises(ValueError, match="wrong results"):
        kernel.check_kernel(library)


def test_c_and_python_share_their_constants() -> None:
    source = (ROOT / PACKAGE / "rows.h").read_text(encoding="utf-8")
    constants = dict(re.findall(r"^ +([A-Z_]+) = (\d+)", source, flags=re.MULTILINE))
    constants |= dict(re.findall(r"^enum { ([A-Z_]+) = (\d+) };", source, flags=re.MULTILINE))
    named = ("COUNT_OVERFLOW", "SHAPE_BITS", "ONES", "WIDE", "BLOCK_ROWS", "POINTERS")
    shared = {name: getattr(table_format, name) for name in named}
    shared |= {"ORDER_COUNT": numpy_query.ORDER_COUNT, "SLICE_WORDS": kernel._SLICE_WORDS}
    assert constants == {name: str(value) for name, value in shared.items()}


def test_a_kernel_of_another_source_is_not_used(compiled, fresh, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shared_library, "LIBRARY", Path(compiled._name))
    assert kernel.load_kernel().reason == ""
    kernel._load_checked.cache_clear()
    monkeypatch.setattr(shared_library, "SOURCE_FILES", [tmp_path / "kernel.c"])
    (tmp_path / "kernel.c").write_text("/* edited */")
    assert "was not compiled from the kernel.c beside it" in kernel.load_kernel().reason
