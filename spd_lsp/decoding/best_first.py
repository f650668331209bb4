"""Best-first beam search: each pass reads one token of the likeliest draft; unlikely ones reuse a distribution.

Beam search reads k drafts of every length. But a draft's probability only falls as it grows: whoever reads the
likeliest draft first, whatever its length, and stops once none can overtake the finished ones, finds the same
drafts with fewer rows (Meister, Vieira and Cotterell, "Best-First Beam Search", TACL 2020). Here that goes for the
best draft. Once one is finished, unlikely ones behind it are not read any more: each reuses the distribution of
a draft of its length that was read, as superposed drafts share one, mixed with the n-grams of its own history.

For models whose rows cost what they are, such as those of llama.cpp on a CPU.

Legend: V vocabulary.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import NamedTuple

from ngram_builders.arrays import Floats
from spd_lsp.decoding.superposed import (
    OPTIONS_PER_DRAFT,
    DecodingRequest,
    DecodingResult,
    Draft,
    Model,
    expand,
    first_drafts,
    is_done,
    rank_drafts,
)
from spd_lsp.settings import Settings

_WORTH_READING = 0.05  # the probability from which a draft is read even if it cannot become the best
_MAX_READ = 3  # drafts of one length, however many are wanted


def best_first(
    model: Model,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None] = lambda: None,
) -> DecodingResult:
    """Return the best k drafts. `check` is called before each pass and may raise to cancel."""
    check()
    search = _Search(request, settings)
    logits = model.prefill(request.prompt, check)  # [V]
    search.add(first_drafts(logits, request, settings, width=2 * settings.drafts))
    while (draft := search.pop()) is not None:
        if search.is_worth_reading(draft):
            check()
            search.read.append(Read(draft, model.read_draft(draft.ids)))
        source = search.source(draft)
        if source is not None:
            search.add(expand(source.logits, [draft], request, settings))
    return search.result()


class Read(NamedTuple):
    """A draft that was read, and the logits after it."""

    draft: Draft
    logits: Floats  # [V]


class _Search:
    """What was read and what can go on."""

    def __init__(self, request: DecodingRequest, settings: Settings) -> None:
        self.request = request
        self.settings = settings
        self.queue: list[tuple[float, int, Draft]] = []  # likeliest first, equals in order
        self.numbers = count()
        self.finished: list[Draft] = []  # or at the limit of tokens; best first
        self.intermediate: list[Draft] = []  # that went on
        self.read: list[Read] = []

    def add(self, options: Iterable[Draft]) -> None:
        """Take note of a draft's continuations, best first."""
        ended: list[Draft] = []
        for option in islice(options, OPTIONS_PER_DRAFT * self.settings.drafts):
            if self.request.stop(option.ids) or len(option.ids) == self.settings.max_tokens:
                ended.append(option)
            else:
                heapq.heappush(self.queue, (-option.score, next(self.numbers), option))
        if ended:
            self.finished = rank_drafts([*self.finished, *ended], self.settings.ranking, self.request.text_of)

    def pop(self) -> Draft | None:
        """Take out the likeliest draft, of each length k at most; None once none can become one of the best."""
        k = self.settings.drafts
        while self.queue:
            draft = heapq.heappop(self.queue)[2]
            if is_done([draft], self.finished, k, self.settings.ranking):
                return None
            if len(_as_long(draft, self.intermediate)) < k:
                self.intermediate.append(draft)
                return draft
        return None

    def is_worth_reading(self, draft: Draft) -> bool:
        """Whether it may be best or is likely, or has no distribution to reuse; and the rest of it was read."""
        read = [one.draft for one in self.read]
        if len(draft.ids) > 1 and not any(one.ids == draft.ids[:-1] for one in read):
            return False
        best = self.finished[0].score if self.finished else -math.inf
        others = _as_long(draft, read)
        return not others or (len(others) < _MAX_READ and draft.score >= min(best, math.log(_WORTH_READING)))

    def source(self, draft: Draft) -> Read | None:
        """What a draft goes on from: itself if it was read, or another of its length; None if there is none.

        Of those that end in the same token, if there are any, the likeliest.
        """

        def nearness(one: Read) -> tuple[bool, bool, float]:
            return one.draft == draft, one.draft.ids[-1] == draft.ids[-1], one.draft.score

        possible = (one for one in self.read if len(one.draft.ids) == len(draft.ids))
        return max(possible, key=nearness, default=None)

    def result(self) -> DecodingResult:
        """The best k drafts and their cost."""
        k = self.settings.drafts
        rows = len(self.read)
        drafts = self.finished or self.intermediate[-1:]  # nothing may be able to follow
        longest = max(len(draft.ids) for draft in drafts)
        return DecodingResult(drafts[:k], 1 + rows, longest, rows, drafts[k:], self.intermediate)


def _as_long(draft: Draft, others: Iterable[Draft]) -> list[Draft]:
    """Those with as many tokens."""
    return [other for other in others if len(other.ids) == len(draft.ids)]
