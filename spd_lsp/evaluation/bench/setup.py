"""Load what the contenders need: engines, prompt, and n-grams of this package's own code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bench.contenders import BenchSetup
from spd_lsp.models.llama.prepared import read_source

if TYPE_CHECKING:
    from spd_lsp.completion.tokenizer import ModelTokenizer
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
    """Load what these parts need: `engine`, `transformers`."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    tokens = ModelTokenizer(options.folder)
    engine, network = _load_engines(options, parts)
    if "torch" in sys.modules:  # some engines run without it and use less memory
        sys.modules["torch"].set_num_threads(options.threads)
    limit = min(_MAX_PROMPT, engine.max_positions - options.tokens) if engine else _MAX_PROMPT
    prompt = tokens.encode(options.text)[-limit:]
    if len(prompt) < _MIN_PROMPT:
        raise UserError(
            f"the prompt has {len(prompt)} tokens, at least {_MIN_PROMPT} are needed; name a longer file"
        )
    return BenchSetup(engine, network, tuple(prompt), options.tokens, _own_ngrams(options, tokens))


def _load_engines(options: BenchOptions, parts: Sequence[str]) -> tuple[Any, Any]:
    """This project's engine, and transformers' network."""
    from spd_lsp.models.load import load

    engine = load(options.folder, options.device) if "engine" in parts else None
    network = None
    if "transformers" in parts and not read_source(options.folder):
        network = _load_transformers(options, str(engine.device) if engine else "cpu")
    return engine, network


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


def _own_ngrams(options: BenchOptions, tokens: ModelTokenizer) -> Mixture:
    """N-grams of this package's own code, with the model's built-in tables."""
    from ngram_builders.ngrams import ORDERS, count_streams, with_boundaries
    from ngram_builders.table.reader import Table
    from ngram_builders.table.writer import build_columns
    from spd_lsp.models.checkpoint.hub import built_in_tables
    from spd_lsp.ngrams.mixture import Mixture
    from spd_lsp.ngrams.serving_tables import BUILT_IN_WEIGHT

    sources = sorted(Path(__file__).parents[2].glob("completion/*.py"))
    encoded = tokens.encode_batch([path.read_text(encoding="utf-8") for path in sources])
    streams = [with_boundaries(ids, tokens.end_of_text) for ids in encoded]
    counts = count_streams(streams, orders=ORDERS, vocab_size=tokens.vocab_size)
    built_in = built_in_tables(options.folder)
    tables = [Table.open(path, tokens.fingerprint) for name, path in built_in.items() if name == "python"]
    pools = [[build_columns(counts, tokens.vocab_size)], *([table.columns] for table in tables)]
    return Mixture(pools, [1 - BUILT_IN_WEIGHT, *(BUILT_IN_WEIGHT for _ in tables)])
