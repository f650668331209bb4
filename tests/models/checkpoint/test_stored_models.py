"""Models that Ollama, LM Studio and Hugging Face's library keep, found by their names; nothing is fetched."""

from __future__ import annotations

import hashlib
import json
import os
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.models.checkpoint import hub
from spd_lsp.models.checkpoint.limits import memory_needed
from spd_lsp.models.checkpoint.stored_models import (
    find_ollama,
    is_quantization,
    list_models,
    stored_quantization,
)
from tests.models.llama.test_header import ARCHITECTURE, gguf, tensor

PATTERNS = ["*Q4_K_M-*-of-*.gguf", "*Q4_K_M.gguf", "*q4_k_m-*-of-*.gguf", "*q4_k_m.gguf"]
FILE = gguf(ARCHITECTURE, tensors=tensor([32, 8], kind=1), count=1) + bytes(1024)
WEIGHTS = "application/vnd.ollama.image.model"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    for name in ("OLLAMA_MODELS", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


def write(path: Path, content: bytes = FILE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def store(folder: Path, place: str, content: bytes = FILE, **changed) -> Path:
    """As `ollama pull` does it."""
    digest = hashlib.sha256(content).hexdigest()
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64, "size": 1},
        {"mediaType": WEIGHTS, "digest": f"sha256:{digest}", "size": len(content), **changed},
    ]
    write(folder / "manifests" / place, json.dumps({"schemaVersion": 2, "layers": layers}).encode())
    return write(folder / "blobs" / f"sha256-{digest}", content)


@pytest.mark.parametrize(
    "name, place",
    [
        ("qwen2.5-coder:1.5b", "registry.ollama.ai/library/qwen2.5-coder/1.5b"),
        ("qwen2.5-coder", "registry.ollama.ai/library/qwen2.5-coder/latest"),
        ("me/tuned:q8", "registry.ollama.ai/me/tuned/q8"),
        ("hf.co/me/tuned:q8", "hf.co/me/tuned/q8"),
    ],
)
def test_the_file_that_ollama_keeps_is_found_by_its_manifest(name, place, home):
    blob = store(home / ".ollama" / "models", place)
    assert find_ollama(name) == blob


def test_the_folder_of_ollama_may_be_elsewhere(home, monkeypatch):
    blob = store(home / "disk", "registry.ollama.ai/library/a/latest")
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "disk"))
    assert find_ollama("a") == blob


@pytest.mark.parametrize("name", ["none", "../../a", "a/../b", "a:.."])
def test_a_model_that_ollama_does_not_have_is_named_with_the_remedy(name):
    with pytest.raises(UserError, match=r"Ollama has no model .*; run: ollama pull"):
        find_ollama(name)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[]",
        b'{"layers": 3}',
        b'{"layers": [{"mediaType": "%s"}]}' % WEIGHTS.encode(),
        b'{"layers": [{"mediaType": "%s", "digest": "sha256:../../../../etc/passwd"}]}' % WEIGHTS.encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_manifest_names_no_file(manifest, home):
    write(home / ".ollama/models/manifests/registry.ollama.ai/library/a/latest", manifest)
    with pytest.raises(UserError, match="Ollama has no model"):
        find_ollama("a")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
def test_pipes_where_models_are_kept_are_not_read(home):
    manifests, snapshot = (
        home / ".ollama/models/manifests/registry.ollama.ai/library/a",
        "hf/hub/models--me--a/snapshots/abc",
    )
    write(home / snapshot / "config.json", b"{}")
    manifests.mkdir(parents=True)
    for pipe in (manifests / "latest", home / snapshot / "model.safetensors", home / snapshot / "a-Q8_0.gguf"):
        os.mkfifo(pipe)
    assert list_models() == []


def test_quantizations_are_the_end_of_a_files_name():
    assert is_quantization("qwen2.5-coder-1.5b-q4_k_m.gguf", "Q4_K_M")
    assert is_quantization("Model.Q4_K_M.gguf", "q4_k_m")
    assert not is_quantization("Model-Q4_K_M.gguf", "K_M")
    assert not is_quantization("Model-Q4_K_M.gguf", "Q4_K")


def test_a_stored_quantization_is_not_fetched(home, monkeypatch):
    monkeypatch.setattr(hub, "_fetch", lambda *options: pytest.fail("asked the network"))
    file = write(home / "hf/hub/models--me--coder-GGUF/snapshots/abc/coder-Q4_K_M.gguf")
    assert stored_quantization("me/coder-GGUF", "q4_k_m") == file
    assert hub._find_quantization("me/coder-GGUF:Q4_K_M", print) == file


def test_a_quantization_is_fetched_alone(home, monkeypatch):
    asked = []

    def fetch(repository, name, patterns, report):
        asked.append((repository, name, sorted(patterns)))
        return write(home / "down" / "coder-q4_k_m.gguf").parent

    monkeypatch.setattr(hub, "_fetch", fetch)
    assert hub._find_quantization("me/coder:Q4_K_M", print).name == "coder-q4_k_m.gguf"
    assert asked == [("me/coder", "hf:me/coder:Q4_K_M", PATTERNS)]
    with pytest.raises(UserError, match=r"me/coder has no file that ends in Q8_0\.gguf"):
        hub._find_quantization("me/coder:Q8_0", print)


def test_all_parts_of_a_quantization_are_fetched(home, monkeypatch):
    stored = home / "hf/hub/models--me--large-GGUF/snapshots/abc/Q4_K_M"
    parts = [stored / f"large-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    write(parts[0])
    assert stored_quantization("me/large-GGUF", "Q4_K_M") is None  # one is missing

    def fetch(repository, name, patterns, report):
        assert all(any(fnmatch(f"Q4_K_M/{part.name}", pattern) for pattern in patterns) for part in parts)
        return write(parts[1]).parents[1]

    monkeypatch.setattr(hub, "_fetch", fetch)
    assert hub._find_quantization("me/large-GGUF:Q4_K_M", print) == parts[0]
    assert stored_quantization("me/large-GGUF", "q4_k_m") == parts[0]
    [model] = list_models()
    assert (model.name, model.size) == ("hf:me/large-GGUF:Q4_K_M", 2 * len(FILE))


def test_what_is_here_is_listed_by_the_name_that_model_takes(home, monkeypatch):
    monkeypatch.setattr("spd_lsp.commands.models.free_memory", lambda: 5000)
    store(home / ".ollama/models", "registry.ollama.ai/library/qwen2.5-coder/1.5b")
    studio = write(home / ".lmstudio/models/me/coder/coder-Q8_0.gguf", b"GGUF")
    write(home / ".lmstudio/models/me/coder/mmproj-coder.gguf")
    write(home / ".lmstudio/models/me/coder/large-00001-of-00002.gguf")
    write(home / "hf/hub/models--me--coder-GGUF/snapshots/abc/coder-q4_k_m.gguf")
    weights = home / "hf/hub/models--me--coder/snapshots/abc"
    write(weights / "config.json", b"{}")
    save_file({"a": np.zeros((40, 50), np.float16)}, weights / "model.safetensors")
    found = json.loads(CliRunner().invoke(main, ["models", "--json"]).stdout)
    assert {model["name"]: (model["format"], model["fits"]) for model in found} == {
        "ollama:qwen2.5-coder:1.5b": ("GGUF qwen2 F16", True),
        str(studio): ("GGUF, damaged", True),
        "hf:me/coder-GGUF:q4_k_m": ("GGUF qwen2 F16", True),
        "me/coder": ("safetensors", False),  # in single precision
    }
    lines = CliRunner().invoke(main, ["models"]).stdout.splitlines()
    assert lines[0].split() == ["model", "format", "size", "memory", "fits"]
    assert lines[1].split()[0] == "ollama:qwen2.5-coder:1.5b"


def test_a_folder_takes_four_bytes_a_weight(home):
    save_file({"a": np.zeros((100, 4), np.float16)}, home / "model.safetensors")
    assert memory_needed(home) == 1600


def test_where_nothing_is_found_the_folders_are_named(home):
    assert f"{home}/.ollama/models" in CliRunner().invoke(main, ["models"]).stdout
