"""The starter's tokenizer: byte-level BPE whose merges stop where code has its joints.

Texts go in, a `tokenizers` tokenizer and the two files transformers reads come out. Any text survives encode and
decode unchanged. It knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 16_384
END, SUFFIX, PREFIX, FILE, PAD = "<|endoftext|>", "<|suffix|>", "<|prefix|>", "<file_sep>", "<|pad|>"
SPECIAL = (END, SUFFIX, PREFIX, FILE, PAD)  # their ids are their places: END is 0

# A newline takes the blanks around it along: "\n        " can be one token; none has text before a newline.
_ENDS = r"(?:[ \t]*\r?\n)+[ \t]*"  # ends of lines and the indentation that follows
_WORD = r" ?[\p{L}_][\p{L}_\p{N}]*"  # identifiers, whole
_NUMBER = r"\p{N}{1,3}"
_SIGNS = r" ?[^\s\p{L}\p{N}_]+"  # runs of punctuation
_JOINTS = "|".join((_ENDS, _WORD, _NUMBER, _SIGNS, r"\s+"))


def learn_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Learn merges that stay inside of words and runs of punctuation. The same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_JOINTS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=48,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


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
