"""Drafts that each read their own tokens: beam search, and branches of the first token. k rows for each pass.

For comparison with `drafts.superpose`, with the same signature, n-grams and stop rule.

Legend: N rows, C candidate tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spd_lsp.batch import EMPTY, Batch, Check, Options, grow, longest
from spd_lsp.drafts import Draft, Drafts, Model, Start, by_mean_score, settled
from spd_lsp.settings import Settings

Stop = Callable[[tuple[int, ...]], bool]


def beam(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """The k best drafts that beam search finds, by length-normalised score."""
    k = settings.drafts
    batch = Batch(model, start, settings, check)
    options = batch.begin()
    live, parents, finished = select_rows(options, [EMPTY], k, start.stop)
    while not batch.full and not settled(live, finished, k):
        options = batch.go_on(live, parents)
        live, parents, ended = select_rows(options, live, k, start.stop)
        finished = by_mean_score([*finished, *ended])
    best = by_mean_score([*finished[:k], *live])[:k]
    return Drafts(best, batch.passes, longest([*finished, *live]), rows=batch.rows, spare=finished[k:])


def select_rows(
    options: Options, live: Sequence[Draft], k: int, stop: Stop
) -> tuple[list[Draft], list[int], list[Draft]]:
    """The best k of all rows that go on, the row each grew from, and the finished ones met on the way to them."""
    scores = np.array([draft.score for draft in live])[:, None] + options[1]  # [N, C]
    going: list[Draft] = []
    parents: list[int] = []
    finished: list[Draft] = []
    for place in np.argsort(-scores, axis=None, kind="stable").tolist():
        row, at = divmod(place, scores.shape[1])
        if len(going) == k or not np.isfinite(scores[row, at]):
            break
        draft = grow(live, options, row, at)
        if stop(draft.ids):
            finished.append(draft)
        else:
            going.append(draft)
            parents.append(row)
    return going, parents, by_mean_score(finished)


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
    found = by_mean_score([*finished, *drafts])
    return Drafts(found, batch.passes, longest(found), rows=batch.rows)
