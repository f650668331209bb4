"""A model's folder chooses the network's shape: no code, no kernel, no file elsewhere, no address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from spd_lsp.models.checkpoint.memory import parameters
from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig
from transformers.utils.import_utils import KERNELS_MIN_VERSION

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.checkpoint.model_config import read_config
from spd_lsp.models.load import load

SMALL = LlamaConfig(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
)
KERNEL = "kernels-community/vllm-flash-attn3"
WISHES = [
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

# Stands in for the package that fetches kernels, and opens every folder under the eyes of a guard. The network is
# open, as far as the environment says.
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
from spd_lsp.models.load import load

for folder in sys.argv[1:]:
    engine = load(Path(folder), "cpu")
    assert len(engine.prefill([4, 5, 6])) == 96
    print("opened", Path(folder).name)
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


def saved(folder: Path, wish: dict[str, object]) -> Path:
    """A small model whose description has a wish."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(SMALL).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wish), encoding="utf-8")
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
def test_no_wish_of_a_description_reaches_the_network_or_runs_code(tmp_path: Path) -> None:
    folders = [saved(tmp_path / f"wish-{number}", wish) for number, wish in enumerate(WISHES)]
    found = guarded(tmp_path / "site", *folders)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.count("opened") == len(WISHES)


def test_wishes_change_nothing_of_what_is_computed(tmp_path: Path) -> None:
    plain = load(saved(tmp_path / "plain", {}), "cpu").prefill([4, 5, 6])
    folder = saved(tmp_path / "wishing", {"attn_implementation": KERNEL, "note": [{"auto_map": "x", "kept": 1}]})
    assert load(folder, "cpu").prefill([4, 5, 6]).tolist() == plain.tolist()
    assert read_config(folder).note == [{"kept": 1}]


def test_what_a_description_says_of_the_shape_stays(tmp_path: Path) -> None:
    for number, config in enumerate([SMALL, OPTConfig(vocab_size=96, _remove_final_layer_norm=True)]):
        folder = tmp_path / str(number)
        config.save_pretrained(folder)
        kept = read_config(folder)
        expected = type(config).from_pretrained(folder)
        assert type(kept) is type(config)
        assert kept.to_dict() == expected.to_dict() | {"_name_or_path": str(folder)}


def sharded(folder: Path, *names: str) -> Path:
    """A folder whose index names files."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    save_file({"a": torch.zeros(10)}, folder / "one.safetensors")
    index = {"metadata": {}, "weight_map": {str(number): name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "a/../../secret.safetensors",
        "..\\secret.safetensors",
        "{outside}/secret.safetensors",
        "C:\\secret.safetensors",
        "pytorch_model.bin",
        "link.safetensors",
        "gone.safetensors",
        "pipe.safetensors",
        "one.safetensors\0",
        7,
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="no links, no pipes")
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: str) -> None:
    save_file({"a": torch.zeros(10)}, tmp_path / "secret.safetensors")
    named = str(name).replace("{outside}", str(tmp_path)) if isinstance(name, str) else name
    folder = sharded(tmp_path / "model", named, "one.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "secret.safetensors")
    (folder / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.safetensors")
    with pytest.raises(UserError, match=r"expected the names of \*\.safetensors files in this folder, found"):
        locate(str(folder))


@pytest.mark.skipif(os.name != "posix", reason="no links")
def test_links_of_hugging_face_s_store_and_of_the_folder_itself_are_followed(tmp_path: Path) -> None:
    store = tmp_path / "models--owner--name"
    folder = sharded(store / "snapshots" / "abc", "two.safetensors", "part/one.safetensors", "here.safetensors")
    (store / "blobs").mkdir()
    save_file({"b": torch.zeros(20)}, store / "blobs" / "0123")
    (folder / "two.safetensors").symlink_to(Path("../../blobs/0123"))
    (folder / "here.safetensors").symlink_to("one.safetensors")
    (folder / "part").mkdir()
    save_file({"c": torch.zeros(5)}, folder / "part" / "one.safetensors")
    (tmp_path / "named").symlink_to(folder)
    for way in (folder, tmp_path / "named"):
        assert locate(str(way)) == way
        assert parameters(way) == 35


@pytest.mark.parametrize("content", ["[]", "{", '{"weight_map": 3}', '{"weight_map": {"a": {}}}', "[" * 100_000])
def test_an_index_that_is_none_is_left_to_who_reads_it_or_refused(tmp_path: Path, content: str) -> None:
    folder = sharded(tmp_path / "model", "one.safetensors")
    (folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    try:
        locate(str(folder))
    except UserError as refused:
        assert "in this folder" in str(refused)
