"""How much a build holds in memory at once, so that its process stays below a limit."""

from __future__ import annotations

from dataclasses import dataclass

from ngram_builders.errors import UserError

DEFAULT_MEMORY = 10**9  # bytes, of a process
_FIXED = 350 * 10**6  # interpreter, libraries, tokenizer, a batch of texts, lists of files
_LEAST = 450 * 10**6
_HELD_SHARE = 10  # of the rest; merging what is held takes six times as much
_BYTES_PER_TOKEN = 300  # of a block that is counted
_BYTES_PER_RECORD = 100  # of a piece that is merged, pruned and grouped


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What is held at once."""

    held_bytes: int  # of runs, before they are spilled
    block_tokens: int  # counted at once
    piece_records: int  # merged at once


def share_memory(total: int) -> MemoryLimits:
    """Divide the memory of a process, in bytes; UserError if it is too little."""
    if total < _LEAST:
        raise UserError(
            f"a build needs at least {_LEAST / 1e6:.0f} MB of memory, not {total / 1e6:,.0f}; "
            "give more with --memory"
        )
    rest = total - _FIXED
    return MemoryLimits(rest // _HELD_SHARE, rest // (4 * _BYTES_PER_TOKEN), rest // (2 * _BYTES_PER_RECORD))
