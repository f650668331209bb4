"""Measure a tokenizer on unseen code: how few tokens it needs, and which continuations a cursor rules out.

In: a tokenizer and texts. Out: counts. Knows no models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from spd_lsp.completion.tokenizer import ModelTokenizer

_PLACES = 3_000
_NEAR = 300  # characters before the cursor's line that are tokenized with it


@dataclass(frozen=True, slots=True)
class Lengths:
    """Numbers of bytes, nonblank lines and tokens."""

    bytes: int
    lines: int
    tokens: int


def measure_lengths(texts: Sequence[str], tokens: ModelTokenizer) -> Lengths:
    """Count all texts."""
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    return Lengths(
        sum(len(text.encode()) for text in texts), lines, sum(len(tokens.encode(text)) for text in texts)
    )


def measure_reach(
    texts: Sequence[str], tokens: ModelTokenizer, places: int = _PLACES
) -> dict[str, tuple[int, int]]:
    """Count the cursors whose actual continuation is unreachable, and all cursors, by kind of position.

    A completion starts by replacing the last tokens before the cursor with one allowed token. If tokens join
    words, that can rule out the actual text.
    """
    rng = random.Random(0)
    texts = [text for text in texts if len(text) > 1]
    counts = {"after a blank": [0, 0], "elsewhere": [0, 0]}
    for _ in range(places):
        text = rng.choice(texts)
        cursor = rng.randrange(1, len(text))
        start = text.rfind("\n", 0, cursor) + 1
        end = text.find("\n", cursor)
        rest = text[cursor : end if end >= 0 else len(text)]
        if rest and text[start:cursor].strip():
            near = text.rfind("\n", 0, max(0, start - _NEAR)) + 1
            count = counts["after a blank" if text[cursor - 1] == " " else "elsewhere"]
            count[0] += not is_reachable(text[near:cursor], rest, tokens)
            count[1] += 1
    return {where: (missed, all_) for where, (missed, all_) in counts.items()}


def is_reachable(before: str, rest: str, tokens: ModelTokenizer) -> bool:
    """Whether an allowed first token matches the actual text."""
    _, healed, allowed = tokens.heal(tokens.encode(before))
    written = healed + rest.encode()
    return allowed is None or any(written.startswith(tokens.pieces[token]) for token in allowed.tolist())
