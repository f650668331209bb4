"""Between superposed decoding and beam search: k drafts in g streams, one forward pass of g rows per token.

A stream is superposed decoding in a row of its own, whose cache holds mixtures of its own drafts' tokens only. A
draft continues the row of its parent, since that row holds its past. So a stream can be split, each part with a
copy of the row, but two streams cannot be joined. One stream is `superpose`; as many as drafts are beam search.

Legend: g streams, V vocabulary.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

from spd_lsp.decoding.candidates import ngram_proposals, score_selected
from spd_lsp.decoding.superposed import (
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    SelectingModel,
    best_expansions,
    expand,
    first_drafts,
    is_done,
    ngram_histories,
    rank_drafts,
    select_drafts,
    selects_on_device,
    superposition_weights,
)
from spd_lsp.models.topk import TopKRequest, WeightedTokens
from spd_lsp.settings import Settings


class Stream(NamedTuple):
    """Drafts that share a row, and the row of the last pass that they continue."""

    members: list[Draft]
    row: int


def superpose_streams(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Return the best k drafts of `settings.streams` streams."""
    k, ranking = settings.drafts, settings.ranking
    check()
    logits = model.prefill(request.prompt, check)
    live, ended = select_drafts(first_drafts(logits, request, settings), request, settings)
    finished = rank_drafts(ended, ranking, request.text_of)
    begun: list[Draft] = []
    streams, passes, rows = [Stream(live, 0)], 1, 0
    while passes < settings.max_tokens and not is_done(live, finished, k, ranking):
        check()
        if settings.reset_every and passes % settings.reset_every == 0:
            streams = [Stream(live[:1], 0)]  # as in `superpose`
            logits = model.prefill([*request.prompt, *live[0].ids], check)
            options = expand(logits, streams[0].members, request, settings)
        else:
            streams = split_streams(streams, settings.streams)
            options = _step_streams(model, streams, request, settings)
        passes, rows = passes + 1, rows + len(streams)
        begun += live
        live, ended = select_drafts(options, request, settings)
        finished = rank_drafts([*finished, *ended], ranking, request.text_of)
        streams = regroup(live, streams)
    best = rank_drafts([*finished[:k], *live], ranking, request.text_of)[:k]
    longest = max(len(draft.ids) for draft in [*finished, *live])
    return DecodingResult(best, passes, longest, rows=rows, spare=finished[k:], begun=begun)


def _step_streams(
    model: Model, streams: Sequence[Stream], request: DecodingRequest, settings: Settings
) -> Iterator[Draft]:
    """Yield the continuations of all drafts, best first, after one forward pass of g rows."""
    drafts, parents = [stream.members for stream in streams], [stream.row for stream in streams]
    mixtures = [([draft.ids[-1] for draft in members], superposition_weights(members)) for members in drafts]
    if selects_on_device(model, [draft for members in drafts for draft in members], request):
        options = _step_and_select(cast(SelectingModel, model), mixtures, parents, drafts, request, settings)
    else:
        rows = zip(model.step_rows(mixtures, parents), drafts, strict=True)  # g times [V] and a stream's drafts
        options = [expand(logits, members, request, settings) for logits, members in rows]
    return heapq.merge(*options, key=lambda draft: -draft.score)


def _step_and_select(
    model: SelectingModel,
    mixtures: Sequence[WeightedTokens],
    parents: Sequence[int],
    drafts: Sequence[Sequence[Draft]],
    request: DecodingRequest,
    settings: Settings,
) -> list[Iterator[Draft]]:
    """Yield the continuations of each stream, from the few logits that its drafts need."""
    interpolation = request.interpolation
    histories = [ngram_histories(request, members) for members in drafts]
    proposals = [ngram_proposals(each, interpolation, settings) for each in histories]
    wanted = TopKRequest(settings.candidates, proposals, settings.temperature)
    rows = zip(model.step_rows_top_k(mixtures, parents, wanted), proposals, histories, strict=True)
    scored = [score_selected(*row, interpolation, settings) for row in rows]
    return [best_expansions(members, *row) for members, row in zip(drafts, scored, strict=True)]


def regroup(live: Sequence[Draft], streams: Sequence[Stream]) -> list[Stream]:
    """Group drafts by the stream that their parents were in."""
    row_of = {parent.ids: row for row, stream in enumerate(streams) for parent in stream.members}
    members: dict[int, list[Draft]] = {}
    for draft in live:
        members.setdefault(row_of[draft.ids[:-1]], []).append(draft)
    return [Stream(drafts, row) for row, drafts in members.items()]


def split_streams(streams: Sequence[Stream], count: int) -> list[Stream]:
    """Move drafts to streams of their own until there are `count`, or every draft is alone.

    Each step moves the draft whose departure raises `own_share` most.
    """
    best = max(draft.score for stream in streams for draft in stream.members)
    split = list(streams)
    while len(split) < count and any(len(stream.members) > 1 for stream in split):
        choices = [
            (number, member)
            for number, stream in enumerate(split)
            if len(stream.members) > 1
            for member in range(len(stream.members))
        ]
        number, member = max(choices, key=lambda choice: _gain(_scores(split[choice[0]], best), choice[1]))
        members, row = split[number]
        others = [*members[:member], *members[member + 1 :]]
        split[number : number + 1] = [Stream([members[member]], row), Stream(others, row)]
    return split


def _scores(stream: Stream, best: float) -> list[float]:
    """Return the scores of a stream's drafts relative to the best of all."""
    return [draft.score - best for draft in stream.members]


def _gain(scores: Sequence[float], leaving: int) -> float:
    """Return how much `own_share` grows if one draft leaves the others."""
    others = [*scores[:leaving], *scores[leaving + 1 :]]
    return math.exp(scores[leaving]) + own_share(others) - own_share(scores)


def own_share(scores: Sequence[float]) -> float:
    """Return sum_i p_i gamma_i: how much of the mixture is each draft's own token, weighted by probability.

    Example: p of .6 and .2 -> .6 * .75 + .2 * .25 = .5; apart it is .8.
    """
    p = [math.exp(score) for score in scores]
    total = sum(p)
    return sum(p_i * p_i for p_i in p) / total if total else 0.0
