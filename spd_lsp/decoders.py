"""Other ways to write drafts, with the signature of `superpose`: for comparison, and as a setting.

None of them shares passes as `superpose` does: k samples cost k times the passes of one. Sampling begins from the
same seed each time, so that the same input gives the same drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spd_lsp.drafts import Draft, Drafts, Floats, Model, Start, by_mean_score, log_softmax, next_step, superpose
from spd_lsp.settings import Settings

Check = Callable[[], None]
Decoder = Callable[[Model, Start, Settings, Check], Drafts]

TOP_P = 0.9  # the mass that nucleus sampling keeps, as in the paper's comparisons
SAMPLED = 3  # tokens that nucleus x superposed samples before it superposes the rest


def greedy(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """One draft, the most likely token at each step."""
    return superpose(model, start, replace(settings, drafts=1), check)


def nucleus(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """k samples, one after the other."""
    random = np.random.default_rng(0)
    samples = [sample(model, start, settings, random, check) for _ in range(settings.drafts)]
    lengths = [len(draft.ids) for draft in samples]
    return Drafts(distinct(samples, settings.drafts), sum(lengths), max(lengths))


def nucleus_superposed(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """k samples of a few tokens, each finished with k superposed drafts; the best k of all (section 4.5)."""
    random = np.random.default_rng(0)
    beginning = replace(settings, max_tokens=min(SAMPLED, settings.max_tokens))
    rest = replace(settings, max_tokens=max(1, settings.max_tokens - SAMPLED))
    found: list[Draft] = []
    passes = 0
    for _ in range(settings.drafts):
        sampled = sample(model, start, beginning, random, check)
        passes += len(sampled.ids)
        if start.stop(sampled.ids) or len(sampled.ids) == settings.max_tokens:
            found.append(sampled)
            continue
        drafts = superpose(model, start.after(sampled.ids), rest, check)
        passes += drafts.passes
        found += [Draft((*sampled.ids, *draft.ids), sampled.score + draft.score) for draft in drafts.best]
    return Drafts(distinct(found, settings.drafts), passes, max(len(draft.ids) for draft in found))


def sample(model: Model, start: Start, settings: Settings, random: np.random.Generator, check: Check) -> Draft:
    """One draft, each token drawn from the fewest that hold TOP_P of p_f."""
    check()
    logits = model.prefill(start.prompt, check)
    draft = Draft((), 0.0)
    while True:
        options = next_step(logits, [draft], start, settings)
        draft = options[draw(np.array([option.score - draft.score for option in options]), random)]
        if len(draft.ids) == settings.max_tokens or start.stop(draft.ids):
            return draft
        check()
        logits = model.step(draft.ids[-1:], np.ones(1))


def draw(logp: Floats, random: np.random.Generator) -> int:
    """A place drawn from the fewest that hold TOP_P; `logp` [N] is sorted, best first.

    Example: p (.6, .35, .05) -> 0 or 1, with .63 and .37.
    """
    p = np.exp(log_softmax(logp))
    kept = int(np.searchsorted(np.cumsum(p), TOP_P)) + 1
    return int(random.choice(len(p[:kept]), p=p[:kept] / p[:kept].sum()))


def distinct(drafts: list[Draft], k: int) -> list[Draft]:
    """The k best, each text once."""
    return by_mean_score(list({draft.ids: draft for draft in drafts}.values()))[:k]


DECODERS: dict[str, Decoder] = {
    "superposed": superpose,
    "greedy": greedy,
    "nucleus": nucleus,
    "nucleus-superposed": nucleus_superposed,
}
