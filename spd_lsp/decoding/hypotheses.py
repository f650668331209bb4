"""Drafts, and which of them is worth more: by the probability of the whole text, or by the mean of its tokens.

The paper compares drafts by their mean (section 3.2); so do beam searches. Of completions that end with their line
it favours the long ones: every certain token raises the mean of what stands before it. What a person asks is which
text is the one that follows, and that is said by the probability of the whole, its end included. There drafts that
read the same are one, whatever tokens write them: a line ends with a line break, or with one and the next line's
indentation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

TextOf = Callable[[tuple[int, ...]], Hashable]


class Draft(NamedTuple):
    """Token ids after the prompt, with the sum of their log p_f, and of others that read the same."""

    ids: tuple[int, ...]
    score: float
    others: float = 0.0  # what those others add to the score

    @property
    def mean_score(self) -> float:
        """The length-normalised score, by which drafts of different lengths are compared."""
        return self.score / len(self.ids)


def ranking_score(draft: Draft, ranking: str) -> float:
    """The logarithm of what a draft is ranked by, and of what a person is shown."""
    return draft.mean_score if ranking == "mean" else draft.score


def rank_drafts(drafts: Iterable[Draft], ranking: str, reads: TextOf) -> list[Draft]:
    """Best first, equals in their order. By probability, those that read the same are one: the likeliest of them.

    Example: `x` and a line break .2, `x` and a line break with a blank .1, `y` .25 -> `x` .3, `y` .25.
    """
    found = sorted(drafts, key=lambda draft: -ranking_score(draft, ranking))
    if ranking == "mean":
        return found
    alike: dict[Hashable, Draft] = {}
    for draft in found:
        text = reads(draft.ids)
        best = alike.get(text)
        alike[text] = together(best, draft) if best else draft
    return sorted(alike.values(), key=lambda draft: -draft.score)


def together(best: Draft, other: Draft) -> Draft:
    """Two drafts that read the same as one."""
    score = float(np.logaddexp(best.score, other.score))
    return Draft(best.ids, score, best.others + score - best.score)


def is_done(live: Sequence[Draft], finished: Sequence[Draft], k: int, ranking: str) -> bool:
    """Whether to stop: none is live, or k are finished (best first) and each beats every live one.

    A draft's probability only falls as it grows: then none of the k can be beaten any more.
    """
    if not live:
        return True
    return len(finished) >= k and max(ranking_score(draft, ranking) for draft in live) <= ranking_score(
        finished[k - 1], ranking
    )
