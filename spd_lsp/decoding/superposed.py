"""Superposed Decoding: prompt ids in, k drafts out, with one forward pass per token whatever k is.

Shen et al., "Superposed Decoding: Multiple Generations from a Single Autoregressive Inference Pass", NeurIPS 2024.
Sections of the paper are cited where they are computed. In its notation, for drafts i = 1 ... k:

    z_i      embedding of draft i's last token
    p_i      probability of draft i so far, exp(draft.score)
    gamma_i  p_i / sum_j p_j                          superposition weight     (section 3.1)
    x~       sum_i gamma_i z_i                        what the model reads     (section 3.1)
    p_theta  softmax(f(x~) / tau), its top r tokens   shared by all drafts     (section 3.1)
    p_f      p_theta^(1-alpha) p_ngram^alpha          of each draft            (section 3.2, `candidates.py`)

By default p_f is not the paper's, but a linear mixture (`_mix_candidates`).

Knows ids and probabilities only: no text, no tokenizer, no tensor library but NumPy.

Shapes: K live drafts, C candidate tokens, V vocabulary.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import TINY, Interpolation, fuse, log_z, top_allowed, top_candidates
from spd_lsp.settings import Settings

OPTIONS_PER_DRAFT = 4  # options examined per draft, even after enough drafts were found to continue
_MAX_CONTEXT = 8  # tokens of an n-gram history; no table has longer contexts
_PADDING = (-1,) * _MAX_CONTEXT  # before the start of a text
_EXPANSION_CHUNK = 40  # options taken out of NumPy at once: one by one is slow, all at once is wasted

TextOf = Callable[[tuple[int, ...]], Hashable]  # what a user sees of a draft
AllowedAfter = Callable[[tuple[int, ...]], Ids | None]  # the ids that may continue a draft; None: any


class Draft(NamedTuple):
    """Token ids after the prompt, and the sum of their log p_f."""

    ids: tuple[int, ...]
    score: float  # with merged drafts: log of the sum of their probabilities

    @property
    def mean_score(self) -> float:
        """The length-normalised score (section 3.2)."""
        return self.score / len(self.ids)


class Model(Protocol):
    """A language model with a KV cache; it returns the logits of the next token."""

    def prefill(self, ids: Sequence[int], check: Callable[[], None]) -> Floats:
        """Read a prompt, as far as it is not cached; `check` may raise to cancel. -> [V]"""

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position: the embeddings of `ids` mixed by `weights`, which sum to 1. -> [V]"""

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read a draft's last token; the rest of it was read since the prefill, in any order. -> [V]"""


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """What to continue, and when a draft is finished."""

    prompt: Sequence[int]
    stop: Callable[[tuple[int, ...]], bool]  # whether a draft, its last token included, is finished
    history: Sequence[int] = ()  # the text before the drafts, as n-grams see it
    interpolation: Interpolation | None = None
    allowed: AllowedAfter = lambda ids: None
    text_of: TextOf = tuple  # what a user sees of a draft: finished drafts that look the same are merged


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """The best k drafts, best first, and their cost."""

    best: list[Draft]
    passes: int  # forward passes, the prompt's counted as one
    longest: int  # tokens of the longest draft, whether or not it is among the best
    rows: int = 0  # positions read after the prompt: one per pass, or one per row of a batch
    spare: list[Draft] = field(default_factory=list)  # finished beyond k, in case some of the best look the same
    intermediate: list[Draft] = field(default_factory=list)  # that were live on the way: what drafts begin with

    def scored(self, ranking: str) -> list[tuple[tuple[int, ...], float]]:
        """Return ids and ranking score of each draft: the best, then the spare ones."""
        return [(draft.ids, ranking_score(draft, ranking)) for draft in [*self.best, *self.spare]]


class NextPass(NamedTuple):
    """What one forward pass is to read: a prompt, or one more position, x~ = sum_i weights_i z_i of its ids."""

    ids: Sequence[int]
    weights: Floats | None = None  # None: a prompt, as far as it is not cached


# Yields what each pass reads, and is sent its logits [V].
Decoding = Generator[NextPass, Floats, DecodingResult]


def superpose(
    model: Model,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None] = lambda: None,
    width: int = 0,
    kept: Callable[[Sequence[Draft]], Draft] = itemgetter(0),
) -> DecodingResult:
    """Return the best k drafts. `check` is called before each pass and may raise to cancel.

    `width` drafts are kept live (0: k). More of them cost no further passes, and leave more `spare` drafts.
    `kept` chooses the draft that a reset continues from the live ones, best first.
    """
    decoding = superposed_passes(request, settings, width, kept)
    following, result = advance(decoding, None)
    while result is None:
        assert following is not None
        check()
        ids, weights = following
        logits = model.prefill(ids, check) if weights is None else model.step(ids, weights)
        following, result = advance(decoding, logits)
    return result


def advance(decoding: Decoding, logits: Floats | None) -> tuple[NextPass | None, DecodingResult | None]:
    """Send the logits of a pass (None before the first); return the next pass, or the result."""
    try:
        return (next(decoding) if logits is None else decoding.send(logits)), None
    except StopIteration as done:
        return None, done.value


def superposed_passes(
    request: DecodingRequest,
    settings: Settings,
    width: int = 0,
    kept: Callable[[Sequence[Draft]], Draft] = itemgetter(0),
) -> Decoding:
    """Run Superposed Decoding: yield each pass, be sent its logits, and return the drafts."""
    k = settings.drafts
    ranking = settings.ranking
    logits = yield NextPass(request.prompt)
    options = first_drafts(logits, request, settings, width)
    live, ended = select_drafts(options, request, settings, width)
    finished = rank_drafts(ended, ranking, request.text_of)
    intermediate: list[Draft] = []
    passes, rows = 1, 0
    while passes < settings.max_tokens and not is_done(live, finished, k, ranking):
        if settings.reset_every and passes % settings.reset_every == 0:
            live = [kept(live)]  # section 5.3: one draft continues alone, from a cache of its own tokens
            logits = yield NextPass([*request.prompt, *live[0].ids])
            rows += passes
        else:
            rows += 1
            ids = [draft.ids[-1] for draft in live]
            logits = yield NextPass(ids, _superposition_weights(live))
        passes += 1
        intermediate += live
        live, ended = select_drafts(expand(logits, live, request, settings), request, settings, width)
        finished = rank_drafts([*finished, *ended], ranking, request.text_of)
    best = rank_drafts([*finished[:k], *live], ranking, request.text_of)[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return DecodingResult(best, passes, longest, rows=rows, spare=finished[k:], intermediate=intermediate)


def first_drafts(logits: Floats, request: DecodingRequest, settings: Settings, width: int = 0) -> Iterator[Draft]:
    """Yield the first tokens, best first: draft i begins with the i-th most likely one.

    Section 3.1: p_i = softmax(f(M) / tau) of prompt M; the paper's formula uses no n-grams in this step.
    """
    empty = Draft((), 0.0)
    if request.interpolation is not None and settings.interpolation == "linear":
        return expand(logits, [empty], request, settings)
    allowed = request.allowed(())
    ids = top_allowed(logits, 2 * (width or settings.drafts), allowed)  # [2k]: some may be finished at once
    support = logits if allowed is None else logits[allowed]
    log_p = logits[ids].astype(np.float64) / settings.temperature - log_z(support, settings.temperature)  # [2k]
    return _best_expansions([empty], ids, log_p[None])


def _superposition_weights(live: Sequence[Draft]) -> Floats:
    """Return gamma_i = p_i / sum_j p_j, the softmax of the draft scores (section 3.1). -> [K]"""
    best = max(draft.score for draft in live)
    p = [math.exp(draft.score - best) for draft in live]  # for so few numbers a loop is faster than NumPy
    total = sum(p)
    return np.array([p_i / total for p_i in p])  # [K]


def expand(logits: Floats, live: Sequence[Draft], request: DecodingRequest, settings: Settings) -> Iterator[Draft]:
    """Yield the K x C continuations, best first, from the logits [V] that all live drafts share."""
    # Drafts that any id may follow are expanded together, each of those that still spell what is typed alone.
    allowed = [request.allowed(draft.ids) for draft in live]
    free = [draft for draft, ids in zip(live, allowed, strict=True) if ids is None]
    groups: list[tuple[Ids | None, list[Draft]]] = [(None, free)] if free else []
    groups += [(ids, [draft]) for draft, ids in zip(live, allowed, strict=True) if ids is not None]
    options = [_expand_alike(logits, *group, request, settings) for group in groups]
    return options[0] if len(options) == 1 else heapq.merge(*options, key=lambda draft: -draft.score)


def _expand_alike(
    logits: Floats, allowed: Ids | None, live: Sequence[Draft], request: DecodingRequest, settings: Settings
) -> Iterator[Draft]:
    """Yield the continuations of drafts that the same ids may follow (None: any), from logits [V].

    The first token's probability is given that what is typed follows. Those of later ones are not: a draft that
    spells it in an unlikely way becomes unlikely.
    """
    before = (*_PADDING, *request.history)
    histories = np.array([(*before, *draft.ids)[-_MAX_CONTEXT:] for draft in live], dtype=np.int64)  # [K, 8]
    is_first = not live[0].ids
    ngrams = request.interpolation
    if ngrams is not None and settings.interpolation == "linear":
        ids, log_p_f = _mix_candidates(logits, histories, ngrams, settings, allowed, is_first=is_first)
    else:
        ids, log_p = top_candidates(logits, settings, allowed, is_first=is_first)  # [C], [C]
        log_p_f = log_p[None] if ngrams is None else fuse(log_p, ngrams(histories, ids), settings.alpha)
    return _best_expansions(live, ids, log_p_f)


def _mix_candidates(
    logits: Floats,
    histories: Ids,
    ngrams: Interpolation,
    settings: Settings,
    allowed: Ids | None,
    *,
    is_first: bool,
) -> tuple[Ids, Floats]:
    """Beyond the paper: mix candidates of the model and of the n-grams linearly, so that neither has a veto.

    The paper lets n-grams choose among the model's top tokens only, but a small model has rarely seen the names
    that a repository uses. Logits [V], shared by all drafts -> ids [C], log p_f [K, C].
    """
    # 1. The softmax, in the logits' own precision.
    p = (logits - logits.max()) / settings.temperature  # [V]
    np.exp(p, out=p)
    p /= p.sum()
    # 2. The mixture, of allowed tokens only.
    offered = p
    if allowed is not None:
        offered = np.full_like(p, -1)
        offered[allowed] = p[allowed]
    candidates, p_f = ngrams.mix_top(histories, offered, settings.candidates)  # [C], [K, C]
    # 3. The first token is given to be an allowed one. Of those that are no candidates, p is the model's alone.
    if allowed is not None and is_first:
        others = p[allowed].sum() - p[candidates].sum()
        total = p_f.sum(axis=1, keepdims=True) + np.maximum(others, 0)
        p_f = p_f / np.maximum(total, TINY)
    return candidates, np.log(np.maximum(p_f, TINY))


def _best_expansions(live: Sequence[Draft], candidates: Ids, log_p_f: Floats) -> Iterator[Draft]:
    """Yield each draft with one candidate more, by log p_i + log p_f (section 3.2); ties in order.

    log p_f is [K, C], or [1, C] if all drafts share it. Drafts are made lazily; those of score -inf never.
    """
    scores = np.array([[draft.score] for draft in live]) + log_p_f  # [K, C]
    flat = scores.ravel()
    tokens = candidates.tolist()
    order = np.argsort(-flat, kind="stable")  # [K C]
    for start in range(0, len(order), _EXPANSION_CHUNK):
        chunk = order[start : start + _EXPANSION_CHUNK]
        for index, score in zip(chunk.tolist(), flat[chunk].tolist(), strict=True):
            if score == -math.inf:
                return
            row, column = divmod(index, len(tokens))
            yield Draft((*live[row].ids, tokens[column]), score)


def select_drafts(
    options: Iterable[Draft], request: DecodingRequest, settings: Settings, width: int = 0
) -> tuple[list[Draft], list[Draft]]:
    """Split options, best first, into the best `width` (0: k) that continue, and finished ones met before them.

    Ranked by probability, some more options are examined: the ways to end a line add up to the draft's score.
    """
    k = width or settings.drafts
    min_options = 0 if settings.ranking == "mean" else OPTIONS_PER_DRAFT * k
    live: list[Draft] = []
    finished: list[Draft] = []
    for examined, option in enumerate(options, 1):
        if request.stop(option.ids):
            finished.append(option)
        elif len(live) < k:
            live.append(option)
        if len(live) == k and examined >= min_options:
            break
    return live, finished


def ranking_score(draft: Draft, ranking: str) -> float:
    """Return the log-score that a draft is ranked by, and that is shown."""
    return draft.mean_score if ranking == "mean" else draft.score


def rank_drafts(drafts: Iterable[Draft], ranking: str, text_of: TextOf) -> list[Draft]:
    """Return drafts best first, ties in order; by probability, those that look the same are merged.

    The mean (section 3.2, and beam search with a length penalty of 1) favours long drafts: every certain token
    raises it. A user wants the text that most probably follows, its end included: that is the probability of the
    whole draft. Then drafts that look the same are merged, whatever their tokens: a line may end with a line
    break, or with a line break and the next line's indentation in one token.

    Example: `x` and a line break .2, `x` and a line break with a space .1, `y` .25 -> `x` .3, `y` .25.
    """
    ranked = sorted(drafts, key=lambda draft: -ranking_score(draft, ranking))
    if ranking == "mean":
        return ranked
    by_text: dict[Hashable, Draft] = {}
    for draft in ranked:
        text = text_of(draft.ids)
        if best := by_text.get(text):  # the likeliest one with this text
            by_text[text] = Draft(best.ids, float(np.logaddexp(best.score, draft.score)))
        else:
            by_text[text] = draft
    return sorted(by_text.values(), key=lambda draft: -draft.score)


def is_done(live: Sequence[Draft], finished: Sequence[Draft], k: int, ranking: str) -> bool:
    """Whether no draft is live, or k are finished (best first) and beat every live one.

    A draft's probability only falls as it grows: by probability, the k can then no longer be beaten.
    """
    if not live:
        return True
    if len(finished) < k:
        return False
    best_live = max(ranking_score(draft, ranking) for draft in live)
    return best_live <= ranking_score(finished[k - 1], ranking)
