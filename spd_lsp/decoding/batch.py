"""Drafts as rows of one batch: each reads its own tokens, all of them in one forward pass per token.

What decoders without superposition stand on, so that they are compared at their best. Comes in: a model that can
step rows. Goes out: for each row, how it may go on. Knows no text.

Legend: N rows, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import both_sides, fuse, likeliest
from spd_lsp.decoding.hypotheses import Draft
from spd_lsp.decoding.superposed import Model, Start, histories
from spd_lsp.settings import Settings

Check = Callable[[], None]
Options = tuple[Ids, Floats]  # tokens and their log p_f, each [N, C]; -inf for what cannot follow

EMPTY = Draft((), 0.0)
_WHOLE = np.ones(1)  # a row's token is not mixed with others


class Batch:
    """Rows that go on from one prompt, and what they took."""

    def __init__(self, model: Model, start: Start, settings: Settings, check: Check) -> None:
        self.model = model
        self.start = start
        self.settings = settings
        self.check = check
        self.passes = 0
        self.rows = 0  # positions read after the prompt

    @property
    def full(self) -> bool:
        """Whether drafts are as long as they may become."""
        return self.passes >= self.settings.max_tokens

    def begin(self) -> Options:
        """Read the prompt: how the one row that all drafts share may go on, [1, C]."""
        self.check()
        logits = self.model.prefill(self.start.prompt, self.check)
        self.passes = 1
        return _row_options(logits[None], [EMPTY], self.start, self.settings)

    def go_on(self, live: Sequence[Draft], parents: Sequence[int]) -> Options:
        """Read the last token of each draft, which grew from row parents[i] of the step before. -> [N, C]."""
        self.check()
        logits = self.model.step_rows([(draft.ids[-1:], _WHOLE) for draft in live], parents)
        self.passes += 1
        self.rows += len(live)
        return _row_options(logits, live, self.start, self.settings)


def _row_options(logits: Floats, live: Sequence[Draft], start: Start, settings: Settings) -> Options:
    """How each draft may go on by its own logits [N, V], mixed with the same n-grams as superposed drafts."""
    before = histories(start, live)  # [N, REACH]
    allowed = None if live[0].ids else start.allowed
    if start.interpolation is not None and settings.interpolation == "linear":
        ids, logp_f = both_sides(logits, before, start.interpolation, settings, allowed)
        return np.broadcast_to(ids, logp_f.shape), logp_f
    rows = [likeliest(row if allowed is None else only(row, allowed), settings) for row in logits]
    if start.interpolation is not None and live[0].ids:  # the first token asks no n-grams (section 3.1)
        asked = [start.interpolation(before[i : i + 1], ids)[0] for i, (ids, _) in enumerate(rows)]
        rows = [(ids, fuse(logp, p[None], settings.alpha)[0]) for (ids, logp), p in zip(rows, asked, strict=True)]
    return np.stack([ids for ids, _ in rows]), np.stack([logp for _, logp in rows])


def only(logits: Floats, allowed: Ids) -> Floats:
    """Logits [V] in which no other token can be chosen."""
    masked = np.full_like(logits, -np.inf)
    masked[allowed] = logits[allowed]
    return masked


def grow(live: Sequence[Draft], options: Options, row: int, at: int) -> Draft:
    """A row's draft with one of its options."""
    ids, logp_f = options
    return Draft((*live[row].ids, int(ids[row, at])), live[row].score + float(logp_f[row, at]))


def longest(drafts: Sequence[Draft]) -> int:
    """Tokens of the longest draft."""
    return max(len(draft.ids) for draft in drafts)
