"""The starter's tokenizer: a published byte-level vocabulary, trimmed to the tokens that code needs.

A token is made by one merge of two others, so a smaller vocabulary works if every kept token's parts are kept,
down to the bytes. Then text is split at the same places as before, and at more.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers

Merge = tuple[str, str]

SPECIAL = ("<|endoftext|>", "<|suffix|>", "<|prefix|>", "<file_sep>", "<|pad|>")  # their ids are their indices
END_ID, SUFFIX_ID, PREFIX_ID, FILE_ID, PAD_ID = range(len(SPECIAL))


def open_tokenizer(path: Path) -> Tokenizer:
    """Open a saved tokenizer that reads special tokens in source code as ordinary text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often each token occurs in texts."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenizer.encode(text).tokens)
    return counts


def select_merges(merges: Sequence[Merge], counts: Mapping[str, int], size: int) -> list[Merge]:
    """The `size` merges that save the most tokens in a text with these counts, in their old order.

    The rarest token that is part of no other is removed first; its two parts replace it.
    """
    uses = Counter(counts)
    parts = {left + right: (left, right) for left, right in merges}
    children = Counter(part for pair in merges for part in pair)
    heap = [(uses[token], token) for token in parts if not children[token]]
    heapq.heapify(heap)
    while len(parts) > size:
        count, token = heapq.heappop(heap)
        if count < uses[token]:  # a token made of it was removed since
            heapq.heappush(heap, (uses[token], token))
            continue
        for part in parts.pop(token):
            uses[part] += count
            children[part] -= 1
            if part in parts and not children[part]:
                heapq.heappush(heap, (uses[part], part))
    return [pair for pair in merges if pair[0] + pair[1] in parts]


def trim_tokenizer(
    tokenizer: Tokenizer, special: Mapping[str, str], counts: Mapping[str, int], size: int
) -> tuple[Tokenizer, list[str | None]]:
    """A tokenizer of `size` tokens, and the old name of each token; None for a byte that had none.

    special: the names of the special tokens, which come first, and the old tokens whose embeddings they take over.
    """
    rules = json.loads(tokenizer.to_str())
    old = rules["model"]["vocab"]
    merges = [(left, right) for left, right in rules["model"]["merges"]]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda letter: (old.get(letter, len(old)), letter))
    kept = select_merges(merges, counts, size - len(special) - len(alphabet))
    names = [*special, *alphabet, *(left + right for left, right in kept)]
    rules["model"]["vocab"] = {name: i for i, name in enumerate(names)}
    rules["model"]["merges"] = kept
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    rules["added_tokens"] = [{"id": i, "content": name, **flags} for i, name in enumerate(special)]
    trimmed = Tokenizer.from_str(json.dumps(rules))
    trimmed.encode_special_tokens = True  # in code, they are characters
    return trimmed, [*special.values(), *(name if name in old else None for name in names[len(special) :])]
