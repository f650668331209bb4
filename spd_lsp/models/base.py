"""What every engine does: prompts are read once and stay cached, and drafts continue from them.

Ids or mixtures of ids come in; logits or log-probabilities go out as NumPy arrays. An engine adds how positions
are computed (`new_cache`, `forward_batch`); which prompts stay cached is decided here. Knows nothing of text,
drafts or tensors. An engine serves one thread at a time.

Legend: V vocabulary, T positions, N rows of a batch, K drafts.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.logits import Wanted

_MAX_DRAFT_STATES = 8  # where caches are states; siblings are mostly read soon after each other
_WHOLE = np.ones(1)  # of a token that is not mixed with others
_MAX_DROPPED = 64  # tokens of a cached prompt; a bracket that the editor closes changes what is right of it
_LOOK_SECONDS = 0.25  # between two looks at what other programs compute
_MAX_STEP_THREADS = 4  # a step waits for memory rather than for arithmetic
_CPUS, _TIMES = Path("/sys/devices/system/cpu"), Path("/proc/stat")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")

WeightedTokens = tuple[Sequence[int], Floats]  # ids and the weights of their embeddings


class Cache(Protocol):
    """Keys and values of the positions read so far, or states after some of them: see `Engine.keeps_positions`."""

    length: int  # how many

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on, and whatever an interrupted pass has left."""

    def fork(self, length: int) -> Any:
        """Another cache with the same first positions."""

    def select_rows(self, parents: Sequence[int]) -> Any:
        """A cache of N rows: row i continues row `parents[i]` of this one, which may have several itself."""


@dataclass(eq=False)
class CachedPrompt:
    """A prompt that need not be read again."""

    cache: Any  # a Cache
    ids: list[int] = field(default_factory=list)  # what the cache holds, from its first position on
    logits: Floats | None = None  # after the last id, if they were computed [V]

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on, those of drafts included."""
        self.cache.crop(length)
        kept = min(length, self.cache.length)
        if kept < len(self.ids):
            self.ids = self.ids[:kept]
            self.logits = None


@dataclass(frozen=True, slots=True, eq=False)
class ForwardInput:
    """One request's part of a forward pass: one mixture for each of N rows, or T ids for each."""

    cache: Any  # a Cache, to which the new positions are added
    mixtures: Sequence[WeightedTokens] = ()  # N
    ids: Sequence[Sequence[int]] = ()  # [N, T]
    last_only: bool = False  # of the ids, compute the logits after the last one only
    wanted: Wanted | None = None  # of the logits after the only mixture; None: all of them


class Engine(ABC):
    """A language model with some cached prompts."""

    max_positions: int  # the longest text the model was made for, in tokens
    device: Any  # where the weights are
    predicts = True  # whether it says anything at all: see `no_model.py`
    chunk = 64  # tokens of a prompt that one pass reads: more are hardly cheaper, and cannot be stopped sooner
    most_prompts = 4  # that stay cached: as many files as one switches between
    forks_are_free = False  # whether caches share what they have in common, so that any draft read can go on
    selects = False  # whether it makes a `Shortlist` of what is wanted of the logits after a step
    keeps_positions = True  # or else a cache that is cropped may be shorter, and only forks of one go on

    def __init__(self) -> None:
        self.prompts = [CachedPrompt(self.new_cache())]  # least recently used first; the last is in use
        self.draft_cache: Any = None  # the cache of the last `step_rows`
        self.drafts_read: dict[tuple[int, ...], Any] = {}  # by `read_draft`: caches that hold each, and maybe more
        self.threads = ThreadCounts(lambda step, prompt: None)
        self.positions_read = 0  # of all prompts: what was cached is not read

    @abstractmethod
    def new_cache(self) -> Any:
        """A Cache without positions."""

    @abstractmethod
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Any]:
        """Read the inputs of several requests, in one pass if the engine can.

        The logits for each: [N, V] after mixtures, [N, T, V] after ids, or [N, 1, V] after the last ones only; or
        the `Shortlist` of what is wanted of them.
        """

    def forward(self, mixtures: Sequence[WeightedTokens], cache: Any) -> Floats:
        """Add one position to each of N rows; the logits after it. [N, V]."""
        logits: Floats = self.forward_batch([ForwardInput(cache, mixtures)])[0]
        return logits

    def forward_ids(self, ids: Sequence[Sequence[int]], cache: Any, *, last_only: bool = False) -> Floats:
        """Add T ids to each of N rows: logits [N, T, V], or [N, 1, V] after the last one only."""
        logits: Floats = self.forward_batch([ForwardInput(cache, ids=ids, last_only=last_only)])[0]
        return logits

    def limit_threads(self, count: int) -> None:
        """Compute with this many threads at most; 0: as many as there are free cores."""
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
            self.threads.look_around()
            chunk = ids[start : start + self.chunk]
            prompt.logits = self.read_chunk(chunk, prompt.cache, check)
            prompt.ids = ids[: start + len(chunk)]
            self.positions_read += len(chunk)
        assert prompt.logits is not None
        return np.array(prompt.logits)

    def read_chunk(self, ids: Sequence[int], cache: Any, check: Callable[[], None]) -> Floats:
        """Read some of a prompt's tokens and return the logits after the last one [V]."""
        logits: Floats = self.forward_ids([ids], cache, last_only=True)[0, -1]
        return logits

    def step(self, ids: Sequence[int], weights: Floats, wanted: Wanted | None = None) -> Any:
        """Read one more position, the superposed embedding of these ids, and return the logits after it [V].

        Or the `Shortlist` of what is wanted of them, if the engine `selects`.
        """
        assert self.draft_cache is None, "rows have been read since the last prefill: continue with those"
        self.threads.look_around()
        wanted = wanted if self.selects else None
        [logits] = self.forward_batch([ForwardInput(self.prompts[-1].cache, [(ids, weights)], wanted=wanted)])
        return logits if wanted else logits[0]

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read the last token of a draft, whose others were read since the last prefill; the logits after it [V].

        Drafts of one parent may be read in any order.
        """
        self.threads.look_around()
        # 1. What it goes on from, a fork of it where another draft does, too.
        read = next((n for n in range(len(draft) - 1, 0, -1) if draft[:n] in self.drafts_read), 0)
        parent = self.drafts_read[draft[:read]] if read else self.prompts[-1].cache
        length = len(self.prompts[-1].ids) + read
        is_new = not read or parent.length > length or not self.keeps_positions
        cache = parent.fork(length) if is_new else parent
        # 2. Its last token, and before it those whose states were forgotten.
        if read == len(draft) - 1:
            logits: Floats = self.forward([(draft[-1:], _WHOLE)], cache)[0]
        else:
            logits = self.forward_ids([draft[read:]], cache, last_only=True)[0, -1]
        # 3. States take memory.
        self.drafts_read[draft] = cache
        if not self.keeps_positions and len(self.drafts_read) > _MAX_DRAFT_STATES:
            del self.drafts_read[next(iter(self.drafts_read))]
        return logits

    def step_rows(self, rows: Sequence[WeightedTokens], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows and return their logits [N, V], in one forward pass.

        A row is (ids, weights) to superpose; row i continues row `parents[i]` of the last call. Before the first
        call there is one row, number 0: the prompt and what `step` has added.
        """
        assert self.draft_cache is not None or not any(parents), "before the first call there is only number 0"
        before = self.prompts[-1].cache if self.draft_cache is None else self.draft_cache
        self.draft_cache = before.select_rows(parents)
        return self.forward(rows, self.draft_cache)

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
        lengths = [_common_prefix_length(prompt.ids, ids) for prompt in self.prompts]
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


def _common_prefix_length(old: list[int], new: list[int]) -> int:
    """How many ids two sequences have in common from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))


class ThreadCounts:
    """How many threads compute: as many as there are cores that other programs leave free.

    With one thread more, each product waits for a thread that does not run, and a step takes ten times as long.
    """

    def __init__(self, set_counts: Callable[[int, int], None], most: int = 0) -> None:
        """`set_counts` takes the count for a step and that for a prompt; `most`: 0, or never more than this."""
        self.set_counts = set_counts
        self.cores = _count_cores(range(os.cpu_count() or 1))
        self.most = self.limit = most or usable_cores()
        self.busy = 0.0  # cores, as other programs kept them busy lately
        self.looked = time.monotonic(), _others_seconds()
        self.free = 0
        self._choose()

    def limit_to(self, count: int) -> None:
        """Use no more threads than this; 0: as many as this process may."""
        self.limit = min(self.most, count or self.most)
        self._choose()

    def look_around(self) -> None:
        """Take account of what other programs compute, if that was not done just now."""
        now, (before, others_before) = time.monotonic(), self.looked
        if now - before >= _LOOK_SECONDS:
            others = _others_seconds()
            self.busy = (others - others_before) / (now - before)
            self.looked = now, others
            self._choose()

    def _choose(self) -> None:
        free = max(1, min(self.limit, self.cores - round(self.busy)))
        if free != self.free:
            self.free = free
            self.set_counts(min(free, _MAX_STEP_THREADS), free)


def usable_cores() -> int:
    """How many cores this process may use, by what the system, a container and the environment allow.

    Half of them where the system does not say what other programs compute.
    """
    processors = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    most = [_count_cores(processors) if _TIMES.exists() else len(processors) // 2]
    quota, _, period = _text(_QUOTA).partition(" ")  # in microseconds
    if quota.isdecimal() and period.isdecimal():
        most.append(int(quota) // max(1, int(period)))
    if (allowed := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        most.append(int(allowed))
    return max(1, min(most))


def _count_cores(processors: Iterable[int]) -> int:
    """Two processors that share a core compute no faster than one of them."""
    siblings = (_text(_CPUS / f"cpu{number}" / "topology" / "thread_siblings_list") for number in processors)
    return len({shared or f"alone {number}" for number, shared in enumerate(siblings)})


def _others_seconds() -> float:
    """For how long other programs have computed, but for what is nice, as far as the system tells: Linux does."""
    fields = [int(field) for field in _text(_TIMES).partition("\n")[0].split()[1:]]
    if not fields:
        return 0.0
    user, _nice, system, _idle, _waiting, *interrupts = fields[:8]
    return (user + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _text(path: Path) -> str:
    """What a file of the system says; an empty string if there is none."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
