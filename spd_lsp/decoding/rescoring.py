"""Beyond the paper: superposed drafts are scored exactly, all of them in one more forward pass, and ranked again.

While drafts share their passes, the model reads a mixture, and its distribution is no draft's own. Afterwards
their tokens are known, and one pass gives the exact probability of each, mixed with the same n-grams.

Legend: N tokens of all drafts together, C different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.decoding.candidates import TINY, fuse
from spd_lsp.decoding.hypotheses import Draft, rank_drafts
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Model,
    first_drafts,
    ngram_histories,
    superpose,
)
from spd_lsp.settings import Settings

DRAFTS_PER_COMPLETION = 2  # drafts written and rescored for each that is returned


def rescore(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Superposed drafts, ranked by what the model says of each alone. One pass more, with resets two.

    The model's part is taken at temperature 1, whatever the drafts were written with. What other ways to end the
    line add is taken over: they differ in the last token only.
    """
    k, by = settings.drafts, settings.ranking
    written = superpose(model, request, settings, check, width=DRAFTS_PER_COMPLETION * k)
    drafts = [*written.best, *written.spare][: DRAFTS_PER_COMPLETION * k]
    check()
    resets = settings.reset_every > 0
    if resets:
        model.prefill(request.prompt, check)  # the last prompt was another one
    logp = _with_ngrams(drafts, model.score_drafts([draft.ids for draft in drafts]), request, settings)
    if request.allowed is not None:
        logp = _given_the_start(drafts, logp, model.prefill(request.prompt, check), request, settings)
    found = rank_drafts(
        [
            Draft(draft.ids, float(own.sum()) + draft.merged_score, draft.merged_score)
            for draft, own in zip(drafts, logp, strict=True)
        ],
        by,
        request.text_of,
    )
    read = sum(len(draft.ids) - 1 for draft in drafts)
    return replace(
        written, best=found[:k], spare=found[k:], passes=written.passes + 1 + resets, rows=written.rows + read
    )


def _given_the_start(
    drafts: Sequence[Draft], logp: Sequence[Floats], logits: Floats, request: DecodingRequest, settings: Settings
) -> list[Floats]:
    """The same, with the first token's log p_f given that an allowed one follows, as superposed drafts have it."""
    exact = replace(settings, temperature=1.0)
    begun = {
        option.ids[0]: option.score
        for option in first_drafts(logits, request, exact, DRAFTS_PER_COMPLETION * settings.drafts)
    }
    return [np.array([begun.get(draft.ids[0], own[0]), *own[1:]]) for draft, own in zip(drafts, logp, strict=True)]


def _with_ngrams(
    drafts: Sequence[Draft], logp: Sequence[Floats], request: DecodingRequest, settings: Settings
) -> list[Floats]:
    """log p_f of each token of each draft, from the model's log p; in the shapes of `logp`."""
    if request.interpolation is None:
        return list(logp)
    tokens = np.array([token for draft in drafts for token in draft.ids])  # [N]
    before = ngram_histories(
        request, [Draft(draft.ids[:at], 0.0) for draft in drafts for at in range(len(draft.ids))]
    )
    candidates, column = np.unique(tokens, return_inverse=True)  # [C], [N]
    own, at = np.concatenate(logp), np.arange(len(tokens))
    if settings.interpolation == "paper":
        known = request.interpolation(before, candidates)[at, column]  # [N]
        first = np.concatenate([np.arange(len(draft.ids)) == 0 for draft in drafts])  # asks no n-grams
        mixed = np.where(first, own, _fuse_each(own, known, settings.alpha))
    else:
        p = np.repeat(np.exp(own)[:, None], len(candidates), axis=1)  # [N, C]; each row is asked in one column
        nested = request.interpolation.mix(before, candidates, p)[at, column]
        mixed = np.log(np.maximum(nested, TINY))
    return np.split(mixed, np.cumsum([len(draft.ids) for draft in drafts])[:-1])


def _fuse_each(logp: Floats, p_ngram: Floats, alpha: float) -> Floats:
    """The paper's p_f of single tokens. [N], [N] -> [N]."""
    return np.array([fuse(logp[i : i + 1], p_ngram[None, i : i + 1], alpha)[0, 0] for i in range(len(logp))])
