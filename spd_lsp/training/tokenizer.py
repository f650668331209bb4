"""The starter's tokenizer on disk: its special tokens, and the two files that transformers reads.

It knows nothing of models.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

END, SUFFIX, PREFIX, FILE, PAD = "<|endoftext|>", "<|suffix|>", "<|prefix|>", "<file_sep>", "<|pad|>"
SPECIAL = (END, SUFFIX, PREFIX, FILE, PAD)  # their ids are their places: END is 0


def save_tokenizer(tokenizer: Tokenizer, folder: Path, length: int) -> None:
    """Write tokenizer.json and the configuration transformers reads beside it; length is the model's context."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [SUFFIX, PREFIX, FILE],
        "clean_up_tokenization_spaces": False,
        "model_max_length": length,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")


def open_tokenizer(folder: Path) -> Tokenizer:
    """Open a saved tokenizer so that a special token's text inside source code stays ordinary text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer
