"""Drafts by chance: k nucleus samples as k rows of a batch, and samples finished by superposed decoding.

The prompt decides the seed: the same input gives the same drafts, and what chance does at one prompt says nothing
of what it does at the next.

Legend: N rows, C candidate tokens.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.decoding.hypotheses import Draft, ranked
from spd_lsp.decoding.superposed import Drafts, Model, Start, superpose
from spd_lsp.evaluation.beam_search import EMPTY, Batch, Check, grow, longest
from spd_lsp.models.logits import log_softmax
from spd_lsp.settings import Settings

_SAMPLED = 3  # tokens that nucleus x superposed samples before it superposes the rest


@dataclass(frozen=True, slots=True)
class Chance:
    """How tokens are drawn: from the fewest that hold `top_p` of p_f^(1 / temperature); 0.9 as in the paper.

    This temperature sharpens model and n-grams together; that of the settings, the model alone.
    """

    top_p: float = 0.9
    temperature: float = 1.0


_AS_IT_COMES = Chance()


def nucleus(model: Model, start: Start, settings: Settings, check: Check, chance: Chance = _AS_IT_COMES) -> Drafts:
    """k samples, ranked by p_f; a text drawn twice counts once."""
    samples, batch = sample(model, start, settings, check, chance)
    return Drafts(_distinct(samples, start, settings), batch.passes, longest(samples), rows=batch.rows)


def nucleus_superposed(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """k samples of a few tokens, each finished with k superposed drafts; the best k of all (section 4.5)."""
    beginning = replace(settings, max_tokens=min(_SAMPLED, settings.max_tokens))
    rest = replace(settings, max_tokens=max(1, settings.max_tokens - _SAMPLED))
    samples, batch = sample(model, start, beginning, check)
    found: list[Draft] = []
    passes, rows = batch.passes, batch.rows
    for sampled in samples:
        if start.stop(sampled.ids) or len(sampled.ids) == settings.max_tokens:
            found.append(sampled)
            continue
        drafts = superpose(model, start.after(sampled.ids), rest, check)
        passes, rows = passes + drafts.passes, rows + drafts.rows + len(sampled.ids)
        found += [Draft((*sampled.ids, *draft.ids), sampled.score + draft.score) for draft in drafts.best]
    return Drafts(_distinct(found, start, settings), passes, longest(found), rows=rows)


def sample(
    model: Model, start: Start, settings: Settings, check: Check, chance: Chance = _AS_IT_COMES
) -> tuple[list[Draft], Batch]:
    """k samples from one prompt, and the batch they were rows of."""
    random = np.random.default_rng(_seed_of(start.prompt))
    batch = Batch(model, start, settings, check)
    options = batch.begin()
    live, parents = [EMPTY], [0] * settings.drafts
    done: list[Draft] = []
    while True:
        drawn = [grow(live, options, row, draw(options[1][row], random, chance)) for row in parents]
        ends = [len(draft.ids) == settings.max_tokens or start.stop(draft.ids) for draft in drawn]
        done += [draft for draft, ended in zip(drawn, ends, strict=True) if ended]
        live = [draft for draft, ended in zip(drawn, ends, strict=True) if not ended]
        if not live:
            return done, batch
        options = batch.go_on(live, [row for row, ended in zip(parents, ends, strict=True) if not ended])
        parents = list(range(len(live)))


def _seed_of(prompt: Sequence[int]) -> int:
    """A number that differs from prompt to prompt."""
    return zlib.crc32(np.asarray(prompt, dtype=np.int64).tobytes())


def draw(logp: Floats, random: np.random.Generator, chance: Chance = _AS_IT_COMES) -> int:
    """A place drawn from the fewest that hold top_p; `logp` [C] in any order.

    Example: p (.6, .05, .35) -> 0 or 2, with .63 and .37.
    """
    order = np.argsort(-logp, kind="stable")
    p = np.exp(log_softmax(logp[order] / chance.temperature))
    kept = int(np.searchsorted(np.cumsum(p), chance.top_p)) + 1
    return int(order[np.searchsorted(np.cumsum(p[:kept]), random.random() * p[:kept].sum(), side="right")])


def _distinct(drafts: list[Draft], start: Start, settings: Settings) -> list[Draft]:
    """The k best, each text once."""
    once = {draft.ids: draft for draft in drafts}.values()
    return ranked(once, settings.ranking, start.reads)[: settings.drafts]
