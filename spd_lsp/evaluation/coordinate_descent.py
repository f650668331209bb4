"""Coordinate descent over settings: which values are tried, how the best are chosen, what choosing gains.

In: a way to ask how often drafts with some settings are right. Out: the settings to keep, and all that was tried.
Knows no models and no text.

Dimensions: P places, A ways.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64
from spd_lsp.completion.tuned_settings import ORDER_WEIGHTS, Tuned, Value

_ROUNDS = 3  # most often nothing changes in the second
# What reading a draft that is not wanted costs, in keystrokes; a guess, and the only one.
GLANCE = 0.25
# The paper's decoder but for what is tuned of it.
PAPER: Tuned = {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"}
_ALPHAS = (0.2, 0.4, None, 0.7)  # the default is the paper's


@dataclass(frozen=True, slots=True)
class Coordinate:
    """What is varied while all else stays: its name, and changes of settings; None stands for the default."""

    name: str
    values: Sequence[Mapping[str, Value | None]]
    only: str = ""  # the interpolation that it is about, or "" for any


def values(name: str, *found: Value | None) -> Coordinate:
    """A coordinate of one setting."""
    return Coordinate(name, [{name: value} for value in found])


def nested(one: Coordinate) -> Coordinate:
    """The same, tried only where n-grams are nested."""
    return dataclasses.replace(one, only="linear")


# In the order in which they are walked. What a coordinate does not name is left as it is.
COORDINATES: tuple[Coordinate, ...] = (
    Coordinate(
        "smoothing",
        [
            dict.fromkeys([*PAPER, "alpha"]),
            *({**PAPER, "alpha": alpha, ORDER_WEIGHTS: None, "ngram_weight": None} for alpha in _ALPHAS),
        ],
    ),
    nested(values(ORDER_WEIGHTS, None, "fitted")),
    nested(values("ngram_weight", 0.5, 0.7, None, 1.4, 2.0)),
    dataclasses.replace(values("alpha", *_ALPHAS), only="paper"),
    values("temperature", 0.06, 0.3, 0.6, 0.8, None, 1.25),
    values("candidates", 9, 14, None, 40),
    values("max_order", 3, 4, 5, None),
    values("ranking", None, "mean"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One coordinate walked: every way that was tried, its score, and the way that was gone on with."""

    coordinate: str
    ways: Sequence[Tuned]
    scores: Sequence[tuple[float, ...]]
    kept: int


@dataclass(frozen=True, slots=True)
class Walk:
    """A descent: where it ended, and all of its steps."""

    best: Tuned
    steps: Sequence[Step]

    @property
    def tried(self) -> list[Tuned]:
        """Every way, each once, in the order in which they were tried; the first is as it comes."""
        found: list[Tuned] = [{}]
        for step in self.steps:
            found += [way for way in step.ways if way not in found]
        return found


def descend(
    score: Callable[[Sequence[Tuned]], Sequence[tuple[float, ...]]],
    coordinates: Sequence[Coordinate] = COORDINATES,
    rounds: int = _ROUNDS,
) -> Walk:
    """Coordinate descent from the settings as they come: the best value of one after the other, until all stay.

    `score` is asked for all ways of a step at once; higher is better, the first number first. A value must beat
    the one that stands: what only equals it is not taken.
    """
    way: Tuned = {}
    steps: list[Step] = []
    for _ in range(rounds):
        before = way
        for coordinate in coordinates:
            if coordinate.only and coordinate.only != way.get("interpolation", "linear"):
                continue
            ways = _distinct([way, *(changed(way, value) for value in coordinate.values)])
            scores = score(ways)
            best = max(range(len(ways)), key=lambda i: (scores[i], -i))
            steps.append(Step(coordinate.name, ways, scores, best))
            way = ways[best]
        if way == before:
            break
    return Walk(way, steps)


def changed(way: Tuned, change: Mapping[str, Value | None]) -> Tuned:
    """A way with some of it changed, defaults left out, in the order of names."""
    both = {**way, **change}
    return {name: value for name, value in sorted(both.items()) if value is not None}


def _distinct(ways: Sequence[Tuned]) -> list[Tuned]:
    """Each once, in order."""
    return [way for i, way in enumerate(ways) if way not in ways[:i]]


def threshold(probabilities: F64, right: F64, characters: F64) -> float:
    """The probability from which drafts save more keys than reading them costs: below it none is worth offering.

    Of drafts [P]: how likely they were said to be, whether they are right, and how long they are. A right one
    saves its characters but one. 0 if all are worth it.
    """
    order = np.argsort(-probabilities, kind="stable")
    worth = np.cumsum(np.where(right[order] > 0, characters[order] - 1, 0) - GLANCE)
    if not len(worth) or worth[-1] >= worth.max():
        return 0.0
    last = int(np.flatnonzero(worth == worth.max())[-1])
    return math.floor(1000 * float(probabilities[order][last])) / 1000


def choose(hits: F64) -> int:
    """The way that completes most, the first one if others only equal it. [P, A] -> a column."""
    return int(np.argmax(hits.mean(axis=0)))


def crossed(hits: F64, files: Sequence[str]) -> F64:
    """What choosing gains at places that it did not choose by: files in two halves, each judged by the other's.

    [P, A] -> [P], each place's hits by the way chosen without it less those by the first way.
    """
    second = odd(files)
    gains = np.zeros(len(hits))
    for judged in (second, ~second):
        if judged.any() and not judged.all():
            gains[judged] = hits[judged, choose(hits[~judged])] - hits[judged, 0]
    return gains


def odd(files: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which places are in the second half: every other file by name. [P]"""
    order = {name: i for i, name in enumerate(sorted(set(files)))}
    return np.array([order[name] % 2 == 1 for name in files], dtype=bool)
