"""What is measured: an engine with random weights of a known shape, a prompt and n-grams of this package's code.

Knows nothing of clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedConfig, Qwen2Config

from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, count_streams, stream
from ngram_builders.table.writer import build_columns
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.bench.session import weight_bytes
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.checkpoint.model_config import read_config
from spd_lsp.models.open_checkpoint import choose_device, choose_dtype
from spd_lsp.models.torch.convert import convert
from spd_lsp.models.torch.cuda_graphs import CudaCapture
from spd_lsp.models.torch.engine import TorchEngine
from spd_lsp.models.torch.select import on_gpu
from spd_lsp.models.transformers_engine import TransformersEngine
from spd_lsp.ngrams.interpolation import Mixture


def qwen2(width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int, tied: bool) -> Any:
    """A shape by its numbers."""
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


SHAPES = {  # of Qwen2.5-Coder, but for the last two
    "0.5b": qwen2(896, 4864, 24, 14, 2, 151936, tied=True),
    "1.5b": qwen2(1536, 8960, 28, 12, 2, 151936, tied=True),
    "7b": qwen2(3584, 18944, 28, 28, 4, 152064, tied=False),
    "tiny": qwen2(64, 128, 2, 4, 2, 512, tied=True),
    "starter": None,
}


@dataclass(frozen=True, slots=True)
class Subject:
    """All that takes part."""

    engine: Engine
    reference: TransformersEngine
    prompt: tuple[int, ...]  # longer than is asked for, as a person goes on typing
    interpolation: Mixture
    weights: int  # bytes that a step reads
    keys_values: int  # bytes that a step reads for each position before it
    remarks: list[str] = field(default_factory=list)  # what the engine said of itself


def prepare(shape: str, device: str, length: int, compiled: bool) -> Subject:
    """Make a network and choose its engine, with a prompt of some length; `compiled`: have its steps compiled."""
    config, chosen = _config_of(shape), choose_device(device)
    torch.manual_seed(0)
    with torch.device(chosen):
        network: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=choose_dtype(chosen)
        )
    network.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # no token ends a text
    reference = TransformersEngine(network)
    remarks: list[str] = []
    capture = CudaCapture if chosen.type == "cuda" else lambda device: None
    engine = on_gpu(reference, network, remarks.append, capture)
    if engine is reference:  # which is said; its speed is of interest nevertheless
        engine = TorchEngine(convert(network), capture(network.device), remarks.append)
    if compiled:
        compile_steps(engine)
    prompt, interpolation = _own_code(config.vocab_size, length)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    each = 2 * config.num_hidden_layers * config.num_key_value_heads * width * choose_dtype(chosen).itemsize
    return Subject(engine, reference, prompt, interpolation, weight_bytes(network), each, remarks)


def _config_of(shape: str) -> PreTrainedConfig:
    """The shape by name."""
    if shape not in SHAPES:
        raise UserError(f"expected a shape among {', '.join(SHAPES)}, found {shape!r}; choose one")
    found: PreTrainedConfig = SHAPES[shape] or read_config(locate("starter"))
    return found


def compile_steps(engine: Any) -> None:
    """Have steps compiled: kernels between the products become few. Each shape takes a minute the first time."""
    torch._dynamo.config.recompile_limit = 64
    engine.read_recurring = torch.compile(
        engine.decoder.read, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False
    )
    engine.graphs.clear()


def _own_code(vocabulary: int, length: int) -> tuple[tuple[int, ...], Mixture]:
    """A prompt from this package's code, and n-grams of all of it, by ids that the vocabulary holds."""
    tokens = ModelTokenizer(locate("starter"))
    sources = sorted(Path(__file__).parents[2].rglob("*.py"))
    encoded = tokens.encode_batch([path.read_text(encoding="utf-8") for path in sources])
    texts = [np.array(ids, dtype=np.int64) % vocabulary for ids in encoded]
    run = count_streams([stream(ids, 0) for ids in texts], orders=ORDERS, vocab_size=vocabulary)
    return tuple(np.concatenate(texts)[:length].tolist()), Mixture([[build_columns(run, vocabulary)]], [1.0])
