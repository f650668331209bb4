"""What a tokenizer does with unseen code: how short it writes it, and what a cursor in it keeps out of reach.

Comes in: a tokenizer and texts. Goes out: counts. Knows no models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from spd_lsp.completion.tokenizer import ModelTokenizer

_PLACES = 3_000
_NEAR = 300  # characters before the cursor's line that are tokenised along


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bytes, lines that are not blank, and tokens."""

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
    """Cursors from whose line no token leads on to what is written there, and all cursors, by where they stand.

    A completion begins with the tokens taken back at the cursor, which one token must stand for: where that token
    joins words, others that the text could go on with are kept out.
    """
    rng = random.Random(0)
    texts = [text for text in texts if len(text) > 1]
    found = {"after a blank": [0, 0], "elsewhere": [0, 0]}
    for _ in range(places):
        text = rng.choice(texts)
        at = rng.randrange(1, len(text))
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        rest = text[at : end if end >= 0 else len(text)]
        if rest and text[start:at].strip():
            near = text.rfind("\n", 0, max(0, start - _NEAR)) + 1
            count = found["after a blank" if text[at - 1] == " " else "elsewhere"]
            count[0] += not is_reachable(text[near:at], rest, tokens)
            count[1] += 1
    return {where: (missed, all_) for where, (missed, all_) in found.items()}


def is_reachable(before: str, rest: str, tokens: ModelTokenizer) -> bool:
    """Whether some token that may come first is what is written there."""
    _, healed, allowed = tokens.heal(tokens.encode(before))
    written = healed + rest.encode()
    return allowed is None or any(written.startswith(tokens.pieces[token]) for token in allowed.tolist())
