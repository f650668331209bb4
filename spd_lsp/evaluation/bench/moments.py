"""Runs of one contender and what they say together: medians with their spread, and ratios that are shown.

Comes in: seconds. Goes out: seconds and ratios. Knows neither models nor drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds of wall clock, and of processor time of all threads of this process."""

    wall: float = 0.0
    cpu: float = 0.0

    def __sub__(self, other: Moment) -> Moment:
        return Moment(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: Moment) -> Moment:
        return Moment(self.wall + other.wall, self.cpu + other.cpu)


def now() -> Moment:
    """This moment; differences count."""
    return Moment(time.perf_counter(), time.process_time())


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contender: the prompt read with an empty cache, and all drafts written."""

    first: Moment  # until the first token of each draft was chosen
    rest: Moment  # for the other tokens
    tokens: int  # of each draft
    passes: int  # forward passes of the model, the prompt's counted as one; 0 where they are not counted
    rows: int  # positions that the model read after the prompt; 0 where they are not counted
    model: Moment = Moment()  # of the rest, what the model took
    ngrams: Moment = Moment()  # of the rest, what n-gram look-ups took


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Example: 1, 2, 3, 4, 5 -> 3, 2 to 4."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    @property
    def differs(self) -> bool:
        """Of a ratio: whether 1 lies outside the quartiles, so that there is a difference to tell."""
        return not self.low <= 1 <= self.high


def per_token(runs: Sequence[Run], clock: Callable[[Moment], float]) -> list[float]:
    """Milliseconds for one more token of all drafts, in each run."""
    return [1e3 * clock(run.rest) / (run.tokens - 1) for run in runs]


def ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """How many times as much the first takes, round by round: neighbours disturb both of a round alike."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])
