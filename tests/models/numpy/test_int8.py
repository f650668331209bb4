"""Products in 8 bits: the compiled kernel gives NumPy's numbers, bit for bit, by every instruction set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import MODEL_KERNEL
from ngram_builders.table.shared_library import KERNEL_VARIABLE
from spd_lsp.models.numpy import int8 as int8_module
from spd_lsp.models.numpy import model_kernel
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.decoder import Dense, FineInt8, Int8, NumpyEngine
from spd_lsp.models.numpy.int8 import engine_in_8_bits, in_8_bits, to_int8
from spd_lsp.models.numpy.model_kernel import ModelKernel, finest, multiply_in_numpy, open_kernel, quantize_rows
from spd_lsp.models.self_test import MAX_DIVERGENCE, kl_divergence
from tests.models.networks import FAST, random_network

ROOT = Path(__file__).parents[3]
RANDOM = np.random.default_rng(0)
SHAPES = [(4, 1), (7, 15), (576, 192), (13, 200), (64, 896), (4, 64)]  # outputs, inputs


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> ModelKernel:
    """The kernel of the source as it is now, whatever is installed."""
    path, failure = compile_kernel.compile_kernel(ROOT, tmp_path_factory.mktemp("kernel"), MODEL_KERNEL)
    if not path:
        pytest.skip(failure)
    kernel = open_kernel(path)
    if not kernel.instruction_set:
        pytest.skip("this processor has none of the kernel's instructions")
    return kernel


def instruction_sets(kernel: ModelKernel) -> list[ModelKernel]:
    """The kernel by each set that this processor has: all with AVX-512 have AVX2."""
    best = kernel.instruction_set
    return [replace(kernel, instruction_set=each) for each in ((1, 2) if best == 2 else (best,))]


def product(outputs: int, inputs: int, kernel: ModelKernel, bias: bool = True, kind: type[Int8] = Int8) -> Int8:
    weight = RANDOM.normal(size=(outputs, inputs)).astype(np.float32)
    int8 = kind(*quantize_rows(weight), RANDOM.normal(size=outputs).astype(np.float32) if bias else None)
    int8.kernel = kernel
    return int8


def in_numpy(int8: Int8, x: np.ndarray) -> np.ndarray:
    return multiply_in_numpy(x, int8.values, int8.scales, int8.bias, int8.largest)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [Int8, FineInt8])
def test_the_kernel_equals_numpy_bit_for_bit(compiled, shape, bias, kind) -> None:
    for kernel in instruction_sets(compiled):
        int8 = product(*shape, kernel, bias, kind)
        for rows in (1, 2, 3, 4, 5, 8, 9, 16, 17, 19, 128):
            x = RANDOM.normal(size=(rows, shape[1])).astype(np.float32)
            x[0, 0] = 0
            np.testing.assert_array_equal(int8(x), in_numpy(int8, x))


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_fewer_outputs_than_the_kernel_computes_at_once_are_left_to_numpy(outputs) -> None:
    int8 = Int8(*quantize_rows(RANDOM.normal(size=(outputs, 70)).astype(np.float32)))
    x = RANDOM.normal(size=(3, 70)).astype(np.float32)
    assert int8.kernel is None
    np.testing.assert_array_equal(int8(x), in_numpy(int8, x))


@pytest.mark.parametrize("bias", [True, False])
def test_a_fine_product_is_exact_but_for_its_weights(compiled, bias) -> None:
    int8 = product(24, 70, compiled, bias)
    fine = FineInt8(int8.values, int8.scales, int8.bias)
    fine.kernel = compiled
    x = RANDOM.normal(size=(5, 70)).astype(np.float32)
    exact = Dense((int8.values * int8.scales[:, None]).T, int8.bias)(x)
    assert np.abs(fine(x) - exact).max() < 0.02 * np.abs(int8(x) - exact).max()


@pytest.mark.parametrize("kind", [Int8, FineInt8])
@pytest.mark.parametrize("inputs", [192, 1032, 1033, 8960, 100_003])
def test_the_largest_sums_are_exact(compiled, kind, inputs) -> None:
    """Pairs of products overflow 16 bits, which the widespread instruction for bytes would saturate."""
    for kernel in instruction_sets(compiled):
        int8 = kind(np.full((4, inputs), -128, np.int8), np.ones(4, np.float32))
        int8.kernel = kernel
        for sign in (1, -1):
            x = np.full((3, inputs), sign * int8.largest, np.float32)
            np.testing.assert_array_equal(
                int8(x), np.full((3, 4), np.float32(-128 * int8.largest * inputs * sign))
            )


def test_a_fine_product_has_15_bits_or_as_many_as_its_length_allows() -> None:
    assert [finest(inputs) for inputs in (192, 1032, 2048, 8960, 10**6)] == [16256, 16256, 8191, 1872, 127]


def test_a_row_of_zeros_gives_the_bias_and_a_nan_stays_one(compiled) -> None:
    int8 = product(12, 70, compiled)
    np.testing.assert_array_equal(int8(np.zeros((2, 70), np.float32)), [int8.bias] * 2)
    x = np.ones((2, 70), np.float32)
    x[1, 69] = np.nan
    assert np.isfinite(int8(x)[0]).all()
    assert np.isnan(int8(x)[1]).all()


def test_rows_of_another_memory_layout_are_accepted(compiled) -> None:
    int8 = product(16, 64, compiled)
    x = RANDOM.normal(size=(64, 5)).astype(np.float32).T
    np.testing.assert_array_equal(int8(x), in_numpy(int8, np.ascontiguousarray(x)))


def test_weights_are_read_where_they_are_and_nothing_beyond(compiled, tmp_path) -> None:
    """From a mapped file, at an odd place, up to its last byte: no copy, and no page after it is touched."""
    path = tmp_path / "weights"
    size = 2 * 4096
    np.zeros(size, np.int8).tofile(path)
    values = np.memmap(path, np.int8, mode="c")[size - 12 * 67 :].reshape(12, 67)
    values[:] = RANDOM.integers(-127, 128, (12, 67))
    int8 = Int8(values, np.ones(12, np.float32))
    int8.kernel = compiled
    x = RANDOM.normal(size=(6, 67)).astype(np.float32)
    np.testing.assert_array_equal(int8(x), in_numpy(int8, x))
    assert int8.weights.values == values.ctypes.data


def test_products_are_close_to_those_of_floats(compiled) -> None:
    dense = Dense(RANDOM.normal(size=(192, 96)).astype(np.float32), np.ones(96, np.float32))
    x = RANDOM.normal(size=(5, 192)).astype(np.float32)
    found, exact = to_int8(dense)(x), dense(x)
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


def test_a_kernel_with_wrong_results_is_detected(tmp_path) -> None:
    folder = tmp_path / MODEL_KERNEL.package
    folder.mkdir(parents=True)
    for source in MODEL_KERNEL.source_paths(ROOT):
        text = source.read_text(encoding="utf-8")
        (folder / source.name).write_text(text.replace("rows->scales[m + r])", "0.5f)"), encoding="utf-8")
    path, failure = compile_kernel.compile_kernel(tmp_path, tmp_path, MODEL_KERNEL)
    if not path:
        pytest.skip(failure)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_kernel, "_SOURCES", [tmp_path / "none"])
        with pytest.raises(ValueError, match="wrong results"):
            open_kernel(path)


def test_a_kernel_of_another_source_is_not_used(tmp_path, monkeypatch) -> None:
    path, failure = compile_kernel.compile_kernel(ROOT, tmp_path, MODEL_KERNEL)
    if not path:
        pytest.skip(failure)
    monkeypatch.setattr(model_kernel, "_SOURCES", [tmp_path / "model_kernel.c"])
    (tmp_path / "model_kernel.c").write_text("/* edited */")
    with pytest.raises(ValueError, match=r"was not compiled from the model_kernel\.c beside it"):
        open_kernel(path)


def test_the_switch_turns_the_kernel_off_with_the_same_results(compiled, monkeypatch) -> None:
    int8 = product(8, 33, compiled)
    x = RANDOM.normal(size=(3, 33)).astype(np.float32)
    monkeypatch.setenv(KERNEL_VARIABLE, "0")
    without = Int8(int8.values, int8.scales, int8.bias)
    assert without.kernel is None
    np.testing.assert_array_equal(int8(x), without(x))


def test_c_and_python_share_their_instruction_sets() -> None:
    source = MODEL_KERNEL.source_paths(ROOT)[0].read_text(encoding="utf-8")
    line = next(line for line in source.splitlines() if line.startswith("enum { NONE"))
    names = line.partition("{")[2].partition("}")[0].split(",")
    assert [name.strip() for name in names] == ["NONE", "AVX2", "AVX512_VNNI", "NEON_DOT"]
    assert len(model_kernel.INSTRUCTION_SETS) == len(names)


@pytest.mark.parametrize("name", ["qwen2", "llama, tied"])
def test_a_decoder_in_8_bits_predicts_nearly_the_same(name) -> None:
    decoder = convert(random_network(FAST[name]))
    exact, engine = NumpyEngine(decoder), NumpyEngine(in_8_bits(decoder))
    assert all(isinstance(linear, Int8) for linear in engine.decoder.linears)
    ids = list(range(20))
    expected, found = (each.forward_ids([ids], each.new_cache())[0] for each in (exact, engine))
    assert 0 < kl_divergence(found, expected) < MAX_DIVERGENCE


def test_a_decoder_that_8_bits_would_change_keeps_its_floats(monkeypatch) -> None:
    monkeypatch.setattr(int8_module, "MAX_DIVERGENCE", 1e-9)
    exact, reports = NumpyEngine(convert(random_network(FAST["qwen2"]))), []
    assert engine_in_8_bits(exact, reports.append) is exact
    said = [line.partition(" by ")[0] for line in reports]
    assert said == ["runs in 32 bits: in 8 bits, predictions differ"] * bool(model_kernel.load_kernel())


def test_an_embedding_that_was_stored_in_half_precision_is_kept_so_and_others_are_not() -> None:
    decoder = convert(random_network(FAST["llama, tied"]))
    assert in_8_bits(decoder).embedding.dtype == np.float32
    decoder.embedding[:] = decoder.embedding.astype(np.float16)
    compact = in_8_bits(decoder).embedding
    assert compact.dtype == np.float16
    np.testing.assert_array_equal(compact, decoder.embedding)
