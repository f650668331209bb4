"""Text that repeats itself about as code does, in any amount, and its tokenizer: each character is a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ngram_builders.arrays import U64, Ints

VOCABULARY = 16_000
END = 0
_FIRST = 0x4E00  # thousands of letters in a row, three bytes each: about what a token of code takes
_LINE_TOKENS = 10  # and a line end
_FILE_LINES = 8_000
_KNOWN_SHARE = 0.85  # of lines; the others are new
_KNOWN_LINES = 2e5  # the commonest ones far more often than the others
_SPREAD = 1 << 16


def write_shard(folder: Path, tokens: float, seed: int) -> list[str]:
    """Write files of so many tokens in all -> their paths."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    lines = max(1, round(tokens / (_LINE_TOKENS + 1)))
    paths = []
    for start in range(0, lines, _FILE_LINES):
        numbers = _choose_lines(rng, min(_FILE_LINES, lines - start), new=(seed << 40) + start + (1 << 60))
        ids = _write_lines(numbers)
        letters = np.full((len(ids), _LINE_TOKENS + 1), ord("\n"), "<u4")
        letters[:, :-1] = ids + (_FIRST - 1)
        paths.append(str(folder / f"{start}.py"))
        Path(paths[-1]).write_text(letters.tobytes().decode("utf-32-le"), encoding="utf-8")
    return paths


def _choose_lines(rng: np.random.Generator, size: int, new: int) -> U64:
    """The numbers of some lines; those of new ones begin at `new`."""
    known = np.exp(rng.random(size) * np.log(_KNOWN_LINES)).astype(np.uint64)
    is_new = rng.random(size) >= _KNOWN_SHARE
    return np.where(is_new, np.arange(new, new + size, dtype=np.uint64), known)


def _write_lines(numbers: U64) -> Ints:
    """The tokens of some lines, always the same for a number: 1, 2, 3 ... by falling frequency. [lines, tokens]"""
    places = numbers[:, None] * np.uint64(_LINE_TOKENS) + np.arange(_LINE_TOKENS, dtype=np.uint64)
    places = (places ^ (places >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    places = (places ^ (places >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    share = (places >> np.uint64(48)).astype(np.float64) / _SPREAD
    ids: Ints = np.exp(share * np.log(VOCABULARY - 2)).astype(np.int64)
    return ids


def make_encode() -> Callable[[Sequence[str]], list[Ints]]:
    """Return the tokenizer."""
    return lambda texts: [_encode(text) for text in texts]


def _encode(text: str) -> Ints:
    letters = np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64)
    return np.maximum(letters - (_FIRST - 1), 0)
