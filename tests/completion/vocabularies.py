"""Tokenizers of the families' kinds, made of letters: what a prompt says can be read off its tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from spd_lsp.completion.tokenizer import ModelTokenizer


def save_tokenizer(
    folder: Path,
    *,
    specials: Sequence[str],
    added: Sequence[AddedToken] = (),
    config: Mapping[str, Any] | None = None,
    fill_format: str = "auto",
    is_sentencepiece: bool = False,
) -> ModelTokenizer:
    """Save a tokenizer and a configuration, and open them."""
    tokenizer = _sentencepiece() if is_sentencepiece else _byte_level()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.add_tokens(list(added))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(dict(config or {})), encoding="utf-8")
    return ModelTokenizer(folder, fill_format)


def _byte_level() -> Tokenizer:
    letters = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece() -> Tokenizer:
    """As Llama's: a blank before every text, and bytes for letters that it does not know."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz()=+:"]
    model = models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer
