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
from typing import Any, Protocol, TypeVar

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.logits import log_softmax
from spd_lsp.models.threads import ThreadCountTuner
from spd_lsp.models.topk import TopK, TopKRequest, select_top_k, unpack_top_k
from spd_lsp.models.topk import WeightedTokens as WeightedTokens

CHUNK_SECONDS = 0.1  # for some of a prompt, which nobody can stop
MIN_CHUNK, MAX_CHUNK = 8, 512  # tokens of it; fewer are read no faster, and more are no cheaper
SCORED_CHUNK = 128  # tokens whose logits are all computed in one pass
MAX_CACHED_PROMPTS = 4  # as many files as one switches between
_WHOLE = np.ones(1)  # of a token that is not mixed with others
_MAX_DROPPED = (
    64  # tokens of a cached prompt; a bracket that the editor closes changes what is right of the cursor
)

Result = TypeVar("Result")


class Cache(Protocol):
    """Keys and values of the positions read so far."""

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
        self.least, self.largest = least, largest

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
            self.ids, self.logits = self.ids[:length], None


@dataclass(frozen=True, slots=True, eq=False)
class ForwardInput:
    """One request's part of a forward pass: one mixture for each of N rows, or T ids for each."""

    cache: Any  # a Cache, to which the new positions are added
    mixtures: Sequence[WeightedTokens] = ()  # N
    ids: Sequence[Sequence[int]] = ()  # [N, T]
    last_only: bool = False  # of the ids, compute the logits after the last one only
    top_k: TopKRequest | None = None  # of the mixtures, return these logits only, as `unpack_top_k` reads them


class Engine(ABC):
    """A language model with some cached prompts."""

    max_positions: int  # the longest text the model was made for, in tokens
    device: Any  # where the weights are
    selects_on_device = False  # whether `step_top_k` is faster than `step`, as only few logits leave the device
    predicts = True  # whether it says anything at all: see `no_model.py`
    second_row_is_free = False  # whether a pass of two rows takes about the time of one: measured on a GPU
    forks_are_free = False  # whether caches share what they have in common, so that any draft read can go on
    oom_fallback: OomFallback | None = None

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

    def run_request(self, request: Callable[[Engine], Result]) -> Result:
        """The result of a request, run again on the fallback engine if this one runs out of memory."""
        return request(self) if self.oom_fallback is None else self.oom_fallback.run(self, request)

    def use_threads(self, tuner: ThreadCountTuner) -> None:
        """Compute with as many threads as this chooses by what it is told."""
        self.threads, self.on_step, self.before_chunk = tuner, tuner.note_step, tuner.look_around

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

    def step_top_k(
        self, ids: Sequence[int], weights: Floats, k: int, extra_ids: Ids, temperature: float = 1.0
    ) -> TopK:
        """As `step`, but return only the k largest logits and those of some further ids."""
        if not self.selects_on_device:
            return select_top_k(self.step(ids, weights), k, extra_ids, temperature)
        top_k = TopKRequest(k, [extra_ids], temperature)
        [[row]] = self.forward_batch([ForwardInput(self._prompt_cache(), [(ids, weights)], top_k=top_k)])
        return unpack_top_k(row, k, len(extra_ids))

    def _prompt_cache(self) -> Any:
        assert self.draft_cache is None, "rows have been read since the last prefill: continue with those"
        return self.prompts[-1].cache

    def step_rows(self, rows: Sequence[WeightedTokens], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows and return their logits [N, V], in one forward pass.

        A row is (ids, weights) to superpose; row i continues row `parents[i]` of the last call. Before the first
        call there is one row, number 0: the prompt and what `step` has added.
        """
        return self.forward(rows, self._select_rows(parents))

    def step_rows_top_k(
        self, rows: Sequence[WeightedTokens], parents: Sequence[int], request: TopKRequest
    ) -> list[TopK]:
        """As `step_rows`, but return only the k largest logits of each row and those of its further ids."""
        k, extra_ids = request.k, request.extra_ids
        if not self.selects_on_device:
            logits = self.step_rows(rows, parents)
            pairs = zip(logits, extra_ids, strict=True)
            return [select_top_k(row, k, extra, request.temperature) for row, extra in pairs]
        top_k = request.padded()
        [found] = self.forward_batch([ForwardInput(self._select_rows(parents), rows, top_k=top_k)])
        return [unpack_top_k(row, k, len(extra)) for row, extra in zip(found, extra_ids, strict=True)]

    def _select_rows(self, parents: Sequence[int]) -> Any:
        self.draft_cache = self._before_drafts(parents).select_rows(parents)
        return self.draft_cache

    def _before_drafts(self, parents: Sequence[int]) -> Any:
        assert self.draft_cache is not None or not any(parents), "before the first call there is only number 0"
        return self.prompts[-1].cache if self.draft_cache is None else self.draft_cache

    def score_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """log p of each token of each draft after the last prefill's prompt, all drafts in one forward pass.

        The cache is left as after the prefill, whose logits score the first tokens.
        """
        prompt = self.prompts[-1]
        assert prompt.logits is not None, "drafts are scored after a prefill"
        self.crop(len(prompt.ids))
        longest = max(len(draft) for draft in drafts) - 1  # the logits after a draft's last token are not needed
        if longest < 1:
            return [token_log_probs(prompt.logits[None], draft) for draft in drafts]
        # Shorter drafts are padded on the right, where none of their own tokens attends.
        padded = [[*draft[:-1], *[0] * longest][:longest] for draft in drafts]
        logits = self.forward_ids(padded, prompt.cache.select_rows([0] * len(drafts)))  # [N, T, V]
        return [
            token_log_probs(np.concatenate([prompt.logits[None], rest[: len(draft) - 1]]), draft)
            for draft, rest in zip(drafts, logits, strict=True)
        ]

    def token_probabilities(self, ids: Sequence[int]) -> Floats:
        """The probability of each id but the first, given those before it, and of the likeliest one there.

        No prompt is cached. [2, T - 1].
        """
        cache = self.new_cache()
        parts = [np.empty((2, 0))]
        for start in range(0, len(ids) - 1, SCORED_CHUNK):
            log_p = log_softmax(self.forward_ids([ids[start : start + SCORED_CHUNK]], cache)[0])
            following = ids[start + 1 : start + SCORED_CHUNK + 1]
            log_p = log_p[: len(following)]
            parts.append(np.stack([log_p[np.arange(len(following)), list(following)], log_p.max(axis=1)]))
        return np.asarray(np.exp(np.concatenate(parts, axis=1)))

    def crop(self, length: int) -> None:
        """Drop the prompt's positions from `length` on, and those of drafts."""
        self._forget_drafts()
        self.prompts[-1].crop(length)

    def release(self) -> None:
        """Free the memory of this engine, which cannot be used any more."""
        self._forget_drafts()
        self.prompts = []

    def _forget_drafts(self) -> None:
        self.draft_cache, self.drafts_read = None, {}

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
            del self.prompts[: max(0, len(self.prompts) - MAX_CACHED_PROMPTS + 1)]
        else:
            self.prompts.remove(prompt)
        self.prompts.append(prompt)
        unchanged = len(prompt.ids) == len(ids) == length and prompt.logits is not None
        prompt.crop(length if unchanged else min(length, len(ids) - 1))  # the last token is read for its logits
        return prompt


class OomFallback:
    """Runs requests on an engine until it raises `error`, and from then on another.

    A request changes nothing but caches: running it again gives what the first time would have given.
    """

    def __init__(
        self, error: type[Exception], reopen: Callable[[], Engine], report: Callable[[str], None]
    ) -> None:
        """`reopen` opens the engine to fall back to; `report` is called when that happens."""
        self.error = error
        self.reopen = reopen
        self.report = report
        self.engine: Engine | None = None  # the one fallen back to

    def run(self, engine: Engine, request: Callable[[Engine], Result]) -> Result:
        """The result of a request."""
        if self.engine is None:
            try:
                return request(engine)
            except self.error:
                self.report(f"{engine.device} ran out of memory; continuing on the CPU, which is slower")
            self.engine = self.reopen()
            engine.release()
            engine.device, engine.second_row_is_free = self.engine.device, self.engine.second_row_is_free
        return request(self.engine)


def common_prefix_length(old: list[int], new: list[int]) -> int:
    """How many ids two sequences have in common from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    same, longest = 0, min(len(old), len(new))
    while same < longest:  # halving: slices are compared quickly, and only from what is known to be the same
        middle = (same + longest + 1) // 2
        if old[same:middle] == new[same:middle]:
            same = middle
        else:
            longest = middle - 1
    return same


def token_log_probs(logits: Floats, ids: Sequence[int]) -> Floats:
    """The log-probability of one id under each row of logits; surplus rows are ignored. [T, V] -> [T]."""
    return np.asarray(log_softmax(logits[: len(ids)])[np.arange(len(ids)), list(ids)])
