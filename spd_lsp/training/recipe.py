"""The steps of the recipe in one work folder: each reads the results of the step before.

corpus/ -> tokenizer.json and start/ -> rows.npy -> checkpoint.safetensors -> the folder of the bundled model

start/ holds the published model that a run goes on from, with its trimmed embedding.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.training.card import card, notice
from spd_lsp.training.gguf_model import read_model, read_tokenizer, write_gguf
from spd_lsp.training.rows import select_files, write_rows
from spd_lsp.training.tokenizer import END_ID, PAD_ID, SPECIAL, count_tokens, open_tokenizer, trim_tokenizer
from spd_lsp.training.train import Progress, TrainingPlan, load_checkpoint, train

_VOCABULARY = 22_528
_LENGTH = 1_024  # of a row
_BASE_BYTES = 16_000_000  # of source text that the vocabulary is trimmed for
_ROWS_BYTES = 30_000_000  # of source text that is encoded
_QUICK_CONTEXT = 384  # tokens that a model of 120 million parameters reads in about a second of one thread
_NAME = "spd-lsp-starter"
# The special tokens, and those of SmolLM2 whose embeddings they take over.
_TAKEN_OVER = ("<|endoftext|>", "<filename>", "<jupyter_code>", "<file_sep>", "<empty_output>")
MARKS = dict(zip(SPECIAL, _TAKEN_OVER, strict=True))


def make_base(work: Path, published: Path, *, size: int = _VOCABULARY, length: int = _LENGTH) -> None:
    """Give a published model in a GGUF file the `size` tokens that serve the corpus best."""
    # 1. Trim the vocabulary.
    languages = select_files(_needed(work, "corpus/sources.json", "corpus").parent, _BASE_BYTES, seed=0)
    paths = (path for packages in languages.values() for package in packages for path in package)
    old = read_tokenizer(published)
    counts = count_tokens(old, (path.read_text(encoding="utf-8") for path in paths))
    trimmed, origins = trim_tokenizer(old, MARKS, counts, size)

    # 2. Keep the embeddings of these tokens; those of bytes that had no token are the mean of all.
    model = read_model(published)
    embeddings = model.model.embed_tokens.weight.detach()  # [V, D]
    ids = old.get_vocab()
    kept = [embeddings.mean(dim=0) if name is None else embeddings[ids[name]] for name in origins]
    model.resize_token_embeddings(size, mean_resizing=False)
    model.model.embed_tokens.weight.data.copy_(torch.stack(kept))
    model.config.max_position_embeddings = 2 * length  # the published model reads longer texts
    model.config.bos_token_id = model.config.eos_token_id = END_ID
    model.config.pad_token_id = PAD_ID
    model.save_pretrained(work / "start")
    trimmed.save(str(work / "tokenizer.json"))


def make_rows(work: Path, *, length: int = _LENGTH) -> None:
    """Encode the corpus."""
    tokenizer = open_tokenizer(_needed(work, "tokenizer.json", "base MODEL.gguf"))
    languages = select_files(work / "corpus", _ROWS_BYTES, seed=0)
    counts = write_rows(languages, work / "corpus", tokenizer, length, 0, work / "rows.npy")
    facts = {"source_bytes": _ROWS_BYTES, "rows": counts}
    (work / "rows.json").write_text(json.dumps(facts), encoding="utf-8")


def make_weights(work: Path, plan: TrainingPlan, report: Callable[[Progress, float], None]) -> None:
    """Train until the plan's budget is spent, resuming from the last checkpoint."""
    rows = np.load(_needed(work, "rows.npy", "rows"), mmap_mode="r")
    model = LlamaForCausalLM.from_pretrained(work / "start", dtype=torch.float32)
    train(model, rows, plan, work / "checkpoint.safetensors", report)


def make_starter(work: Path, out: Path) -> None:
    """Write the last checkpoint of the run as one GGUF file, with its card and NOTICE."""
    config = LlamaConfig.from_json_file(_needed(work, "start/config.json", "base MODEL.gguf"))
    model = LlamaForCausalLM(config)
    facts: dict[str, Any] = load_checkpoint(_needed(work, "checkpoint.safetensors", "train"), model)
    tokenizer = open_tokenizer(work / "tokenizer.json")
    out.mkdir(parents=True, exist_ok=True)
    write_gguf(model, tokenizer, _NAME, out / f"{_NAME}.gguf")
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)  # faster to open, without llama.cpp
    facts["plan"] |= json.loads((work / "rows.json").read_text(encoding="utf-8"))
    facts["progress"]["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    facts["sources"] = json.loads((work / "corpus" / "sources.json").read_text(encoding="utf-8"))
    facts["shape"] = {
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "inner": config.intermediate_size,
    }
    facts["tokenizer"] = {"vocabulary": config.vocab_size}
    facts["settings"] = {"context_tokens": _QUICK_CONTEXT}
    (out / "training.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (out / "MODEL_CARD.md").write_text(card(facts), encoding="utf-8")
    (out / "NOTICE").write_text(notice(facts), encoding="utf-8")


def _needed(work: Path, name: str, step: str) -> Path:
    """Return a file of an earlier step; raise UserError if that step has not run."""
    if not (work / name).exists():
        raise UserError(
            f"{work / name} does not exist; an earlier step writes it: "
            f"run: python -m spd_lsp.training {step} --work {work}"
        )
    return work / name
