"""Opening a model: unusable ones are named, large ones run on the CPU, and no foreign code runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from transformers import AutoModelForCausalLM as Auto
from transformers import (
    BartConfig,
    GraniteMoeHybridConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    T5Config,
)

from ngram_builders.errors import UserError
from spd_lsp.models.load import load
from tests.models.networks import SMALL

LLAMA = LlamaConfig(**SMALL)


@pytest.mark.parametrize(
    "config",
    [
        MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1),
        Lfm2Config(**SMALL, layer_types=["conv", "full_attention"]),
        GraniteMoeHybridConfig(**SMALL, layer_types=["mamba", "attention"], mamba_n_heads=4),
    ],
    ids=lambda config: config.model_type,
)
def test_a_model_with_a_state_is_refused_by_name_before_it_is_loaded(tmp_path, config):
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"is a {config.model_type} model, whose state cannot be rolled back"):
        load(tmp_path, "cpu")


@pytest.mark.parametrize(("method", "package"), [("gptq", "optimum"), ("awq", "gptqmodel"), ("fp8", "accelerate")])
def test_quantized_weights_are_refused_with_the_packages_that_read_them(tmp_path, method, package):
    if find_spec(package):
        pytest.skip(f"{package} is installed")
    config = LlamaConfig(**SMALL, quantization_config={"quant_method": method, "bits": 4})
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"needs packages that are not installed \(.*{package}.*as a GGUF file"):
        load(tmp_path, "cpu")


@pytest.mark.parametrize("config", [T5Config(vocab_size=96), BartConfig(vocab_size=96)])
def test_a_model_that_is_not_causal_is_refused(tmp_path, config):
    config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"holds a (t5|bart) model, which is not a causal language model"):
        load(tmp_path, "cpu")


def test_a_model_with_code_of_its_own_is_refused_and_the_code_not_run(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}})
    )
    (tmp_path / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UserError, match="without running the model's own code"):
        load(tmp_path, "cpu")


def test_damaged_weights_are_named(tmp_path):
    network = Auto.from_config(LLAMA)
    network.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match="could not be opened"):
        load(tmp_path, "cpu")


def test_a_device_that_is_not_there_is_named(tmp_path):
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UserError, match=f"device '{missing}' is not available here, found: .*cpu"):
        load(tmp_path, missing)


def on_cuda(monkeypatch, free):
    """Make believe that there is a GPU with so much free memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 1 << 40))


@pytest.fixture
def saved(tmp_path):
    Auto.from_config(LLAMA).save_pretrained(tmp_path)
    return tmp_path


def test_a_model_too_large_for_the_gpu_runs_on_the_cpu_and_reports_it(monkeypatch, saved):
    on_cuda(monkeypatch, free=1000)
    reports = []
    assert str(load(saved, "auto", reports.append).device) == "cpu"
    assert "cuda has 0.0 GiB of free memory" in reports[1]
    assert reports[1].endswith("using the CPU")


def test_a_gpu_chosen_by_name_is_not_replaced(monkeypatch, saved):
    on_cuda(monkeypatch, free=1000)
    with pytest.raises(UserError, match=r"cuda has 0\.0 GiB of free memory"):
        load(saved, "cuda")


def test_a_model_that_needs_torch_is_refused_without_it(tmp_path, monkeypatch):
    """As after a plain installation, which has what the starter model needs."""
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"needs torch, which is not installed; run: .*spd-lsp\[models\]"):
        load(tmp_path)


def test_compiled_code_is_kept_where_no_other_user_can_put_some(saved, tmp_path):
    """In a new process: torch notes its own choice when it is imported."""
    program = f"""
from pathlib import Path
import os, platformdirs
from spd_lsp.models.load import load
load(Path({str(saved)!r}), "cpu")
from torch._inductor.runtime.cache_dir_utils import cache_dir
print(Path(cache_dir()).is_relative_to(platformdirs.user_cache_path("spd-lsp", appauthor=False)))
"""
    env = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
