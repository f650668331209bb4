"""Drafts that each read their own tokens: beam search, and branches of the first token. k rows for each pass.

For comparison with `drafts.superpose`, with the same signature, n-grams and stop rule.

Legend: N rows, C candidate tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spd_lsp.decoding.batch import EMPTY, Batch, Check, Options, grow, longest
from spd_lsp.decoding.hypotheses import Draft, ranked, settled
from spd_lsp.decoding.superposed import FEW, Drafts, Model, Start
from spd_lsp.settings import Settings


def beam(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """The k best drafts that beam search finds, ranked as superposed drafts are."""
    k, by = settings.drafts, settings.ranking
    batch = Batch(model, start, settings, check)
    options = batch.begin()
    live, parents, ended = select_rows(options, [EMPTY], start, settings)
    finished = ranked(ended, by, start.reads)
    while not batch.full and not settled(live, finished, k, by):
        options = batch.go_on(live, parents)
        live, parents, ended = select_rows(options, live, start, settings)
        finished = ranked([*finished, *ended], by, start.reads)
    best = ranked([*finished[:k], *live], by, start.reads)[:k]
    return Drafts(best, batch.passes, longest([*finished, *live]), rows=batch.rows, spare=finished[k:])


def select_rows(
    options: Options, live: Sequence[Draft], start: Start, settings: Settings
) -> tuple[list[Draft], list[int], list[Draft]]:
    """The best k of all rows that go on, the row each grew from, and the finished ones met on the way to them."""
    k = settings.drafts
    few = 0 if settings.ranking == "mean" else FEW * k  # as in `drafts.select`
    scores = np.array([draft.score for draft in live])[:, None] + options[1]  # [N, C]
    going: list[Draft] = []
    parents: list[int] = []
    finished: list[Draft] = []
    for seen, place in enumerate(np.argsort(-scores, axis=None, kind="stable").tolist()):
        row, at = divmod(place, scores.shape[1])
        if (len(going) == k and seen >= few) or scores[row, at] == -np.inf:
            break
        draft = grow(live, options, row, at)
        if start.stop(draft.ids):
            finished.append(draft)
        elif len(going) < k:
            going.append(draft)
            parents.append(row)
    return going, parents, finished


def branches(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """A draft for each of the k likeliest first tokens, finished greedily, best first."""
    batch = Batch(model, start, settings, check)
    options = batch.begin()
    firsts = np.argsort(-options[1][0], kind="stable")[: settings.drafts]
    drafts = [grow([EMPTY], options, 0, int(at)) for at in firsts if np.isfinite(options[1][0, at])]
    parents = [0] * len(drafts)
    finished: list[Draft] = []
    while True:
        ends = [start.stop(draft.ids) for draft in drafts]
        finished += [draft for draft, ended in zip(drafts, ends, strict=True) if ended]
        parents = [row for row, ended in zip(parents, ends, strict=True) if not ended]
        drafts = [draft for draft, ended in zip(drafts, ends, strict=True) if not ended]
        if not drafts or batch.full:
            break
        options = batch.go_on(drafts, parents)
        drafts = [grow(drafts, options, row, int(at)) for row, at in enumerate(options[1].argmax(axis=1))]
        parents = list(range(len(drafts)))
    found = ranked([*finished, *drafts], settings.ranking, start.reads)
    return Drafts(found, batch.passes, longest(found), rows=batch.rows)
