"""Between superposed decoding and beam search: k drafts in g streams, one forward pass of g rows for each token.

A stream is superposed decoding on a row of its own: the row has read mixtures of its drafts' tokens, no others.
A draft goes on from the row that its parent was read in, as it has no other past. So drafts of one row may be
parted, each part on a copy of that row; drafts of different rows never join. With one stream this is `superpose`;
with as many as drafts each reads its own tokens, which is beam search.

Comes in: a model that can step rows. Goes out: drafts. Knows no text.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ngram_builders.arrays import Floats
from spd_lsp.decoding.hypotheses import Draft, is_done, rank_drafts
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Model,
    expand,
    first_drafts,
    select_drafts,
    superposition_weights,
)
from spd_lsp.settings import Settings


class Stream(NamedTuple):
    """Drafts that are read together, and the row of the pass before that they go on from."""

    members: list[Draft]
    row: int


def superpose_streams(
    model: Model, start: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Write k drafts in `settings.streams` rows, or fewer if there is nothing left to part."""
    k, by = settings.drafts, settings.ranking
    check()
    logits = model.prefill(start.prompt, check)
    live, ended = select_drafts(first_drafts(logits, start, settings), start, settings)
    finished = rank_drafts(ended, by, start.text_of)
    held, passes, rows = [Stream(live, 0)], 1, 0
    while passes < settings.max_tokens and not is_done(live, finished, k, by):
        check()
        if settings.reset_every and passes % settings.reset_every == 0:
            held = [Stream(live[:1], 0)]  # as in `superpose`
            each = model.prefill([*start.prompt, *live[0].ids], check)[None]
        else:
            held = split_streams(held, settings.streams)
            mixtures = [
                ([draft.ids[-1] for draft in one.members], superposition_weights(one.members)) for one in held
            ]
            each = model.step_rows(mixtures, [one.row for one in held])
        passes, rows = passes + 1, rows + len(held)
        live, ended = select_drafts(options(each, held, start, settings), start, settings)
        finished = rank_drafts([*finished, *ended], by, start.text_of)
        held = regroup(live, held)
    best = rank_drafts([*finished[:k], *live], by, start.text_of)[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return DecodingResult(best, passes, longest, rows=rows, spare=finished[k:])


def options(logits: Floats, held: Sequence[Stream], start: DecodingRequest, settings: Settings) -> Iterator[Draft]:
    """The ways to go on, best first: of each stream by the logits of its own row. [g, V]."""
    each = [expand(row, one.members, start, settings) for row, one in zip(logits, held, strict=True)]
    return heapq.merge(*each, key=lambda draft: -draft.score)


def regroup(live: Sequence[Draft], held: Sequence[Stream]) -> list[Stream]:
    """Drafts by the stream that their parents were members of."""
    home = {parent.ids: row for row, one in enumerate(held) for parent in one.members}
    found: dict[int, list[Draft]] = {}
    for draft in live:
        found.setdefault(home[draft.ids[:-1]], []).append(draft)
    return [Stream(members, row) for row, members in found.items()]


def split_streams(held: Sequence[Stream], most: int) -> list[Stream]:
    """Take drafts out, one by one, each to a copy of its row, until there are `most` streams or no mixtures.

    Next is always the draft whose leaving gains most of what drafts read of themselves.
    """
    best = max(draft.score for one in held for draft in one.members)
    found = list(held)
    while len(found) < most and any(len(one.members) > 1 for one in found):
        ways = [(i, at) for i, one in enumerate(found) if len(one.members) > 1 for at in range(len(one.members))]
        i, at = max(ways, key=lambda way: gain([draft.score - best for draft in found[way[0]].members], way[1]))
        members, row = found[i]
        found[i : i + 1] = [Stream([members[at]], row), Stream([*members[:at], *members[at + 1 :]], row)]
    return found


def gain(scores: Sequence[float], at: int) -> float:
    """By how much `own_share` grows if one draft leaves the others."""
    return math.exp(scores[at]) + own_share([*scores[:at], *scores[at + 1 :]]) - own_share(scores)


def own_share(scores: Sequence[float]) -> float:
    """sum_i p_i gamma_i: how much of what drafts read together is their own, likely drafts counting more.

    Example: p of .6 and .2 -> .6 * .75 + .2 * .25 = .5; apart it is .8.
    """
    p = [math.exp(score) for score in scores]
    total = sum(p)
    return sum(p_i * p_i for p_i in p) / total if total else 0.0
