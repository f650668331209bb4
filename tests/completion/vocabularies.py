"""Tokenizers of the families' kinds, made of letters: what a prompt says can be read off its tokens.

And a blank with a `c`, so that a blank at the cursor may be part of a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.pre_tokenizers import PATTERNS, pre_tokenizer


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
    tokenizer = Tokenizer(models.BPE(vocab={**letters, "Ġc": len(letters)}, merges=[("Ġ", "c")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece() -> Tokenizer:
    """As Llama's: a blank before every text, and bytes for letters that it does not know."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz()=+:", "▁c"]
    model = models.BPE({name: i for i, name in enumerate(names)}, [("▁", "c")], byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


STARTERS_CUTS = (r"(?:[ \t]*\r?\n)+[ \t]*| ?[\p{L}_][\p{L}_\p{N}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}_]+|\s+",)
CUTS = {**PATTERNS, "with the indentation at a line's end": STARTERS_CUTS}
SENTENCEPIECE = "SentencePiece"


def train_tokenizer(folder: Path, kind: str, texts: Sequence[str]) -> ModelTokenizer:
    """A small tokenizer that cuts as a family does, with the words of these texts."""
    is_sentencepiece = kind == SENTENCEPIECE
    tokenizer = Tokenizer(models.BPE(byte_fallback=is_sentencepiece))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.pre_tokenizer = None if is_sentencepiece else pre_tokenizer(CUTS[kind])
    if is_sentencepiece:  # words are cut for training alone, and then found by their merges
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁*[^▁\n]*|\n"), "isolated")
        texts, alphabet = [text.replace(" ", "▁") for text in texts], []
    special = ["<|endoftext|>", *(f"<0x{byte:02X}>" for byte in range(256) if is_sentencepiece)]
    size = 500 if is_sentencepiece else 2000  # with more, short texts would make words of half their lines
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    rules = json.loads(tokenizer.to_str())
    if is_sentencepiece:
        rules["added_tokens"] = rules["added_tokens"][:1]
        rules["pre_tokenizer"] = None
        rules["normalizer"] = json.loads(_sentencepiece().to_str())["normalizer"]
    (folder / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return ModelTokenizer(folder)
