"""Probabilities of drafts, put right: how often drafts with such a score are what was written.

A draft's score is the probability of exactly this text among all that go on from what stands there, as model and
n-grams see it. Where n-grams know the code the two are less sure than they should be, and of a second draft surer
than of a first. Beta calibration puts it right: Kull, Silva Filho and Flach, "Beyond sigmoids", 2017. It knows
numbers only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from spd_lsp.settings import Settings

# c, a, b of logit = c + a ln p - b ln(1 - p), for the first draft and for later ones, by `spd-lsp eval confidence`
# at 980 to 1,260 places in ten unseen packages. By weights from the other nine, the gap to what is right falls.
Calibration = tuple[tuple[float, float, float], tuple[float, float, float]]
WITH_NGRAMS: dict[bool, Calibration] = {  # by whether the model tells drafts apart
    False: ((0.23, 0.85, 1.46), (-1.23, 0.55, 1.46)),  # 2.4 to 0.6 points
    True: ((1.12, 1.02, 0.45), (-0.34, 0.68, 0.45)),  # 4.3 to 0.8
}
MODEL_ALONE: dict[bool, Calibration] = {
    False: ((0.35, 1.54, 0.72), (-1.41, 0.82, 0.72)),  # 3.0 to 0.4
    True: ((-0.13, 1.13, 0.79), (0.43, 1.30, 0.79)),  # 1.9 to 0.5
}
MIN_PROBABILITY = 1e-12
# From here on a copy is more often right than the best draft. Chosen on five packages; on five others, 284 places
# and 45 typed lines: EM@1 16.5 -> 20.4 %, EM@3 21.8 -> 25.0 %, keystrokes saved 56.0 -> 58.9 %. A second copy in
# any draft's place costs 4 points of keystrokes, in that of a less likely last one none.
# With three models, of 29 copies of matches from `_LONG` on 12 were right, where another draft was best, and that
# in one place; of 18 copies of shorter ones 2, and that draft in 3.
_MIN_LENGTH, _MIN_AGREEMENT, _LONG = 6, 0.5, 10
# Of 1, the logs of a match's length and of its agreement, and the log of how probable a draft of that text was.
_COPY_WEIGHTS, _UNWRITTEN = (-1.97, 1.24, 1.05, 0.89), 0.01


@dataclass(frozen=True, slots=True)
class Match:
    """Where the user's own code has a draft: behind a run of tokens that also stands before the cursor."""

    length: int  # tokens of the longest such run
    count: int  # places with so long a run, or a longer one, and this draft behind it
    places: int  # with so long a run, whatever is behind it
    files: int  # in which the draft stands there

    def probability(self, written: float) -> float:
        """Of copies with such a match, the share that is what was written, if a draft of it was so probable.

        A logistic model, fitted on 257 copies with three models; the weights of any two suit the third, and the
        draft counts as much as the match: log loss .402 -> .291. Example: eight tokens that stand in two more
        places, with this text behind both, and no draft of it -> .14; with one of .1 -> .56.
        """
        agreement = math.log((self.count + 0.5) / (self.places - self.count + 0.5))
        features = (1.0, math.log(self.length), agreement, math.log(max(written, _UNWRITTEN)))
        return 1 / (1 + math.exp(-sum(map(operator.mul, _COPY_WEIGHTS, features))))

    @property
    def is_long(self) -> bool:
        """Whether a reliable copy need not be likelier than the best draft."""
        return self.length >= _LONG

    @property
    def is_reliable(self) -> bool:
        """Whether a copy is more often right than the best draft."""
        return self.length >= _MIN_LENGTH and self.count >= _MIN_AGREEMENT * self.places


def calibration_for(*, with_ngrams: bool, tells_drafts_apart: bool) -> Calibration:
    """The weights for a model's drafts, with n-grams or without."""
    return (WITH_NGRAMS if with_ngrams else MODEL_ALONE)[tells_drafts_apart]


def are_probabilities(settings: Settings) -> bool:
    """Whether scores are: not those of other rankings and of the paper's formula."""
    return (settings.ranking, settings.interpolation) == ("probability", "linear")


def probabilities_behind(first: float, later: Sequence[float]) -> list[float]:
    """Probabilities behind a first one: together they do not exceed 1, and none exceeds it."""
    fits = min(1.0, (1 - first) / max(sum(later), MIN_PROBABILITY))
    return [min(one * fits, first) for one in later]


def calibrate_drafts(probabilities: Sequence[float], by: Calibration) -> list[float]:
    """The same for the drafts of one place, best first: at most one of them is right, so they do not exceed 1.

    Example: what would be .93, .05 and .05 is .93, .035 and .035: what is said of the first is more certain.
    """
    first, *later = (calibrate(p, by, first=not place) for place, p in enumerate(probabilities))
    return [first, *probabilities_behind(first, later)]


def calibrate(p: float, by: Calibration, *, first: bool) -> float:
    """Of drafts with this probability, the share that is what was written."""
    c, a, b = by[0 if first else 1]
    p = min(max(p, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    return 1 / (1 + math.exp(b * math.log(1 - p) - a * math.log(p) - c))
