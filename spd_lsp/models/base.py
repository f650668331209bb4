"""What every engine that runs a language model does: prompts are read once, and drafts go on from them.

Comes in: ids, or ids with weights. Goes out: logits or log-probabilities as NumPy arrays. An engine adds how
positions are read (`empty`, `superpose`, `forward`, `read`); which prompts are still in memory is decided here.
Knows nothing of text, drafts or tensors. One thread at a time.

Legend: V vocabulary, D width, T positions, N rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.models.topk import Asking, Likeliest, chosen, unpacked
from spd_lsp.models.topk import Mixture as Mixture

CHUNK = 128  # prompt tokens between two looks at `check`
SLOTS = 4  # prompts kept in memory, as one switches between so many files


class Cache(Protocol):
    """Keys and values of the positions that were read."""

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on, and what a pass that broke off has left."""

    def fork(self, length: int) -> Any:
        """Another cache with the same first positions."""

    def rows(self, parents: Sequence[int]) -> Any:
        """A cache of N rows: row i goes on from row `parents[i]` of this one, which may hold several itself."""


@dataclass(eq=False)
class Slot:
    """A prompt in memory."""

    cache: Any  # a Cache
    ids: list[int] = field(default_factory=list)  # what the cache holds, from its first position on
    after: Floats | None = None  # the logits after the last of them, if they were computed [V]

    def crop(self, length: int) -> None:
        """Forget all positions from `length` on, with those that drafts have added."""
        self.cache.crop(length)
        if length < len(self.ids):
            self.ids, self.after = self.ids[:length], None


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What is read at once: a position of each of N rows, embedded [N, D]; or T ids of each [N, T]."""

    cache: Any  # a Cache, which keeps what is read
    embedded: Any = None
    ids: Sequence[Sequence[int]] = ()
    last: bool = False  # of the ids, whether only the logits after the last are wanted


class Runner(ABC):
    """A language model with some prompts in memory."""

    max_positions: int  # the longest text the model was made for, in tokens
    device: Any  # where the weights are
    selects = False  # whether `forward` takes an `Asking` in place of embeddings, and is quicker so

    def __init__(self) -> None:
        self.slots = [Slot(self.empty())]  # the last is the one in use, the first was used longest ago
        self.drafting: Any = None  # the cache of the last `step_rows`
        self.pace: Callable[[float], None] = lambda seconds: None  # hears how long each step took

    @abstractmethod
    def empty(self) -> Any:
        """A Cache without positions."""

    @abstractmethod
    def superpose(self, rows: Sequence[Mixture]) -> Any:
        """x~ = sum_i gamma_i z_i for each row, z_i the input embedding as the model itself scales it. [N, D]."""

    @abstractmethod
    def forward(self, embedded: Any, cache: Any) -> Floats:
        """One pass over a position of each of N rows [N, D], added to their cache; the logits after it [N, V]."""

    @abstractmethod
    def read(self, ids: Sequence[Sequence[int]], cache: Any, *, last: bool = False) -> Floats:
        """One pass over T ids of each of N rows, added to their cache: logits [N, T, V], `last`: [N, 1, V]."""

    def together(self, passes: Sequence[Pass]) -> list[Floats]:
        """The logits of several passes over different prompts, as `forward` and `read` give them.

        An engine that can read them as one takes this method's place.
        """
        return [
            self.read(one.ids, one.cache, last=one.last)
            if one.embedded is None
            else self.forward(one.embedded, one.cache)
            for one in passes
        ]

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """Read a prompt and give the logits after its last token [V]; what is in memory of it is not read again.

        `check` is called before each chunk of the prompt; if it raises, what was read so far stays valid.
        """
        ids = list(ids)
        assert ids, "a prompt has at least one token"
        slot = self.slot_for(ids)
        for start in range(len(slot.ids), len(ids), CHUNK):
            check()
            slot.after = self.read([ids[start : start + CHUNK]], slot.cache, last=True)[0, -1]
            slot.ids = ids[: start + CHUNK]
        assert slot.after is not None
        return np.array(slot.after)

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position, the superposed embedding of these ids, and give the logits after it [V]."""
        assert self.drafting is None, "rows have been read since the last prefill: go on with `step_rows`"
        started = time.perf_counter()
        found: Floats = self.forward(self.superpose([(ids, weights)]), self.slots[-1].cache)[0]
        self.pace(time.perf_counter() - started)
        return found

    def step_likeliest(
        self, ids: Sequence[int], weights: Floats, count: int, asked: Ids, temperature: float = 1.0
    ) -> Likeliest:
        """As `step`, but of the logits only the `count` largest and those of asked tokens."""
        if not self.selects:
            return chosen(self.step(ids, weights), count, asked, temperature)
        assert self.drafting is None, "rows have been read since the last prefill: go on with `step_rows`"
        wanted = Asking([(ids, weights)], count, [asked], temperature)
        return unpacked(self.forward(wanted, self.slots[-1].cache)[0], count, len(asked))

    def step_rows(self, rows: Sequence[Mixture], parents: Sequence[int]) -> Floats:
        """Read one more position in each of N rows and give their logits [N, V], in one forward pass.

        A row is (ids, weights) to superpose; row i goes on from row `parents[i]` of the last call. Before the
        first call there is one row, number 0: the prompt with what `step` has added.
        """
        assert self.drafting is not None or not any(parents), "there is one row, number 0, before the first call"
        before = self.slots[-1].cache if self.drafting is None else self.drafting
        self.drafting = before.rows(parents)
        return self.forward(self.superpose(rows), self.drafting)

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """log p of each token of each draft after the last prefill's prompt, all drafts in one forward pass.

        The cache is as after the prefill. A draft's first token is judged by the prefill's logits.
        """
        slot = self.slots[-1]
        assert slot.after is not None, "drafts are read after a prefill"
        self.crop(len(slot.ids))
        longest = max(len(draft) for draft in drafts) - 1  # nobody asks what comes after a draft
        if longest < 1:
            return [log_p(slot.after[None], draft) for draft in drafts]
        # Shorter drafts are filled up on the right, where no token of theirs looks.
        filled = [[*draft[:-1], *[0] * longest][:longest] for draft in drafts]
        logits = self.read(filled, slot.cache.rows([0] * len(drafts)))  # [N, T, V]
        return [
            log_p(np.concatenate([slot.after[None], rest[: len(draft) - 1]]), draft)
            for draft, rest in zip(drafts, logits, strict=True)
        ]

    def likelihoods(self, ids: Sequence[int]) -> Floats:
        """How likely each id was after those before it, the first left out. A pass of its own. -> [T - 1]."""
        if len(ids) < 2:
            return np.empty(0)
        cache = self.empty()
        read = [
            log_p(self.read([ids[start : start + CHUNK]], cache)[0], ids[start + 1 : start + CHUNK + 1])
            for start in range(0, len(ids) - 1, CHUNK)
        ]
        found: Floats = np.exp(np.concatenate(read))
        return found

    def crop(self, length: int) -> None:
        """Forget the prompt's positions from `length` on, the superposed ones and the rows with them."""
        self.drafting = None
        self.slots[-1].crop(length)

    def slot_for(self, ids: list[int]) -> Slot:
        """The slot for a prompt, holding what is known of it, moved to the end.

        It is the one with the longest common prefix, if that is most of what it holds. Otherwise it is
        another text's: the prefix is copied to the place of the slot used longest ago.
        """
        self.drafting = None
        found = max(self.slots, key=lambda slot: shared(slot.ids, ids))
        length = shared(found.ids, ids)
        if 2 * length < len(found.ids):
            found = Slot(found.cache.fork(length), ids[:length])
            del self.slots[: max(0, len(self.slots) - SLOTS + 1)]
        else:
            self.slots.remove(found)
        self.slots.append(found)
        known = len(found.ids) == len(ids) == length and found.after is not None
        found.crop(length if known else min(length, len(ids) - 1))  # the last token runs for its logits
        return found


def shared(old: list[int], new: list[int]) -> int:
    """How many ids two sequences have in common from their start. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    both = min(len(old), len(new))
    return bisect_left(range(1, both + 1), True, key=lambda length: old[:length] != new[:length])


def log_p(logits: Floats, ids: Sequence[int]) -> Floats:
    """The log-probability of one id under each row of logits; rows beyond the ids are left out. [T, V] -> [T]."""
    wide = logits[: len(ids)].astype(np.float64)
    highest = wide.max(axis=-1)
    total = np.log(np.exp(wide - highest[:, None]).sum(axis=-1))
    found: Floats = wide[np.arange(len(ids)), list(ids)] - highest - total
    return found
