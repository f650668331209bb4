"""Opens a language model or its vocabulary: a GGUF file in llama.cpp, a Hugging Face folder in torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from ngram_builders.errors import UserError
from spd_lsp.extras import missing_for_models
from spd_lsp.models.base import Engine
from spd_lsp.models.hub import VOCABULARY, is_gguf_model, starter_folder
from spd_lsp.models.no_model import NoModel
from spd_lsp.models.vocabulary import JsonVocabulary, Vocabulary


def load(place: Path, device: str = "auto", report: Callable[[str], None] = lambda text: None) -> Engine:
    """Open the model that `locate` found on a device (`auto`, `cpu`, `cuda`, `mps`); never runs code in it.

    GGUF files run in llama.cpp. Torch, which takes seconds and much memory to import, is imported for others only.
    """
    if is_gguf_model(place):
        from spd_lsp.models.llama.engine import open_gguf

        return open_gguf(place, device, report)
    if place.name == VOCABULARY:
        tokens = load_vocabulary(place)
        return NoModel(len(tokens.pieces), tokens.end_of_text)
    if missing := missing_for_models():
        raise UserError(f"the model {place} {missing}; or take a GGUF file, which needs nothing more")
    report(f"loading {place.name}")
    # torch would keep the code that it compiles in /tmp, where other users may have left some for it to run.
    cache = platformdirs.user_cache_path("spd-lsp", appauthor=False)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "compiled"))
    from spd_lsp.models.torch.open_checkpoint import open_model

    return open_model(place, device, report)


def load_vocabulary(place: Path) -> Vocabulary:
    """Open the vocabulary of the model that `locate` found.

    The bundled model is opened by the tokenizer.json that serves without a model: four times as fast.
    """
    is_bundled = place.parent == starter_folder() and (place.parent / VOCABULARY).is_file()
    if is_gguf_model(place) and not is_bundled:
        from spd_lsp.models.llama.gguf_file import LlamaVocabulary

        return LlamaVocabulary(place)
    return JsonVocabulary(place if place.is_dir() else place.parent)
