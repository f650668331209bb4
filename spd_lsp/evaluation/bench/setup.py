"""Load what the contenders need: engines, prompt, and n-grams of this package's own code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bench.contenders import WHOLE, BenchSetup, clear_cache
from spd_lsp.evaluation.bench.machine import WeightReader
from spd_lsp.evaluation.bench.prefixes import TYPED_TOKENS
from spd_lsp.models.llama.prepared import read_source

if TYPE_CHECKING:
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp
    from spd_lsp.ngrams.mixture import Mixture

_MAX_PROMPT = 512  # tokens
_MIN_PROMPT = 16


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the user chose."""

    folder: Path  # of the model
    model: str  # as the user named it
    device: str
    text: str  # its end is the prompt
    ks: tuple[int, ...]
    tokens: int
    repeat: int
    threads: int
    memory: bool


def prepare(options: BenchOptions, parts: Sequence[str]) -> BenchSetup:
    """Load what these parts need: `engine`, `transformers`, `reading`."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    tokens = ModelTokenizer(options.folder)
    engine, network = _load_engines(options, parts)
    if "torch" in sys.modules:  # some engines run without it and use less memory
        sys.modules["torch"].set_num_threads(options.threads)
    reserved = options.tokens + TYPED_TOKENS
    limit = (engine.max_positions if engine else _MAX_PROMPT + reserved) - reserved
    prompt = tokens.encode(options.text)[-min(_MAX_PROMPT, limit) :]
    if len(prompt) < _MIN_PROMPT:
        raise UserError(
            f"the prompt has {len(prompt)} tokens, at least {_MIN_PROMPT} are needed; name a longer file"
        )
    reader = None
    if "reading" in parts and (network is not None or engine is not None):
        size = weight_bytes(network) if network is not None else _gguf_path(options).stat().st_size
        reader = WeightReader(size, str((network or engine).device))
    ngrams = _own_ngrams(options, tokens)
    return BenchSetup(engine, network, tuple(prompt), options.tokens, ngrams, reader)


def _load_engines(options: BenchOptions, parts: Sequence[str]) -> tuple[Any, Any]:
    """This project's engine, and transformers' network."""
    from spd_lsp.models.load import load

    engine = load(options.folder, options.device) if "engine" in parts else None
    network = None
    if "transformers" in parts and not read_source(options.folder):
        network = _load_transformers(options, str(engine.device) if engine else "cpu")
    return engine, network


def _gguf_path(options: BenchOptions) -> Path:
    """The model's file, which transformers does not read; `UserError` for other models."""
    source = read_source(options.folder)
    if source is None:
        raise UserError(f"{options.model} is not read by transformers and cannot be compared")
    return Path(source.path)


def _load_transformers(options: BenchOptions, device: str) -> Any:
    """The model in transformers, with weights of its own in the engine's precision."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    from spd_lsp.models.checkpoint.model_config import read_config

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    if device.startswith("cuda") and not torch.cuda.is_bf16_supported():
        dtype = torch.float16
    network: Any = AutoModelForCausalLM.from_pretrained(
        options.folder,
        config=read_config(options.folder),
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    network.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # no token ends a text
    return network.to(device).eval()


def weight_bytes(network: Any) -> int:
    """Bytes of weights that one token needs: all but input embeddings that are used for nothing else."""
    weights = {id(one): one for one in network.parameters()}
    inputs, outputs = network.get_input_embeddings(), network.get_output_embeddings()
    if outputs is None or inputs.weight is not outputs.weight:
        weights.pop(id(inputs.weight), None)
    return sum(one.numel() * one.element_size() for one in weights.values())


def _own_ngrams(options: BenchOptions, tokens: ModelTokenizer) -> Mixture:
    """N-grams of this package's own code, with the model's built-in tables."""
    from ngram_builders.ngrams import ORDERS, count_streams, with_boundaries
    from ngram_builders.table.reader import Table
    from ngram_builders.table.writer import build_columns
    from spd_lsp.models.checkpoint.hub import built_in_tables
    from spd_lsp.ngrams.mixture import Mixture
    from spd_lsp.ngrams.serving_tables import BUILT_IN_WEIGHT

    sources = sorted(Path(__file__).parents[2].rglob("*.py"))
    encoded = tokens.encode_batch([path.read_text(encoding="utf-8") for path in sources])
    streams = [with_boundaries(ids, tokens.end_of_text) for ids in encoded]
    counts = count_streams(streams, orders=ORDERS, vocab_size=tokens.vocab_size)
    built_in = built_in_tables(options.folder)
    tables = [Table.open(path, tokens.fingerprint) for name, path in built_in.items() if name == "python"]
    pools = [[build_columns(counts, tokens.vocab_size)], *([table.columns] for table in tables)]
    return Mixture(pools, [1 - BUILT_IN_WEIGHT, *(BUILT_IN_WEIGHT for _ in tables)])


def load_llama_cpp(setup: BenchSetup, options: BenchOptions) -> tuple[LlamaCpp | None, str]:
    """llama.cpp itself, where it predicts what the engine predicts; and a line for the report."""
    assert setup.model is not None
    if read_source(options.folder) is None or str(setup.model.device) != "cpu":
        return None, "skipped: compared on a CPU with a GGUF file only"
    model = open_llama_cpp(options, len(setup.prompt))
    theirs = model.drafts(setup.prompt, 1, setup.tokens, lambda: None)[0].tolist()
    same = [a == b for a, b in zip(theirs, _greedy_ids(setup), strict=True)]
    agreeing = same.index(False) if False in same else len(same)
    if not agreeing:
        return None, "skipped: its first token differs from this engine's"
    return model, f"{model}; its greedy draft is this engine's for {agreeing} of {len(same)} tokens"


def open_llama_cpp(options: BenchOptions, prompt_tokens: int) -> LlamaCpp:
    """The model in llama.cpp, with space for the prompt and all drafts."""
    from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp as Opened

    rows = max(options.ks)
    return Opened(_gguf_path(options), rows, prompt_tokens + rows * options.tokens, options.threads)


def _greedy_ids(setup: BenchSetup) -> list[int]:
    assert setup.model is not None
    clear_cache(setup.model)
    ids = [int(np.argmax(setup.model.prefill(setup.prompt, lambda: None)))]
    while len(ids) < setup.tokens:
        ids.append(int(np.argmax(setup.model.step(ids[-1:], WHOLE))))
    return ids
