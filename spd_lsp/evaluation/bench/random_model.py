"""Random weights of known shapes: speed does not depend on the weights, so large models need no download."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

from ngram_builders.errors import UserError
from spd_lsp.models.base import Engine
from spd_lsp.models.open_checkpoint import choose_device, choose_dtype
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.cuda_graphs import CudaCapture
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.select import in_torch
from spd_lsp.models.transformers_engine import TransformersEngine


def _qwen2(
    width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int, *, tied: bool = True
) -> Any:
    return Qwen2Config(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32768,
        bos_token_id=0,
        eos_token_id=0,
    )


SHAPES = {  # of Qwen2.5-Coder, except for the last
    "0.5b": _qwen2(896, 4864, 24, 14, 2, 151936),
    "1.5b": _qwen2(1536, 8960, 28, 12, 2, 151936),
    "7b": _qwen2(3584, 18944, 28, 28, 4, 152064, tied=False),
    "tiny": _qwen2(64, 128, 2, 4, 2, 512),
}


def random_model(shape: str, device: str) -> tuple[Engine, Any, list[str]]:
    """A network with random weights: this project's engine, transformers' network, and the engine's remarks."""
    if shape not in SHAPES:
        raise UserError(f"unknown shape {shape!r}; choose one of {', '.join(SHAPES)}")
    chosen = choose_device(device)
    torch.manual_seed(0)
    with torch.device(chosen):
        network: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            SHAPES[shape], dtype=choose_dtype(chosen)
        )
    network.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # no token ends a text
    reference = TransformersEngine(network)
    remarks: list[str] = []
    capture = CudaCapture if chosen.type == "cuda" else lambda device: None
    engine = in_torch(reference, network, remarks.append, capture)
    if engine is reference:  # the remarks say why; its speed is of interest nevertheless
        engine = TorchEngine(convert(network), capture(network.device), remarks.append)
    return engine, network, remarks
