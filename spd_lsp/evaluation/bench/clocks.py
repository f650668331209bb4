"""Timings and their statistics: medians with quartiles, and ratios within rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds of wall clock, and of processor time of all threads of this process."""

    wall: float = 0.0
    cpu: float = 0.0

    def __sub__(self, other: Clocks) -> Clocks:
        return Clocks(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: Clocks) -> Clocks:
        return Clocks(self.wall + other.wall, self.cpu + other.cpu)


def now() -> Clocks:
    """Read both clocks; only differences mean something."""
    return Clocks(time.perf_counter(), time.process_time())


class CallTimer:
    """Forwards to an object and adds up the time that its methods take."""

    def __init__(
        self, target: Any, untimed: Sequence[str] = (), is_active: Callable[[], bool] = lambda: True
    ) -> None:
        self._target = target
        self._untimed = untimed
        self._is_active = is_active
        self.total = Clocks()
        self.calls = 0
        self.first_call: Clocks | None = None

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return partial(self._timed, value) if callable(value) and name not in self._untimed else value

    def __call__(self, *arguments: Any) -> Any:
        """Call the object itself."""
        return self._timed(self._target, *arguments)

    def _timed(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._is_active():
            return method(*arguments, **named)
        began = now()
        self.first_call = self.first_call or began
        result = method(*arguments, **named)
        self.total += now() - began
        self.calls += 1
        return result


@dataclass(frozen=True, slots=True)
class Timing:
    """One run of a contender, from a prompt that is not in the cache to its drafts."""

    first: Clocks  # until the first token of each draft was chosen
    rest: Clocks  # for the other tokens
    tokens: int  # of each draft
    passes: int  # forward passes of the model, the prompt's counted as one; 0 where they are not counted
    rows: int  # positions that the model read after the prompt; 0 where they are not counted
    model: Clocks = Clocks()  # share of `rest` in the model
    ngrams: Clocks = Clocks()  # share of `rest` in n-gram look-ups


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Example: 1, 2, 3, 4, 5 -> 3, 2 to 4"""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)

    @property
    def differs(self) -> bool:
        """Of a ratio: whether 1 lies outside the quartiles."""
        return not self.low <= 1 <= self.high


def ms_per_token(timings: Sequence[Timing], clock: Callable[[Clocks], float]) -> list[float]:
    """Milliseconds for one more token of all drafts, in each round."""
    return [1e3 * clock(timing.rest) / (timing.tokens - 1) for timing in timings]


def ratio(above: Sequence[float], below: Sequence[float]) -> Spread:
    """The ratio round by round: a disturbance hits both of a round alike."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])
