"""Nucleus sampling: k samples as rows of a batch.

The prompt is the seed: the same input gives the same drafts, and samples of different prompts are independent.

Dimensions: C candidate tokens.
"""

from __future__ import annotations

import zlib

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Draft, Model, rank_drafts
from spd_lsp.evaluation.beam_search import EMPTY_DRAFT, Check, DraftBatch, extend, longest
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings

TOP_P = 0.9  # tokens are drawn from the fewest that hold it, as in the paper


def nucleus(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """k samples, ranked by p_f; equal ones count once."""
    samples, batch = sample(model, start, settings, check)
    return DecodingResult(_distinct(samples, start, settings), batch.passes, longest(samples), rows=batch.rows)


def sample(
    model: Model, start: DecodingRequest, settings: Settings, check: Check
) -> tuple[list[Draft], DraftBatch]:
    """Draw k samples. -> the samples and their batch"""
    rng = np.random.default_rng(zlib.crc32(np.asarray(start.prompt, dtype=np.int64).tobytes()))
    batch = DraftBatch(model, start, settings, check)
    tokens = batch.prefill()
    live = [EMPTY_DRAFT]
    parents = [0] * settings.drafts
    done: list[Draft] = []
    while True:
        drawn = [extend(live, tokens, row, draw(tokens[1][row], rng)) for row in parents]
        ends = [len(draft.ids) == settings.max_tokens or start.stop(draft.ids) for draft in drawn]
        done += [draft for draft, ended in zip(drawn, ends, strict=True) if ended]
        live = [draft for draft, ended in zip(drawn, ends, strict=True) if not ended]
        if not live:
            return done, batch
        tokens = batch.step(live, [row for row, ended in zip(parents, ends, strict=True) if not ended])
        parents = list(range(len(live)))


def draw(logp: Floats, rng: np.random.Generator) -> int:
    """Draw an index from the fewest that hold TOP_P; `logp` [C] in any order.

    Example: p (.6, .05, .35) -> 0 or 2, with .63 and .37.
    """
    order = np.argsort(-logp, kind="stable")
    p = np.exp(log_softmax(logp[order]))
    kept = int(np.searchsorted(np.cumsum(p), TOP_P)) + 1
    return int(order[np.searchsorted(np.cumsum(p[:kept]), rng.random() * p[:kept].sum(), side="right")])


def _distinct(drafts: list[Draft], start: DecodingRequest, settings: Settings) -> list[Draft]:
    once = {draft.ids: draft for draft in drafts}.values()
    return rank_drafts(once, settings.ranking, start.text_of)[: settings.drafts]
