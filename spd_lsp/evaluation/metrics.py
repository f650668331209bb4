"""How good ranked drafts are: texts and what was really written in, numbers out. Nothing else is known.

x is the target, the rest of the line from the cursor without white space at its end; y_1 ... y_k the drafts, best
first. A metric is a pair (part, whole): its mean over places is the sum of the parts over the sum of the wholes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

from spd_lsp.evaluation.code_lines import LEXEME

Pair = tuple[float, float]
Metric = Callable[[Sequence[str], str, int], Pair]


def exact(drafts: Sequence[str], target: str, k: int) -> Pair:
    """EM@k: whether one of the first k is the target, character by character."""
    return float(target in drafts[:k]), 1.0


def exact_words(drafts: Sequence[str], target: str, k: int) -> Pair:
    """EM@k but for white space: `a = 1` equals `a  =  1`, but not `a=1`."""
    return float(any(draft.split() == target.split() for draft in drafts[:k])), 1.0


def similar(drafts: Sequence[str], target: str, k: int) -> Pair:
    """ES@k: the greatest edit similarity among the first k."""
    return max((edit_similarity(draft, target) for draft in drafts[:k]), default=0.0), 1.0


def expected_exact(draws: Sequence[str], target: str, k: int) -> Pair:
    """EM@k of a sampler on average: 1 - C(n - c, k) / C(n, k), c of n draws being right.

    Example: 1 of 4 draws right, k = 2 -> 1/2
    """
    right = draws.count(target)
    return 1 - math.comb(len(draws) - right, k) / math.comb(len(draws), k), 1.0


def matched(drafts: Sequence[str], target: str, k: int) -> Pair:
    """Matched ratio@k: characters of the longest of the first k that the target begins with, of all characters."""
    return float(max((len(draft) for draft in drafts[:k] if target.startswith(draft)), default=0)), len(target)


def alike_at_start(drafts: Sequence[str], target: str, k: int) -> Pair:
    """Prefix similarity@k: characters of the longest common start of the target and one of the first k."""
    return float(max((_common_prefix(draft, target) for draft in drafts[:k]), default=0)), len(target)


def first_token(drafts: Sequence[str], target: str, k: int) -> Pair:
    """Whether one of the first k begins with the target's first code token."""
    wanted = LEXEME.search(target)
    found = (LEXEME.search(draft) for draft in drafts[:k])
    return float(wanted is not None and any(one and one.group() == wanted.group() for one in found)), 1.0


def distinct(drafts: Sequence[str], target: str, k: int) -> Pair:
    """distinct@k: different drafts among the first k, white space apart, of k."""
    return float(len({" ".join(draft.split()) for draft in drafts[:k]})), float(k)


def shown(drafts: Sequence[str], target: str, k: int) -> Pair:
    """How many drafts there are to choose from."""
    return float(len(drafts[:k])), 1.0


METRICS: Mapping[str, Metric] = {
    "EM": exact,
    "EM-ws": exact_words,
    "ES": similar,
    "matched": matched,
    "prefix": alike_at_start,
    "first token": first_token,
    "distinct": distinct,
    "shown": shown,
}


def _common_prefix(first: str, second: str) -> int:
    """How many characters two texts share from their start."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


@functools.lru_cache(maxsize=100_000)  # arms often write the same draft
def edit_similarity(first: str, second: str) -> float:
    """1 - Levenshtein distance / the longer length, as in RepoCoder. Example: `abc`, `abd` -> 2/3"""
    longest = max(len(first), len(second))
    return 1 - levenshtein(first, second) / longest if longest else 1.0


def levenshtein(first: str, second: str) -> int:
    """The fewest insertions, deletions and replacements of a character that make one text the other."""
    same = _common_prefix(first, second)
    first, second = first[same:], second[same:]
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]
