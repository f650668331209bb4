"""Best-first beam search, lazily: each pass reads one token of one draft, the likeliest; the rest borrow.

Beam search reads k drafts at every length. A draft's probability only falls as it grows, so that one can read the
likeliest draft first, whatever its length, and stop once none can overtake the finished ones: the drafts are the
same, for fewer rows (Meister, Vieira and Cotterell, "Best-First Beam Search", TACL 2020). Here that goes for the
best draft. As soon as one is finished, those far behind are not read any more: each borrows the distribution of a
draft that was read at its length, as superposed drafts share one, with the n-grams of its own history.

For models whose rows cost what they are, such as llama.cpp's on a CPU.
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
    rank_drafts,
    ranking_score,
)
from spd_lsp.settings import Settings

_WORTH_READING = 0.5  # of the probability of the best finished draft; below, a draft borrows
_ROWS_PER_TOKEN = 2  # of the longest draft read, so that a text of which nothing is certain takes no beam's time


def best_first(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None] = lambda: None
) -> DecodingResult:
    """Return the best k drafts. `check` is called before each pass and may raise to cancel."""
    check()
    search = _Search(request, settings)
    search.add(first_drafts(model.prefill(request.prompt, check), request, settings))
    while (draft := search.pop()) is not None:
        if search.is_worth_reading(draft):
            check()
            search.read[draft.ids] = Read(draft, model.read_draft(draft.ids))
        lender = search.lender(draft)
        if lender is not None:
            search.add(expand(lender.logits, [draft], request, settings))
    return search.result()


class Read(NamedTuple):
    """A draft that was read, and the logits after it."""

    draft: Draft
    logits: Floats  # [V]


class _Search:
    """What was read and what can go on."""

    def __init__(self, request: DecodingRequest, settings: Settings) -> None:
        self.request, self.settings = request, settings
        self.queue: list[tuple[float, int, Draft]] = []  # likeliest first, equals in order
        self.numbers = count()
        self.finished: list[Draft] = []  # or at the limit of tokens, best first
        self.begun: list[Draft] = []  # that went on
        self.read: dict[tuple[int, ...], Read] = {}

    @property
    def longest_read(self) -> int:
        """Tokens of the longest draft that was read."""
        return max(map(len, self.read), default=0)

    @property
    def is_dear(self) -> bool:
        """Whether more rows were read than the longest draft has earned."""
        return len(self.read) >= _ROWS_PER_TOKEN * self.longest_read > 0

    def add(self, options: Iterable[Draft]) -> None:
        """Take note of a draft's continuations, best first."""
        ended: list[Draft] = []
        for option in islice(options, OPTIONS_PER_DRAFT * self.settings.drafts):
            if self.request.stop(option.ids) or len(option.ids) == self.settings.max_tokens:
                ended.append(option)
            else:
                self._push(option)
        if ended:
            self.finished = rank_drafts([*self.finished, *ended], self.settings.ranking, self.request.text_of)

    def _push(self, draft: Draft) -> None:
        heapq.heappush(self.queue, (-draft.score, next(self.numbers), draft))

    def pop(self) -> Draft | None:
        """The likeliest draft, of k of each length; None once none can become one of the best.

        Where rows are dear and none is finished, the likeliest of those that are longer than any that was read.
        """
        waiting: list[Draft] = []
        hurries = self.is_dear and not self.finished
        while (draft := self._pop_any()) is not None and hurries and len(draft.ids) <= self.longest_read:
            waiting.append(draft)
        if draft is None and waiting:
            draft = waiting.pop(0)
        for other in waiting:
            self._push(other)
        if draft is not None:
            self.begun.append(draft)
        return draft

    def _pop_any(self) -> Draft | None:
        k = self.settings.drafts
        while self.queue:
            draft = heapq.heappop(self.queue)[2]
            if len(self.finished) >= k and self._score(draft) <= self._score(self.finished[k - 1]):
                return None
            if sum(len(other.ids) == len(draft.ids) for other in self.begun) < k:
                return draft
        return None

    def is_worth_reading(self, draft: Draft) -> bool:
        """Whether a draft may turn out to be the best, or nearly so, and the rest of it was read."""
        best = self.finished[0].score if self.finished else -math.inf
        is_next = len(draft.ids) > self.longest_read or not (self.is_dear and self.finished)
        is_child = len(draft.ids) == 1 or draft.ids[:-1] in self.read
        return is_child and is_next and draft.score >= best + math.log(_WORTH_READING)

    def lender(self, draft: Draft) -> Read | None:
        """What a draft goes on from: itself if it was read, or another of its length; None if there is none.

        Of those that end in the same token, if there are any, the likeliest.
        """
        alike = [one for ids, one in self.read.items() if len(ids) == len(draft.ids)]
        nearest = max(alike, key=lambda one: (one.draft.ids[-1] == draft.ids[-1], one.draft.score), default=None)
        return self.read.get(draft.ids, nearest)

    def result(self) -> DecodingResult:
        """The best k drafts and their cost."""
        k, rows = self.settings.drafts, len(self.read)
        longest = max(len(draft.ids) for draft in self.finished)
        return DecodingResult(self.finished[:k], 1 + rows, longest, rows, self.finished[k:], self.begun)

    def _score(self, draft: Draft) -> float:
        return ranking_score(draft, self.settings.ranking)
