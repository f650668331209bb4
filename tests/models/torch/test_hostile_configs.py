"""A model's config.json chooses the network's shape: no code, no kernel, no file elsewhere, no address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils.import_utils import KERNELS_MIN_VERSION

from spd_lsp.models.load import load

SMALL = LlamaConfig(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
)
KERNEL = "kernels-community/vllm-flash-attn3"
REQUESTS = [
    {"attn_implementation": KERNEL},
    {"_attn_implementation": KERNEL},
    {"_attn_implementation_internal": KERNEL},
    {"attn_implementation": {"": KERNEL, "text_config": KERNEL}},
    {"attn_implementation": "flash_attention_2"},
    {"attn_implementation": "paged|flash_attention_3"},
    {"experts_implementation": "sonicmoe", "_experts_implementation": "deepgemm"},
    {"auto_map": {"AutoConfig": "evil/code--code.C", "AutoModelForCausalLM": "evil/code--code.M"}},
    {"auto_map": {"AutoModelForCausalLM": "code.M"}},
    {"configuration_files": ["config.4.0.0.json"]},
    {"transformers_weights": "other.safetensors"},
    {
        "extra_files": ["../other.safetensors"],
        "sub_configs": {"a": "b"},
        "fusion_config": {"patch_embeddings": True},
    },
    {"_name_or_path": "evil/model", "_commit_hash": "0" * 40, "custom_pipelines": {"x": {"impl": "code.P"}}},
    {"use_kernels": True, "kernel_config": {"kernel_mapping": {"RMSNorm": f"{KERNEL}:RMSNorm"}}},
]

# A stand-in for the package that fetches kernels; every folder is opened while an audit hook watches. The
# environment leaves the network open.
GUARDED = """
import importlib.metadata, socket, sys
from pathlib import Path

asked = []

def guard(event, values):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        asked.append(event)
        raise SystemExit(f"asked the network: {values}")

sys.addaudithook(guard)

import torch
from ngram_builders.errors import UserError
from spd_lsp.models.load import load

for folder in sys.argv[1:]:
    try:
        assert len(load(Path(folder), "cpu").prefill([4, 5, 6])) == 96
        print("opened", Path(folder).name)
    except UserError as error:
        print("refused", Path(folder).name, error)
    assert not asked, asked
assert "code" not in sys.modules and "kernels_were_fetched" not in sys.modules
"""
KERNELS = """
import socket, sys

def __getattr__(name):  # whatever transformers takes of it
    if name.startswith("__"):
        raise AttributeError(name)
    def ask(*arguments, **options):
        if name != "get_kernel":
            return lambda cls: cls
        sys.modules["kernels_were_fetched"] = sys
        socket.create_connection(("192.0.2.1", 443), timeout=1)
    return ask
"""


def saved(folder: Path, request: dict[str, object]) -> Path:
    """A small model whose config.json requests something."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SMALL).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | request), encoding="utf-8")
    (folder / "code.py").write_text("raise SystemExit('code of the folder ran')", encoding="utf-8")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    return folder


def guarded(site: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    """Open folders in a process that must not reach the network, where kernels seem to be installed."""
    (site / "kernels").mkdir(parents=True)
    (site / "kernels" / "__init__.py").write_text(KERNELS, encoding="utf-8")
    (site / f"kernels-{KERNELS_MIN_VERSION}.dist-info").mkdir()
    about = f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n"
    (site / f"kernels-{KERNELS_MIN_VERSION}.dist-info" / "METADATA").write_text(about, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
    environment |= {"PYTHONPATH": str(site), "HF_HOME": str(site / "hub"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", GUARDED, *map(str, folders)]
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_nothing_in_a_config_reaches_the_network_or_runs_code(tmp_path: Path) -> None:
    folders = [saved(tmp_path / f"request-{number}", request) for number, request in enumerate(REQUESTS)]
    found = guarded(tmp_path / "site", *folders)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.count("refused") == 3  # two name files that are not there, one what cannot be set


def test_requests_change_nothing_of_what_is_computed(tmp_path: Path) -> None:
    plain = load(saved(tmp_path / "plain", {}), "cpu").prefill([4, 5, 6])
    folder = saved(tmp_path / "requesting", {"attn_implementation": KERNEL, "auto_map": {"AutoConfig": "code.C"}})
    assert load(folder, "cpu").prefill([4, 5, 6]).tolist() == plain.tolist()
