"""Beam search: k rows of one batch in each pass.

A baseline of `superpose`, with the same signature, n-grams and stop rule.

Dimensions: N rows, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import TINY, Interpolation, fuse, top_candidates
from spd_lsp.decoding.superposed import (
    OPTIONS_PER_DRAFT,
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    ngram_histories,
    rank_drafts,
    ranking_score,
    score_logits,
)
from spd_lsp.models.logits import log_z, top_allowed
from spd_lsp.settings import Settings

Check = Callable[[], None]
TokenOptions = tuple[Ids, Floats]  # tokens and their log p_f, each [N, C]; -inf for what cannot follow

EMPTY_DRAFT = Draft((), 0.0)
_WHOLE = np.ones(1)  # a row's token is not mixed with others


class DraftBatch:
    """The drafts of one prompt as rows of a batch, and their cost."""

    def __init__(self, model: Model, start: DecodingRequest, settings: Settings, check: Check) -> None:
        self.model = model
        self.start = start
        self.settings = settings
        self.check = check
        self.passes = 0
        self.rows = 0  # positions read after the prompt

    @property
    def full(self) -> bool:
        """Whether drafts have reached the limit of tokens."""
        return self.passes >= self.settings.max_tokens

    def prefill(self) -> TokenOptions:
        """Read the prompt, which is one row for all drafts. -> [1, C]"""
        self.check()
        logits = self.model.prefill(self.start.prompt, self.check)
        self.passes = 1
        return _row_options(logits[None], [EMPTY_DRAFT], self.start, self.settings)

    def step(self, live: Sequence[Draft], parents: Sequence[int]) -> TokenOptions:
        """Read the last token of each draft, which extends row parents[i] of the step before. -> [N, C]"""
        self.check()
        logits = self.model.step_rows([(draft.ids[-1:], _WHOLE) for draft in live], parents)
        self.passes += 1
        self.rows += len(live)
        return _row_options(logits, live, self.start, self.settings)


def _row_options(
    logits: Floats, live: Sequence[Draft], start: DecodingRequest, settings: Settings
) -> TokenOptions:
    """The options of each draft by its own logits [N, V], mixed with n-grams as for superposed drafts."""
    before = ngram_histories(start, live)  # [N, REACH]
    allowed = [start.allowed(draft.ids) for draft in live]
    is_first = not live[0].ids
    if start.interpolation is not None and settings.interpolation == "linear":
        if is_first:  # there is one row
            ids, logp_f = score_logits(logits[0], before, start.interpolation, settings, allowed[0])
        else:
            ids, logp_f = mix_rows(logits, before, start.interpolation, settings, allowed)
        return np.broadcast_to(ids, logp_f.shape), logp_f
    rows = [
        top_candidates(row, settings, may_follow, is_first=is_first)
        for row, may_follow in zip(logits, allowed, strict=True)
    ]
    if start.interpolation is not None and not is_first:  # the first token asks no n-grams (section 3.1)
        asked = [start.interpolation(before[i : i + 1], ids)[0] for i, (ids, _) in enumerate(rows)]
        rows = [(ids, fuse(logp, p[None], settings.alpha)[0]) for (ids, logp), p in zip(rows, asked, strict=True)]
    most = max(len(ids) for ids, _ in rows)  # of a row with fewer the first are repeated, and cannot follow
    padded = [
        (np.resize(ids, most), np.pad(logp, (0, most - len(ids)), constant_values=-np.inf)) for ids, logp in rows
    ]
    return np.stack([ids for ids, _ in padded]), np.stack([logp for _, logp in padded])


def mix_rows(
    logits: Floats,
    histories: Ids,
    interpolation: Interpolation,
    settings: Settings,
    allowed: Sequence[Ids | None],
) -> tuple[Ids, Floats]:
    """As in `superposed`, but of logits [N, V], a row for each history. -> ids [C], log p_f [N, C]."""
    tau = settings.temperature
    proposed = interpolation.successors(histories, settings.candidates)
    proposed = proposed[proposed < logits.shape[1]]  # a table may name tokens that the model does not have
    pairs = list(zip(logits, allowed, strict=True))
    top_rows = [top_allowed(row, settings.candidates, may_follow) for row, may_follow in pairs]
    candidates = np.unique(np.concatenate([*top_rows, proposed]))
    z = np.array([[log_z(row, tau)] for row in logits])  # [N, 1], in double precision like all that follows
    p = np.exp(logits[:, candidates] / tau - z)  # [N, C]
    p_f = interpolation.mix(histories, candidates, p)
    can_follow = np.array([_is_allowed(candidates, may_follow) for may_follow in allowed])  # [N, C]
    return candidates, np.where(can_follow, np.log(np.maximum(p_f, TINY)), -np.inf)


def _is_allowed(candidates: Ids, allowed: Ids | None) -> npt.NDArray[np.bool_]:
    """Whether each candidate may follow. [C] -> [C]."""
    return np.ones(len(candidates), dtype=bool) if allowed is None else np.isin(candidates, allowed)


def extend(live: Sequence[Draft], options: TokenOptions, row: int, at: int) -> Draft:
    """A row's draft with one more token."""
    ids, logp_f = options
    return Draft((*live[row].ids, int(ids[row, at])), live[row].score + float(logp_f[row, at]))


def longest(drafts: Sequence[Draft]) -> int:
    """Tokens of the longest draft."""
    return max(len(draft.ids) for draft in drafts)


def beam(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """The k best drafts of beam search, best first, ranked as superposed drafts are."""
    k = settings.drafts

    def score(draft: Draft) -> float:
        return ranking_score(draft, settings.ranking)

    def rank(drafts: Sequence[Draft]) -> list[Draft]:
        return rank_drafts(drafts, settings.ranking, start.text_of)

    batch = DraftBatch(model, start, settings, check)
    live, parents, ended = _select_rows(batch.prefill(), [EMPTY_DRAFT], start, settings)
    finished = rank(ended)
    # A live draft's probability only falls.
    while live and not batch.full and (len(finished) < k or max(map(score, live)) > score(finished[k - 1])):
        live, parents, ended = _select_rows(batch.step(live, parents), live, start, settings)
        finished = rank([*finished, *ended])
    best = rank([*finished[:k], *live])[:k]
    return DecodingResult(best, batch.passes, longest([*finished, *live]), rows=batch.rows, spare=finished[k:])


def _select_rows(
    options: TokenOptions, live: Sequence[Draft], start: DecodingRequest, settings: Settings
) -> tuple[list[Draft], list[int], list[Draft]]:
    """The best k unfinished continuations, the row each extends, and the finished ones among the best."""
    k = settings.drafts
    few = 0 if settings.ranking == "mean" else OPTIONS_PER_DRAFT * k  # as in `superposed.select`
    scores = np.array([draft.score for draft in live])[:, None] + options[1]  # [N, C]
    going: list[Draft] = []
    parents: list[int] = []
    finished: list[Draft] = []
    for seen, place in enumerate(np.argsort(-scores, axis=None, kind="stable").tolist()):
        row, at = divmod(place, scores.shape[1])
        if (len(going) == k and seen >= few) or scores[row, at] == -np.inf:
            break
        draft = extend(live, options, row, at)
        if start.stop(draft.ids):
            finished.append(draft)
        elif len(going) < k:
            going.append(draft)
            parents.append(row)
    return going, parents, finished
