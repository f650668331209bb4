"""All decoders by name: those of the product, the paper's with nucleus sampling, and their baselines.

All have the signature of `superpose` and get the same n-grams, stop rule and ranking. In each pass `superposed`
reads one position, `greedy` and `best-first` one, the others one per unfinished draft, as rows of a
batch.

Dimensions: N rows, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.decoders import DecodingFunction, decoder_for
from spd_lsp.decoding.nucleus import draw, nucleus_superposed, sampled_resets, seeded
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
    superpose,
)
from spd_lsp.settings import Settings

Check = Callable[[], None]
_TokenOptions = tuple[Ids, Floats]  # tokens and their log p_f, each [N, C]; -inf for what cannot follow

_EMPTY_DRAFT = Draft((), 0.0)
_WHOLE = np.ones(1)  # a row's token is not mixed with others


class _DraftBatch:
    """The drafts of one prompt as rows of a batch, and their cost."""

    def __init__(self, model: Model, start: DecodingRequest, settings: Settings, check: Check) -> None:
        self.model = model
        self.start = start
        self.settings = settings
        self.check = check
        self.passes = 0
        self.rows = 0  # positions read after the prompt

    def prefill(self) -> _TokenOptions:
        """Read the prompt, which is one row for all drafts. -> [1, C]"""
        self.check()
        logits = self.model.prefill(self.start.prompt, self.check)
        self.passes = 1
        return self._options(logits[None], [_EMPTY_DRAFT])

    def step(self, live: Sequence[Draft], parents: Sequence[int]) -> _TokenOptions:
        """Read the last token of each draft, which extends row parents[i] of the step before. -> [N, C]"""
        self.check()
        logits = self.model.step_rows([(draft.ids[-1:], _WHOLE) for draft in live], parents)
        self.passes += 1
        self.rows += len(live)
        return self._options(logits, live)

    def _options(self, logits: Floats, live: Sequence[Draft]) -> _TokenOptions:
        """The options of each draft by its own logits [N, V], scored as for superposed drafts."""
        histories = ngram_histories(self.start, live)  # [N, H]
        is_first = not live[0].ids
        ngrams = self.start.interpolation
        if is_first and self.settings.interpolation == "paper":  # whose first token asks no n-grams (section 3.1)
            ngrams = None
        rows = [
            score_logits(
                logits[i], histories[i : i + 1], ngrams, self.settings, self.start.allowed(draft.ids),
                is_first=is_first,
            )
            for i, draft in enumerate(live)
        ]  # fmt: skip
        most = max(len(ids) for ids, _ in rows)  # of a row with fewer the first are repeated, and cannot follow
        padded = [np.pad(logp[0], (0, most - len(ids)), constant_values=-np.inf) for ids, logp in rows]
        return np.stack([np.resize(ids, most) for ids, _ in rows]), np.stack(padded)

    def result(self, best: list[Draft], every: Sequence[Draft], spare: Sequence[Draft] = ()) -> DecodingResult:
        """The best drafts, and what all of them took."""
        longest = max(len(draft.ids) for draft in every)
        return DecodingResult(best, self.passes, longest, rows=self.rows, spare=list(spare))


def _extend(live: Sequence[Draft], options: _TokenOptions, row: int, at: int) -> Draft:
    """A row's draft with one more token."""
    ids, logp_f = options
    return Draft((*live[row].ids, int(ids[row, at])), live[row].score + float(logp_f[row, at]))


def beam(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """The k best drafts of beam search, best first, ranked as superposed drafts are."""
    k = settings.drafts

    def score(draft: Draft) -> float:
        return ranking_score(draft, settings.ranking)

    def rank(drafts: Sequence[Draft]) -> list[Draft]:
        return rank_drafts(drafts, settings.ranking, start.text_of)

    batch = _DraftBatch(model, start, settings, check)
    live, parents, ended = _select_rows(batch.prefill(), [_EMPTY_DRAFT], start, settings)
    finished = rank(ended)
    # A live draft's probability only falls.
    while live and batch.passes < settings.max_tokens:
        if len(finished) >= k and max(map(score, live)) <= score(finished[k - 1]):
            break
        live, parents, ended = _select_rows(batch.step(live, parents), live, start, settings)
        finished = rank([*finished, *ended])
    return batch.result(rank([*finished[:k], *live])[:k], [*finished, *live], spare=finished[k:])


def _select_rows(
    options: _TokenOptions, live: Sequence[Draft], start: DecodingRequest, settings: Settings
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
        draft = _extend(live, options, row, at)
        if start.stop(draft.ids):
            finished.append(draft)
        elif len(going) < k:
            going.append(draft)
            parents.append(row)
    return going, parents, finished


def _nucleus(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """k samples, ranked by p_f; equal ones count once."""
    batch = _DraftBatch(model, start, settings, check)
    samples = _draw_samples(batch)
    once = {draft.ids: draft for draft in samples}.values()
    return batch.result(rank_drafts(once, settings.ranking, start.text_of)[: settings.drafts], samples)


def sample(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> list[Draft]:
    """k samples, equal ones as often as they were drawn."""
    return _draw_samples(_DraftBatch(model, start, settings, check))


def _draw_samples(batch: _DraftBatch) -> list[Draft]:
    """Draw as many samples as drafts are wanted; the prompt is the seed."""
    start, settings = batch.start, batch.settings
    rng = seeded(start.prompt)
    tokens = batch.prefill()
    live = [_EMPTY_DRAFT]
    parents = [0] * settings.drafts
    done: list[Draft] = []
    while True:
        drawn = [_extend(live, tokens, row, draw(tokens[1][row], rng)) for row in parents]
        ends = [len(draft.ids) == settings.max_tokens or start.stop(draft.ids) for draft in drawn]
        done += [draft for draft, ended in zip(drawn, ends, strict=True) if ended]
        live = [draft for draft, ended in zip(drawn, ends, strict=True) if not ended]
        if not live:
            return done
        tokens = batch.step(live, [row for row, ended in zip(parents, ends, strict=True) if not ended])
        parents = list(range(len(live)))


def _product_decoder(
    name: str, model: Model, start: DecodingRequest, settings: Settings, check: Check
) -> DecodingResult:
    """The decoder that a user gets by this value of the setting."""
    chosen = replace(settings, decoder=name)
    return decoder_for(model, chosen)(model, start, chosen, check)


def _greedy(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """One draft, the most likely token at each step."""
    return superpose(model, start, replace(settings, drafts=1), check)


DECODERS: dict[str, DecodingFunction] = {
    "superposed": partial(_product_decoder, "superposed"),
    "best-first": partial(_product_decoder, "best-first"),
    "greedy": _greedy,
    "nucleus": _nucleus,
    "nucleus-superposed": nucleus_superposed,
    "sampled-resets": sampled_resets,
    "beam": beam,
}
