"""Models on this machine: those fetched, and those of Ollama, LM Studio, llama.cpp and Hugging Face's library.

A GGUF model may have several files: the name of each, such as `m-00002-of-00003.gguf`, leads to the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError

_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_WEIGHTS = "application/vnd.ollama.image.model"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
_PROJECTOR = "mmproj"  # of images, beside a model
_QUANTIZATION = re.compile(r"(?:^|[-._])([A-Za-z]+\d*(?:_[A-Za-z0-9]+)*)\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model on this machine."""

    name: str  # as `--model` takes it
    path: Path  # of the file or folder
    size: int  # of the weights on disk, in bytes


def models_folder() -> Path:
    """Return the folder of fetched models, as OWNER/NAME/FILE."""
    return platformdirs.user_cache_path("spd-lsp", appauthor=False) / "models"


def find_parts(path: Path) -> list[Path]:
    """Return the files of the model that a file belongs to, in order; `UserError` if one is missing."""
    parts = _parts_of(path)
    missing = [one.name for one in parts if not one.is_file()]
    if len(parts) > 1 and missing:
        named = ", ".join(missing[:3])
        raise UserError(f"{path} is one of {len(parts)} parts, and {path.parent} lacks {named}; fetch all of them")
    return parts


def _parts_of(path: Path) -> list[Path]:
    part = _PART.fullmatch(path.name)
    if part is None:
        return [path]
    stem, _, count, suffix = part.groups()
    return [path.with_name(f"{stem}-{number:05}-of-{count}{suffix}") for number in range(1, int(count) + 1)]


def whole_name(name: str) -> str:
    """Return a file's name without the number of its part: `m-Q4_K-00001-of-00003.gguf` -> `m-Q4_K.gguf`."""
    return _PART.sub(r"\1\4", name)


def find_models(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the GGUF models in a folder, each by its first part, without incomplete ones and image projectors."""
    names = (path for path in sorted(folder.glob(pattern)) if path.name.lower().endswith(".gguf"))
    return [
        path
        for path in names
        if _PROJECTOR not in path.name
        and path == _parts_of(path)[0]
        and all(part.is_file() for part in _parts_of(path))
    ]


def find_ollama(name: str) -> Path:
    """Return the file that Ollama keeps for a model. Example: `qwen2.5-coder:1.5b`."""
    path, _, tag = name.partition(":")
    parts = path.split("/")
    host = [] if len(parts) > 2 else [_HOST] if len(parts) == 2 else [_HOST, _NAMESPACE]
    place = [*host, *parts, tag or _TAG]
    if not any(part in ("", ".", "..") for part in place):
        for folder in _ollama_folders():
            if (weights := _weights_of(folder, folder.joinpath("manifests", *place))) is not None:
                return weights
    raise UserError(
        f"Ollama has no model {name!r} in {' or '.join(map(str, _ollama_folders()))}; run: ollama pull {name}, or "
        "set OLLAMA_MODELS to its folder"
    )


def list_models() -> list[StoredModel]:
    """Return all models found, by name."""
    files = (_gguf(str(path), path) for folder in _gguf_folders() for path in find_models(folder, "**/*"))
    sources = (_in_repositories(), _in_ollama(), files)
    return [model for source in sources for model in sorted(source, key=lambda model: model.name)]


def searched_folders() -> list[Path]:
    """Return the folders in which models are looked for."""
    return [models_folder(), *_ollama_folders(), *_gguf_folders(), _hugging_face_cache()]


def stored_quantization(repository: str, quantization: str) -> Path | None:
    """Return the stored GGUF file of a Hugging Face repository, or its first part."""
    cached = _hugging_face_cache() / f"models--{repository.replace('/', '--')}"
    files = (*find_models(models_folder() / repository, "**/*"), *find_models(cached, "**/*"))
    return next((path for path in files if is_quantization(path.name, quantization)), None)


def repository_file_name(repository: str, path: Path) -> str:
    """Return the name by which `--model` takes a GGUF file of a Hugging Face repository."""
    quantization = _QUANTIZATION.search(whole_name(path.name))
    return f"hf:{repository}:{quantization[1]}" if quantization else str(path)


def is_quantization(file: str, quantization: str) -> bool:
    """Whether a file has a quantization. Example: `m-Q4_K_M.gguf` has `q4_k_m`, but not `K_M`."""
    ending = rf"(?:^|[-./]){re.escape(quantization)}\.gguf$"
    return re.search(ending, whole_name(file), re.IGNORECASE) is not None


def _hugging_face_cache() -> Path:
    """Return the folder in which Hugging Face's library keeps its downloads."""
    home = os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _ollama_folders() -> list[Path]:
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [Path(chosen).expanduser()]
    return [Path("~/.ollama/models").expanduser(), Path("/usr/share/ollama/.ollama/models")]


def _gguf_folders() -> list[Path]:
    """Return the folders in which LM Studio and llama.cpp keep files."""
    own = os.environ.get("LLAMA_CACHE") or "~/.cache/llama.cpp"
    return [Path(each).expanduser() for each in ("~/.lmstudio/models", "~/.cache/lm-studio/models", own)]


def _weights_of(folder: Path, manifest: Path) -> Path | None:
    """Return the file of the weights that a manifest names by their digest; None if it names none."""
    try:
        layers = json.loads(manifest.read_bytes())["layers"] if manifest.is_file() else ()
        digest = next(layer["digest"] for layer in layers if layer["mediaType"] == _WEIGHTS)
        named = re.fullmatch(r"sha256[:-]([0-9a-f]{64})", digest)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, StopIteration):
        return None
    path = folder / "blobs" / f"sha256-{named[1]}" if named else None
    return path if path is not None and path.is_file() else None


def _in_ollama() -> Iterator[StoredModel]:
    for folder in _ollama_folders():
        for manifest in sorted((folder / "manifests").glob("*/*/*/*")):
            if path := _weights_of(folder, manifest):
                host, namespace, name, tag = manifest.parts[-4:]
                own = {_HOST: name if namespace == _NAMESPACE else f"{namespace}/{name}"}
                short = own.get(host, f"{host}/{namespace}/{name}")
                yield _gguf(f"ollama:{short}:{tag}", path)


def _in_repositories() -> Iterator[StoredModel]:
    """Yield models of Hugging Face, fetched by this program or by Hugging Face's library."""
    for folder in sorted(models_folder().glob("*/*")):
        yield from _of_repository(f"{folder.parent.name}/{folder.name}", folder, [folder])
    for folder in sorted(_hugging_face_cache().glob("models--*--*")):
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        yield from _of_repository(f"{owner}/{name}", folder, sorted(folder.glob("snapshots/*")))


def _of_repository(repository: str, folder: Path, snapshots: list[Path]) -> Iterator[StoredModel]:
    for path in find_models(folder, "**/*"):
        yield _gguf(repository_file_name(repository, path), path)
    if whole := next((snapshot for snapshot in snapshots if (snapshot / "config.json").is_file()), None):
        weights = [path for path in whole.glob("*.safetensors") if path.is_file()]
        if weights:
            yield StoredModel(repository, whole, sum(path.stat().st_size for path in weights))


def _gguf(name: str, path: Path) -> StoredModel:
    return StoredModel(name, path, sum(part.stat().st_size for part in find_parts(path)))
