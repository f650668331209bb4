"""Drafts and their ranking: by the probability of the whole text, or by the mean per token as in the paper.

The mean (section 3.2, and beam search with a length penalty of 1) favours long drafts: every certain token raises
it. A user wants the text that most probably follows, its end included: that is the probability of the whole
draft. Ranked by it, drafts that look the same are merged, whatever their tokens: a line may end with a line
break, or with a line break and the next line's indentation in one token.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

TextOf = Callable[[tuple[int, ...]], Hashable]  # what a user sees of a draft


class Draft(NamedTuple):
    """Token ids after the prompt, and the sum of their log p_f."""

    ids: tuple[int, ...]
    score: float  # with merged drafts: log of the sum of their probabilities
    merged_score: float = 0.0  # how much of the score is due to merged drafts

    @property
    def mean_score(self) -> float:
        """The length-normalised score (section 3.2)."""
        return self.score / len(self.ids)


def ranking_score(draft: Draft, ranking: str) -> float:
    """Return the log-score that a draft is ranked by, and that is shown."""
    return draft.mean_score if ranking == "mean" else draft.score


def rank_drafts(drafts: Iterable[Draft], ranking: str, text_of: TextOf) -> list[Draft]:
    """Return drafts best first, ties in order; by probability, those that look the same are merged.

    Example: `x` and a line break .2, `x` and a line break with a space .1, `y` .25 -> `x` .3, `y` .25.
    """
    ranked = sorted(drafts, key=lambda draft: -ranking_score(draft, ranking))
    if ranking == "mean":
        return ranked
    by_text: dict[Hashable, Draft] = {}
    for draft in ranked:
        text = text_of(draft.ids)
        best = by_text.get(text)
        by_text[text] = _merge(best, draft) if best else draft
    return sorted(by_text.values(), key=lambda draft: -draft.score)


def _merge(best: Draft, other: Draft) -> Draft:
    """Add the probability of a draft to that of the likeliest one with the same text."""
    score = float(np.logaddexp(best.score, other.score))
    return Draft(best.ids, score, best.merged_score + score - best.score)


def is_done(live: Sequence[Draft], finished: Sequence[Draft], k: int, ranking: str) -> bool:
    """Whether no draft is live, or k are finished (best first) and beat every live one.

    A draft's probability only falls as it grows: by probability, the k can then no longer be beaten.
    """
    if not live:
        return True
    if len(finished) < k:
        return False
    best_live = max(ranking_score(draft, ranking) for draft in live)
    return best_live <= ranking_score(finished[k - 1], ranking)
