"""What every engine does: prompts are read once and stay cached, and drafts continue from them.

Ids or mixtures of ids come in; logits or log-probabilities go out as NumPy arrays. An engine adds how positions
are computed (`new_cache`, `forward_batch`); which prompts stay cached is decided here. Knows nothing of text,
drafts or tensors. An engine serves one thread at a time.

Legend: V vocabulary, T positions, N rows of a batch, K drafts.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.threads import ThreadCountTuner

CHUNK_SECONDS = 0.1  # for some of a prompt, which nobody can stop
MIN_CHUNK, MAX_CHUNK = 8, 512  # tokens of it; fewer are read no faster, and more are no cheaper
_WHOLE = np.ones(1)  # of a token that is not mixed with others
_MAX_DROPPED = (
    64  # tokens of a cached prompt; a bracket that the editor closes changes what is right of the cursor
)

WeightedTokens = tuple[Sequence[int], Floats]  # ids and the weights of their embeddings


class Cache(Protocol):
    """Keys and values of the positions read so far."""

    length: int  # how many

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on, and whatever an interrupted pass has left."""

    def fork(self, length: int) -> Any:
        """Another cache with the same first positions."""

    def select_rows(self, parents: Sequence[int]) -> Any:
        """A cache of N rows: row i continues row `parents[i]` of this one, which may have several itself."""


class ChunkSizer:
    """How many tokens of a prompt are read next, by the speed of the last ones: in a tenth of a second.

    Sizes are powers of two: small differences of speed change nothing that is computed.
    """

    def __init__(
        self,
        seconds: float = CHUNK_SECONDS,
        first: int = MIN_CHUNK,
        largest: int = MAX_CHUNK,
        least: int = MIN_CHUNK,
    ) -> None:
        self.seconds = seconds
        self.size = first
        self.least = least
        self.largest = largest

    def note(self, tokens: int, seconds: float) -> None:
        """Take account of how long a chunk took. Those of a few tokens, a key's, say little of longer ones."""
        if tokens < MIN_CHUNK:
            return
        self.size = self.least
        while self.size < self.largest and 2 * self.size * seconds <= tokens * self.seconds:
            self.size *= 2


@dataclass(eq=False)
class CachedPrompt:
    """A prompt that need not be read again."""

    cache: Any  # a Cache
    ids: list[int] = field(default_factory=list)  # what the cache holds, from its first position on
    logits: Floats | None = None  # after the last id, if they were computed [V]

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on, those of drafts included."""
        self.cache.crop(length)
        if length < len(self.ids):
            self.ids = self.ids[:length]
            self.logits = None


@dataclass(frozen=True, slots=True, eq=False)
class ForwardInput:
    """One request's part of a forward pass: one mixture for each of N rows, or T ids for each."""

    cache: Any  # a Cache, to which the new positions are added
    mixtures: Sequence[WeightedTokens] = ()  # N
    ids: Sequence[Sequence[int]] = ()  # [N, T]
    last_only: bool = False  # of the ids, compute the logits after the last one only


class Engine(ABC):
    """A language model with some cached prompts."""

    max_positions: int  # the longest text the model was made for, in tokens
    device: Any  # where the weights are
    predicts = True  # whether it says anything at all: see `no_model.py`
    most_prompts = 4  # that stay cached: as many files as one switches between
    forks_are_free = False  # whether caches share what they have in common, so that any draft read can go on

    def __init__(self) -> None:
        self.prompts = [CachedPrompt(self.new_cache())]  # least recently used first; the last is in use
        self.draft_cache: Any = None  # the cache of the last `step_rows`
        self.drafts_read: dict[tuple[int, ...], Any] = {}  # by `read_draft`: caches that hold each, and maybe more
        self.on_step: Callable[[float], None] = lambda seconds: None  # called with the time each step took
        self.before_chunk: Callable[[], None] = lambda: None  # called before some of a prompt is read
        self.threads: ThreadCountTuner | None = None
        self.clock = time.perf_counter
        self.chunks = ChunkSizer()
        self.positions_read = 0  # of all prompts: what was cached is not read

    @abstractmethod
    def new_cache(self) -> Any:
        """A Cache without positions."""

    @abstractmethod
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """Read the inputs of several requests, in one pass if the engine can.

        The logits for each: [N, V] after mixtures, [N, T, V] after ids, or [N, 1, V] after the last ones only.
        """

    def forward(self, mixtures: Sequence[WeightedTokens], cache: Any) -> Floats:
        """Add one position to each of N rows; the logits after it. [N, V]."""
        return self.forward_batch([ForwardInput(cache, mixtures)])[0]

    def forward_ids(self, ids: Sequence[Sequence[int]], cache: Any, *, last_only: bool = False) -> Floats:
        """Add T ids to each of N rows: logits [N, T, V], or [N, 1, V] after the last one only."""
        return self.forward_batch([ForwardInput(cache, ids=ids, last_only=last_only)])[0]

    def use_threads(self, tuner: ThreadCountTuner) -> None:
        """Compute with as many threads as this chooses by what it is told."""
        self.threads = tuner
        self.on_step = tuner.note_step
        self.before_chunk = tuner.look_around

    def release_memory(self) -> None:  # noqa: B027, few engines hold such
        """Give back what was needed for prompts that are not cached any more."""

    def limit_threads(self, count: int) -> None:
        """Compute with this many threads at most; 0: as many as measure best."""
        if self.threads:
            self.threads.limit_to(count)

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """Read a prompt, as far as it is not cached, and return the logits after its last token [V].

        `check` is called before each chunk of the prompt, and again and again by another thread while one is read
        that can be stopped: it only looks. If it raises, what was read so far stays valid.
        """
        ids = list(ids)
        assert ids, "a prompt has at least one token"
        prompt = self._cached_prompt(ids)
        while (start := len(prompt.ids)) < len(ids):
            check()
            self.before_chunk()
            chunk = ids[start : start + self.chunks.size]
            started = self.clock()
            prompt.logits = self.read_chunk(chunk, prompt.cache, check)
            self.chunks.note(len(chunk), self.clock() - started)
            prompt.ids = ids[: start + len(chunk)]
            self.positions_read += len(chunk)
        assert prompt.logits is not None
        return np.array(prompt.logits)

    def read_chunk(self, ids: Sequence[int], cache: Any, check: Callable[[], None]) -> Floats:
        """Read some of a prompt's tokens and return the logits after the last one [V]."""
        logits: Floats = self.forward_ids([ids], cache, last_only=True)[0, -1]
        return logits

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position, the superposed embedding of these ids, and return the logits after it [V]."""
        started = time.perf_counter()
        logits: Floats = self.forward([(ids, weights)], self._prompt_cache())[0]
        self.on_step(time.perf_counter() - started)
        return logits

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read the last token of a draft, whose others were read since the last prefill; the logits after it [V].

        Drafts of one parent may be read in any order.
        """
        started = time.perf_counter()
        parent = self.drafts_read[draft[:-1]] if draft[:-1] else self.prompts[-1].cache
        length = len(self.prompts[-1].ids) + len(draft) - 1
        cache = parent.fork(length) if not draft[:-1] or parent.length > length else parent
        logits: Floats = self.forward([(draft[-1:], _WHOLE)], cache)[0]
        self.drafts_read[draft] = cache
        self.on_step(time.perf_counter() - started)
        return logits

    def _prompt_cache(self) -> Any:
        assert self.draft_cache is None, "rows have been read since the last prefill: continue with those"
        return self.prompts[-1].cache

    def step_rows(self, rows: Sequence[WeightedTokens], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows and return their logits [N, V], in one forward pass.

        A row is (ids, weights) to superpose; row i continues row `parents[i]` of the last call. Before the first
        call there is one row, number 0: the prompt and what `step` has added.
        """
        return self.forward(rows, self._select_rows(parents))

    def _select_rows(self, parents: Sequence[int]) -> Any:
        self.draft_cache = self._before_drafts(parents).select_rows(parents)
        return self.draft_cache

    def _before_drafts(self, parents: Sequence[int]) -> Any:
        assert self.draft_cache is not None or not any(parents), "before the first call there is only number 0"
        return self.prompts[-1].cache if self.draft_cache is None else self.draft_cache

    def crop(self, length: int) -> None:
        """Drop the prompt's positions from `length` on, and those of drafts."""
        self._forget_drafts()
        self.prompts[-1].crop(length)

    def _forget_drafts(self) -> None:
        self.draft_cache = None
        self.drafts_read = {}

    def _cached_prompt(self, ids: list[int]) -> CachedPrompt:
        """The cache for a prompt, holding the positions known of it, moved to the end.

        It is the one with the longest common prefix, if that is nearly all of it. If it is not, the cache belongs
        to another text, or to one that may come back: the prefix is copied, and the least recently used prompt is
        evicted.
        """
        self._forget_drafts()
        lengths = [common_prefix_length(prompt.ids, ids) for prompt in self.prompts]
        length = max(lengths)
        prompt = self.prompts[lengths.index(length)]
        if 2 * length < len(prompt.ids) or length < len(prompt.ids) - _MAX_DROPPED:
            prompt = CachedPrompt(prompt.cache.fork(length), ids[:length])
            del self.prompts[: max(0, len(self.prompts) - self.most_prompts + 1)]
        else:
            self.prompts.remove(prompt)
        self.prompts.append(prompt)
        unchanged = len(prompt.ids) == len(ids) == length and prompt.logits is not None
        prompt.crop(length if unchanged else min(length, len(ids) - 1))  # the last token is read for its logits
        return prompt


def common_prefix_length(old: list[int], new: list[int]) -> int:
    """How many ids two sequences have in common from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    same = 0
    longest = min(len(old), len(new))
    while same < longest:  # halving: slices are compared quickly, and only from what is known to be the same
        middle = (same + longest + 1) // 2
        if old[same:middle] == new[same:middle]:
            same = middle
        else:
            longest = middle - 1
    return same
