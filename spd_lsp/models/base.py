"""The interface of all engines, with a cache of prompts: each is read once, and drafts continue it.

Ids or mixtures of ids come in; logits go out as NumPy arrays. An engine adds how positions are computed
(`new_cache`, `forward_batch`); this file decides which prompts stay cached. Knows nothing of text or tensors. One
thread at a time may use an engine.

Legend: V vocabulary, T positions, N drafts.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats

_MAX_DRAFT_STATES = 8  # where caches are states; siblings are mostly read soon after each other
_WHOLE = np.ones(1)  # the weight of a token that is not mixed with others
_MAX_DROPPED = 64  # tokens of a cached prompt; a bracket that the editor closes changes what is right of it
_TIMED_PASSES = 32  # the last ones; the fastest of them says how fast the model is
_LOOK_SECONDS = 0.25  # between two looks at what other programs compute
_MAX_STEP_THREADS = 4  # a step waits for memory rather than for arithmetic
_CPUS, _TIMES = Path("/sys/devices/system/cpu"), Path("/proc/stat")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


class Cache(Protocol):
    """Keys and values of the positions read so far, or states after some of them: see `Engine.keeps_positions`."""

    length: int  # how many

    def crop(self, length: int) -> None:
        """Drop all positions from `length` on, and what a failed pass has left."""

    def fork(self, length: int) -> Any:
        """Return another cache with the same first positions."""


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
    """One sequence's part of a forward pass: T token ids, or one position that mixes the embeddings of some."""

    cache: Any  # a Cache, to which the new positions are added
    ids: Sequence[int]
    weights: Floats | None = None  # of the embeddings that are mixed; None: each id is a position
    last_only: bool = False  # without weights: compute the logits after the last id only


class Engine(ABC):
    """A language model with some cached prompts."""

    max_positions: int  # the longest text the model was made for, in tokens
    device: Any  # where the weights are
    predicts = True  # False: all tokens are alike, see `no_model.py`
    chunk = 64  # tokens of a prompt that one pass reads: more are hardly cheaper, and cannot be stopped sooner
    most_prompts = 4  # cached ones: as many as the files that a person switches between
    keeps_positions = True  # False: a cropped cache may be shorter, and drafts continue forks of it only

    def __init__(self) -> None:
        self.prompts = [CachedPrompt(self.new_cache())]  # least recently used first; the last is in use
        self.drafts_read: dict[tuple[int, ...], Any] = {}  # caches that hold each draft, and maybe more
        self.threads = ThreadCounts(lambda step, prompt: None)
        self.positions_read = 0  # of all prompts, without cached ones
        self.pass_times: deque[float] = deque(maxlen=_TIMED_PASSES)  # without those of prompts
        self.seconds_in_passes = 0.0  # likewise, since the start

    @abstractmethod
    def new_cache(self) -> Any:
        """A Cache without positions."""

    @abstractmethod
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        """Read the inputs of several sequences, in one pass if the engine can.

        Returns for each the logits after its mixture [V], after its ids [T, V], or after the last one only [1, V].
        """

    def forward(
        self, ids: Sequence[int], cache: Any, weights: Floats | None = None, *, last_only: bool = False
    ) -> Floats:
        """Read one input: see `ForwardInput`."""
        return self.forward_batch([ForwardInput(cache, ids, weights, last_only)])[0]

    def limit_threads(self, count: int) -> None:
        """Compute with this many threads at most; 0: as many as there are free cores."""
        self.threads.limit_to(count)

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """Read a prompt, as far as it is not cached, and return the logits after its last token [V].

        `check` is called before each chunk of the prompt and may raise to cancel: the chunks read stay cached.
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

    def read_chunk(self, ids: Sequence[int], cache: Any, check: Callable[[], None]) -> Any:
        """Read some of a prompt's tokens and return the logits after the last one [V]."""
        return self.forward(ids, cache, last_only=True)[-1]

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position, the superposed embedding of these ids, and return the logits after it [V]."""
        return self._timed_pass([ForwardInput(self.prompts[-1].cache, ids, weights)])[0]

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read one draft as `read_drafts` does. [V]."""
        return self.read_drafts([draft])[0]

    def read_drafts(self, drafts: Sequence[tuple[int, ...]]) -> list[Floats]:
        """Read the last token of each draft in one pass; return the logits after each [V].

        The other tokens of each were read since the last prefill, in any order.
        """
        inputs: list[ForwardInput] = []
        for draft in drafts:
            # 1. Find what it goes on from, a fork of it where another draft does, too.
            read = next((n for n in range(len(draft) - 1, 0, -1) if draft[:n] in self.drafts_read), 0)
            parent = self.drafts_read[draft[:read]] if read else self.prompts[-1].cache
            length = len(self.prompts[-1].ids) + read
            is_used = parent.length > length or any(parent is one.cache for one in inputs)
            cache = parent.fork(length) if is_used or not read or not self.keeps_positions else parent
            # 2. Read its last token, and before it those whose states were dropped.
            is_one = read == len(draft) - 1
            inputs.append(ForwardInput(cache, draft[read:], _WHOLE if is_one else None, last_only=True))
        found = self._timed_pass(inputs)
        for draft, one in zip(drafts, inputs, strict=True):
            self.drafts_read[draft] = one.cache
        # 3. States take memory: keep few.
        if not self.keeps_positions:
            for draft in list(self.drafts_read)[:-_MAX_DRAFT_STATES]:
                del self.drafts_read[draft]
        return [logits.reshape(-1) for logits in found]

    @property
    def pass_seconds(self) -> float:
        """How long a pass takes when nothing disturbs it; 0 before the first."""
        return min(self.pass_times, default=0.0)

    def _timed_pass(self, inputs: Sequence[ForwardInput]) -> list[Floats]:
        self.threads.look_around()
        started = time.perf_counter()
        logits = self.forward_batch(inputs)
        self.pass_times.append(time.perf_counter() - started)
        self.seconds_in_passes += self.pass_times[-1]
        return logits

    def crop(self, length: int) -> None:
        """Drop the prompt's positions from `length` on, and those of drafts."""
        self.drafts_read = {}
        self.prompts[-1].crop(length)

    def _cached_prompt(self, ids: list[int]) -> CachedPrompt:
        """Return the cached prompt that shares most with a prompt, cropped to that and moved to the end.

        If the common prefix is not nearly all of the cached prompt, that belongs to another text, or to one that
        may come back: the prefix is copied, and the least recently used prompt is evicted.
        """
        self.drafts_read = {}
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
    """Return how many ids two sequences share from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))


class ThreadCounts:
    """The number of computing threads: one for each core that other programs leave free.

    With one thread more, each product waits for a thread that does not run, and a step takes ten times as long.
    """

    def __init__(self, set_counts: Callable[[int, int], None]) -> None:
        """`set_counts` takes the count for a step and that for a prompt."""
        self.set_counts = set_counts
        self.cores = _count_cores(range(os.cpu_count() or 1))
        self.most = self.limit = usable_cores()
        self.busy = 0.0  # cores, as other programs kept them busy lately
        self.looked = time.monotonic(), _others_seconds()
        self.free = 0
        self._choose()

    def limit_to(self, count: int) -> None:
        """Use no more threads than this; 0: as many as this process may."""
        self.limit = min(self.most, count or self.most)
        self._choose()

    def look_around(self) -> None:
        """Measure how busy other programs keep the cores, at most every quarter of a second."""
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
    """Return how many cores the system, the container and OMP_NUM_THREADS let this process use.

    Half of the cores where the system does not say how busy other programs keep them.
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
    """Return the number of physical cores: two processors that share one compute no faster than one of them."""
    siblings = (_text(_CPUS / f"cpu{number}" / "topology" / "thread_siblings_list") for number in processors)
    return len({shared or f"alone {number}" for number, shared in enumerate(siblings)})


def _others_seconds() -> float:
    """Return the processor seconds of other programs since the start, without `nice` ones; 0 if not on Linux."""
    fields = [int(field) for field in _text(_TIMES).partition("\n")[0].split()[1:]]
    if not fields:
        return 0.0
    user, _nice, system, _idle, _waiting, *interrupts = fields[:8]
    return (user + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - time.process_time()


def _text(path: Path) -> str:
    """Return the text of a file of the system; an empty string if there is none."""
    with suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
