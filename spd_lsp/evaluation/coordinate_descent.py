"""Coordinate descent over settings: the values that are tried, and the search. Knows no models and no text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spd_lsp.ngrams.tuned_settings import WEIGHTS_KEY, Tuned, Value

_ROUNDS = 3  # mostly nothing changes in the second
# The paper's decoder, except for what is tuned of it.
_PAPER: Tuned = {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"}
_ALPHAS = (0.2, 0.4, None, 0.7)  # the default is the paper's


@dataclass(frozen=True, slots=True)
class Coordinate:
    """What is varied while all else stays: changes of settings, with None for the default."""

    name: str
    changes: Sequence[Mapping[str, Value | None]]
    only: str = ""  # the interpolation that it applies to, or "" for any


def setting_coordinate(name: str, *values: Value | None, only: str = "") -> Coordinate:
    """A coordinate of one setting."""
    return Coordinate(name, [{name: value} for value in values], only)


# In the order of the search. What a coordinate does not name stays as it is.
COORDINATES: tuple[Coordinate, ...] = (
    Coordinate(
        "smoothing",
        [
            dict.fromkeys([*_PAPER, "alpha"]),
            *({**_PAPER, "alpha": alpha, WEIGHTS_KEY: None, "ngram_weight": None} for alpha in _ALPHAS),
        ],
    ),
    setting_coordinate(WEIGHTS_KEY, None, "fitted", only="linear"),
    setting_coordinate("ngram_weight", 0.5, 0.7, None, 1.4, 2.0, only="linear"),
    setting_coordinate("alpha", *_ALPHAS, only="paper"),
    setting_coordinate("temperature", 0.06, 0.3, 0.6, 0.8, None, 1.25),
    setting_coordinate("candidates", 9, 14, None, 40),
    setting_coordinate("max_order", 3, 4, 5, None),
    setting_coordinate("ranking", None, "mean"),
)


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One coordinate: the settings that were tried, their scores, and the index of the best."""

    coordinate: str
    tried: Sequence[Tuned]
    scores: Sequence[tuple[float, ...]]
    best: int


@dataclass(frozen=True, slots=True)
class Search:
    """The best settings, and all steps to them."""

    best: Tuned
    steps: Sequence[SearchStep]

    @property
    def tried(self) -> list[Tuned]:
        """All settings that were tried, each once, the defaults first."""
        return _distinct([{}, *(settings for step in self.steps for settings in step.tried)])


def descend(
    score: Callable[[Sequence[Tuned]], Sequence[tuple[float, ...]]],
    coordinates: Sequence[Coordinate] = COORDINATES,
    rounds: int = _ROUNDS,
) -> Search:
    """Take the best value of one coordinate after the other, starting from the defaults, until nothing changes.

    `score` rates all settings of a step at once; higher is better, the first number counts first. A value must
    beat the current one.
    """
    current: Tuned = {}
    steps: list[SearchStep] = []
    for _ in range(rounds):
        before = current
        for coordinate in coordinates:
            if coordinate.only and coordinate.only != current.get("interpolation", "linear"):
                continue
            tried = _distinct([current, *(_changed(current, change) for change in coordinate.changes)])
            scores = score(tried)
            best = max(range(len(tried)), key=lambda i: (scores[i], -i))
            steps.append(SearchStep(coordinate.name, tried, scores, best))
            current = tried[best]
        if current == before:
            break
    return Search(current, steps)


def _changed(settings: Tuned, change: Mapping[str, Value | None]) -> Tuned:
    """Settings with a change, defaults left out, in the order of names."""
    both = {**settings, **change}
    return {name: value for name, value in sorted(both.items()) if value is not None}


def _distinct(settings: Sequence[Tuned]) -> list[Tuned]:
    return [one for i, one in enumerate(settings) if one not in settings[:i]]
