"""How many tokens of a prompt are read in one pass: nobody can stop a pass, so it takes a tenth of a second.

Sizes are powers of two: small differences of speed change nothing that is computed.
"""

from __future__ import annotations

CHUNK_SECONDS = 0.1
MIN_CHUNK, MAX_CHUNK = 8, 512  # tokens; fewer are read no faster, and more are no cheaper


class ChunkSizer:
    """The size of the next chunk, by the speed of the last one."""

    def __init__(self, seconds: float = CHUNK_SECONDS, first: int = MIN_CHUNK, largest: int = MAX_CHUNK) -> None:
        self.seconds = seconds
        self.size = first
        self.largest = largest

    def note(self, tokens: int, seconds: float) -> None:
        """Take account of how long a chunk took. Those of a few tokens, a key's, say little of longer ones."""
        if tokens < MIN_CHUNK:
            return
        self.size = MIN_CHUNK
        while self.size < self.largest and 2 * self.size * seconds <= tokens * self.seconds:
            self.size *= 2
