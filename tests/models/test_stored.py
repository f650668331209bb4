"""Models that Ollama, LM Studio and Hugging Face's library keep, found by their names; nothing is fetched."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.models import hub
from spd_lsp.models.stored import (
    find_ollama,
    is_quantization,
    list_models,
    models_folder,
    stored_quantization,
)
from tests.models.llama.gguf_files import smallest_gguf

FILE = smallest_gguf()
WEIGHTS = "application/vnd.ollama.image.model"


def alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models."""
    for name in ("OLLAMA_MODELS", "HF_HUB_CACHE", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, place in (("HOME", ""), ("XDG_CACHE_HOME", "cache"), ("HF_HOME", "hf")):
        monkeypatch.setenv(name, str(home / place))
    return home


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    return alone(tmp_path, monkeypatch)


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
        b"[]",
        b'{"layers": [{"mediaType": "%s"}]}' % WEIGHTS.encode(),
        b'{"layers": [{"mediaType": "%s", "digest": "sha256:../../../../etc/passwd"}]}' % WEIGHTS.encode(),
        b"[" * 100_000,
    ],
)
def test_a_damaged_manifest_names_no_file(manifest, home):
    write(home / ".ollama/models/manifests/registry.ollama.ai/library/a/latest", manifest)
    with pytest.raises(UserError, match="Ollama has no model"):
        find_ollama("a")


def test_quantizations_are_the_end_of_a_files_name():
    assert is_quantization("qwen2.5-coder-1.5b-q4_k_m.gguf", "Q4_K_M")
    assert is_quantization("Model.Q4_K_M.gguf", "q4_k_m")
    assert not is_quantization("Model-Q4_K_M.gguf", "K_M")
    assert not is_quantization("Model-Q4_K_M.gguf", "Q4_K")


def test_a_stored_quantization_is_not_fetched(home, monkeypatch):
    monkeypatch.setattr(hub, "list_files", lambda repository: pytest.fail("asked the network"))
    file = write(home / "hf/hub/models--me--coder-GGUF/snapshots/abc/coder-Q4_K_M.gguf")
    assert stored_quantization("me/coder-GGUF", "q4_k_m") == file
    assert hub._find_quantization("me/coder-GGUF:Q4_K_M", print) == file


def test_all_parts_of_a_quantization_are_fetched_and_nothing_else(home, monkeypatch):
    parts = [f"Q4_K_M/large-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    monkeypatch.setattr(hub, "list_files", lambda repository: ["README.md", "large-Q8_0.gguf", *parts])

    def fetch(repository, names, report):
        for name in names:
            write(models_folder() / repository / name)
        return models_folder() / repository

    monkeypatch.setattr(hub, "fetch", fetch)
    write(models_folder() / "me/large-GGUF" / parts[0])
    assert stored_quantization("me/large-GGUF", "Q4_K_M") is None  # one is missing
    path = models_folder() / "me/large-GGUF" / parts[0]
    assert hub._find_quantization("me/large-GGUF:Q4_K_M", print) == path
    assert stored_quantization("me/large-GGUF", "q4_k_m") == path
    [model] = list_models()
    assert (model.name, model.size) == ("hf:me/large-GGUF:Q4_K_M", 2 * len(FILE))
    with pytest.raises(UserError, match=r"me/large-GGUF has no file that ends in F16\.gguf"):
        hub._find_quantization("me/large-GGUF:F16", print)
