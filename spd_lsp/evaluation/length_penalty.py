"""Beam search whose drafts are compared by score / tokens^penalty, for baselines at their best.

0 is the probability of the whole text, by which the product ranks; 1 the mean of its tokens, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable

from spd_lsp.decoding.hypotheses import Draft, ranked
from spd_lsp.decoding.superposed import Drafts, Model, Start
from spd_lsp.evaluation.beam_search import EMPTY, Batch, Check, longest, select_rows
from spd_lsp.settings import Settings


def penalised_beam(model: Model, start: Start, settings: Settings, check: Check, penalty: float) -> Drafts:
    """The k best drafts that beam search finds, best first."""
    k = settings.drafts
    batch = Batch(model, start, settings, check)
    live, parents, ended = select_rows(batch.begin(), [EMPTY], start, settings)
    finished = _by_worth(ended, start, penalty)
    while live and not batch.full and not _beaten(live, finished[k - 1 : k], penalty):
        live, parents, ended = select_rows(batch.go_on(live, parents), live, start, settings)
        finished = _by_worth([*finished, *ended], start, penalty)
    best = _by_worth([*finished[:k], *live], start, penalty)[:k]
    return Drafts(best, batch.passes, longest([*finished, *live]), rows=batch.rows, spare=finished[k:])


def worth(draft: Draft, penalty: float) -> float:
    """What drafts of different lengths are compared by. Example: score -6, 4 tokens, penalty 0.5 -> -3"""
    return float(draft.score / len(draft.ids) ** penalty)


def _by_worth(drafts: Iterable[Draft], start: Start, penalty: float) -> list[Draft]:
    """Best first; those that read the same are one."""
    return sorted(ranked(drafts, "probability", start.reads), key=lambda draft: -worth(draft, penalty))


def _beaten(live: Iterable[Draft], last: list[Draft], penalty: float) -> bool:
    """Whether no live draft is worth more now than the last of the k best finished ones, if there are so many."""
    return bool(last) and max(worth(draft, penalty) for draft in live) <= worth(last[0], penalty)
