"""The same counts with dictionaries and loops: slow, and plainly right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

END = 0
SMALL = (0, 1, 2, 3)
LARGE = (0, 1, 65_535, 65_536, 151_664)  # ids that need more than 16 bits
LARGE_VOCABULARY = 151_665

Documents = list[list[int]]
Successors = dict[tuple[int, ...], Counter[int]]


def documents(ids: Sequence[int] = SMALL) -> st.SearchStrategy[Documents]:
    """A few short documents of few different tokens, so that contexts repeat."""
    return st.lists(st.lists(st.sampled_from(ids), max_size=12), max_size=6)


def arrays(texts: Documents) -> list[np.ndarray]:
    return [np.array(text, dtype=np.int64) for text in texts]


def successors(texts: Documents, order: int) -> Successors:
    """What followed each context of order - 1 tokens, END standing once before each document."""
    found: Successors = defaultdict(Counter)
    for text in texts:
        padded = [END, *text]
        for i in range(order - 1, len(padded)):
            found[tuple(padded[i - order + 1 : i])][padded[i]] += 1
    return found
