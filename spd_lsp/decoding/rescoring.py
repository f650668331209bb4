"""Beyond the paper: score superposed drafts exactly, in one more forward pass, and rank them again.

While drafts share their passes, the model reads mixtures, so its probabilities are not exactly those of any draft.
Once all tokens are known, one pass gives the exact probability of each, mixed with the same n-grams.

Legend: N tokens of all drafts together, C distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.decoding.candidates import TINY, fuse
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    first_drafts,
    ngram_histories,
    rank_drafts,
    superpose,
)
from spd_lsp.settings import Settings

DRAFTS_PER_COMPLETION = 2  # drafts that are rescored for each one returned


def rescore(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Return superposed drafts ranked by their exact probabilities. One more pass; two with resets.

    The model's temperature is 1 here, whatever the drafts were written with. Merged scores are kept: merged drafts
    differ in the last token only.
    """
    k = settings.drafts
    written = superpose(model, request, settings, check, width=DRAFTS_PER_COMPLETION * k)
    drafts = [*written.best, *written.spare][: DRAFTS_PER_COMPLETION * k]
    check()
    resets = settings.reset_every > 0
    if resets:
        model.prefill(request.prompt, check)  # the last reset changed the prompt
    logp = _with_ngrams(drafts, model.score_drafts([draft.ids for draft in drafts]), request, settings)
    if request.allowed(()) is not None:
        logp = _condition_first_token(drafts, logp, model.prefill(request.prompt, check), request, settings)
    ranked = rank_drafts(
        [
            Draft(draft.ids, float(scores.sum()) + draft.merged_score, draft.merged_score)
            for draft, scores in zip(drafts, logp, strict=True)
        ],
        settings.ranking,
        request.text_of,
    )
    rescored = sum(len(draft.ids) - 1 for draft in drafts)
    return replace(
        written,
        best=ranked[:k],
        spare=ranked[k:],
        passes=written.passes + 1 + resets,
        rows=written.rows + rescored,
        begun=[],  # these are not rescored
    )


def _condition_first_token(
    drafts: Sequence[Draft], logp: Sequence[Floats], logits: Floats, request: DecodingRequest, settings: Settings
) -> list[Floats]:
    """Return `logp` with the first token's log p_f conditioned on the allowed tokens, as `superpose` does."""
    exact = replace(settings, temperature=1.0)
    first_scores = {
        option.ids[0]: option.score
        for option in first_drafts(logits, request, exact, DRAFTS_PER_COMPLETION * settings.drafts)
    }
    return [
        np.array([first_scores.get(draft.ids[0], scores[0]), *scores[1:]])
        for draft, scores in zip(drafts, logp, strict=True)
    ]


def _with_ngrams(
    drafts: Sequence[Draft], logp: Sequence[Floats], request: DecodingRequest, settings: Settings
) -> list[Floats]:
    """Return log p_f of each token of each draft, given the model's log p; in the shapes of `logp`."""
    if request.interpolation is None:
        return list(logp)
    tokens = np.array([token for draft in drafts for token in draft.ids])  # [N]
    histories = ngram_histories(
        request, [Draft(draft.ids[:length], 0.0) for draft in drafts for length in range(len(draft.ids))]
    )
    candidates, column = np.unique(tokens, return_inverse=True)  # [C], [N]
    model_logp, row = np.concatenate(logp), np.arange(len(tokens))
    if settings.interpolation == "paper":
        p_ngram = request.interpolation(histories, candidates)[row, column]  # [N]
        is_first = np.concatenate([np.arange(len(draft.ids)) == 0 for draft in drafts])  # these use no n-grams
        mixed = np.where(is_first, model_logp, _fuse_each(model_logp, p_ngram, settings.alpha))
    else:
        p = np.repeat(np.exp(model_logp)[:, None], len(candidates), axis=1)  # [N, C]; one column of a row is used
        p_f = request.interpolation.mix(histories, candidates, p)[row, column]
        mixed = np.log(np.maximum(p_f, TINY))
    return np.split(mixed, np.cumsum([len(draft.ids) for draft in drafts])[:-1])


def _fuse_each(logp: Floats, p_ngram: Floats, alpha: float) -> Floats:
    """Return the paper's log p_f of single tokens. [N], [N] -> [N]."""
    return np.array([fuse(logp[i : i + 1], p_ngram[None, i : i + 1], alpha)[0, 0] for i in range(len(logp))])
