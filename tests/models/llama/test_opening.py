"""A GGUF file that cannot be used is refused in a sentence; one that ends the process is left alone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.models.llama import engine, gguf_file, library
from spd_lsp.models.llama.gguf_file import describe
from spd_lsp.models.llama.library import load_library
from spd_lsp.models.load import load, load_vocabulary
from tests.models.llama.gguf_files import write_gguf

pytestmark = pytest.mark.usefixtures("needs_llama")


# What `llama_*_default_params` give, as far as it tells layouts apart.
MODEL_DEFAULTS = {
    "n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "main_gpu": 0,
    "vocab_only": False, "check_tensors": False, "use_extra_bufts": True, "no_host": False,
}  # fmt: skip
CONTEXT_DEFAULTS = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "rope_scaling_type": -1, "flash_attn_type": -1,
    "yarn_ext_factor": -1.0, "defrag_thold": -1.0, "type_k": 1, "type_v": 1, "embeddings": False,
    "offload_kqv": True, "no_perf": True, "op_offload": True, "swa_full": True, "kv_unified": False,
}  # fmt: skip


@pytest.fixture
def file(gguf_folder):
    return gguf_folder / "Q8_0.gguf"


def test_default_settings_are_those_of_the_declared_structures():
    """Another version of xllamacpp may have others: then compare the structures with its `llama.h`."""
    model = load_library().llama_model_default_params()
    context = load_library().llama_context_default_params()
    assert {name: getattr(model, name) for name in MODEL_DEFAULTS} == MODEL_DEFAULTS
    assert {name: getattr(context, name) for name in CONTEXT_DEFAULTS} == CONTEXT_DEFAULTS


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(library, "version", lambda name: "2026.11.1")
    with pytest.raises(UserError, match=r"xllamacpp 2026\.11\.1 may have other structures"):
        load_library.__wrapped__()


@pytest.mark.skipif(sys.platform != "linux", reason="mapped files are read from /proc")
def test_large_weights_are_mapped_and_compute_the_same(file, monkeypatch):
    def is_mapped() -> bool:
        return file.name in Path("/proc/self/maps").read_text(encoding="utf-8")

    expected = load(file).prefill([1, 2, 3])
    assert not is_mapped()
    monkeypatch.setattr(gguf_file, "_READ_BYTES", 0)
    engine = load(file)
    assert is_mapped()
    assert np.array_equal(engine.prefill([1, 2, 3]), expected)


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: b"GGU", lambda data: data[:1000], bytes],
    ids=["empty", "short", "cut", "cut later"],
)
def test_a_damaged_header_is_refused(damage, file, tmp_path):
    other = tmp_path / "other.gguf"
    other.write_bytes(damage(file.read_bytes()[:4096]))
    for use in (load, load_vocabulary, describe):
        with pytest.raises(UserError, match=r"other\.gguf.*; fetch"):
            use(other)


def test_a_file_cut_off_in_its_weights_is_refused(file, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-100])
    for use in (load, load_vocabulary):
        with pytest.raises(
            UserError, match=r"llama.cpp cannot open .*cut.gguf: .*tensor .* not within the file bounds"
        ):
            use(cut)


@pytest.mark.parametrize(
    "over, message",
    [
        ({"key_heads": 3}, "llama.cpp cannot open .*m.gguf: .*attn_k.weight.* has wrong shape"),
        ({"context": 0}, "m.gguf does not state its context length"),
        ({"architecture": "bert"}, "m.gguf"),
    ],
)
def test_numbers_that_do_not_fit_the_weights_are_refused(over, message, tmp_path):
    with pytest.raises(UserError, match=message):
        load(write_gguf(tmp_path / "m.gguf", kind="Q8_0", **over))


def test_a_file_that_ends_the_process_is_left_alone_afterwards(tmp_path):
    file = write_gguf(tmp_path / "m.gguf", kind="Q8_0", layers=0)
    program = "import sys; from pathlib import Path; from spd_lsp.models.load import load; load(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True)
    assert done.returncode < 0
    assert "GGML_ASSERT" in done.stderr
    with pytest.raises(UserError, match=r"the model m\.gguf ended spd-lsp when it was last opened"):
        load(file)


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "gemma"])
def test_a_mixture_of_a_token_with_itself_is_read_as_the_token(architecture, tmp_path):
    """Gemma scales the embeddings of tokens."""
    model = load(write_gguf(tmp_path / "m.gguf", architecture, "F32"))
    expected = model.forward([5, 6, 7], model.new_cache())[-1]
    model.prefill([5, 6])
    mixed = model.step([7, 7], np.array([0.5, 0.5]))
    np.testing.assert_allclose(mixed, expected, atol=0.05)


def test_a_file_larger_than_the_free_memory_is_refused_before_it_is_read(file, monkeypatch):
    monkeypatch.setattr(engine, "free_memory", lambda: 1 << 20)
    monkeypatch.setattr(library, "model_settings", lambda *options: pytest.fail("opened"))
    with pytest.raises(UserError, match=r"Q8_0.gguf takes 0.0 GiB, but this machine has 0.0 GiB of free memory"):
        load(file)
