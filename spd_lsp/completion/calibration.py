"""How probable each completion is: a draft's score, and where its text stands in the user's own code, weighed.

A draft's score is the probability of exactly this text among all that go on from what stands there, as model and
n-grams see it. A copy has no score: its text stands elsewhere, behind the tokens that stand before the cursor. One
logistic model weighs both, so drafts and copies have one order, that of the numbers that are shown. Of scores
alone it is beta calibration: Kull, Silva Filho and Flach, "Beyond sigmoids", 2017. It knows numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spd_lsp.settings import Settings

MIN_PROBABILITY = 1e-12
UNWRITTEN = 0.02  # the score of a copy that no draft wrote, and at least that of one that a draft did


class Weights(NamedTuple):
    """Those of a logistic model, by `spd-lsp eval confidence`."""

    bias: float
    score: float  # of ln p
    certainty: float  # of -ln(1 - p)
    match: float  # of a text that stands elsewhere
    length: float  # of the logarithm of a match's length
    agreement: float  # of the log odds of the text among all that stands behind such a match


WITH_NGRAMS = Weights(-0.48, 0.84, 1.12, -1.35, 1.19, 0.81)
MODEL_ALONE = Weights(-0.22, 1.02, 1.08, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Match:
    """Where the user's own code has a text: behind a run of tokens that also stands before the cursor."""

    length: int  # tokens of the longest such run
    count: int  # places with so long a run, or a longer one, and this text behind it
    places: int  # with so long a run, whatever is behind it
    files: int  # in which the text stands there

    @property
    def agreement(self) -> float:
        """The log odds of the text among what stands there. Example: in two of two places -> ln 5."""
        return math.log((self.count + 0.5) / (self.places - self.count + 0.5))


def are_probabilities(settings: Settings) -> bool:
    """Whether scores are: not those of other rankings and of the paper's formula."""
    return (settings.ranking, settings.interpolation) == ("probability", "linear")


def calibrate(p: float, match: Match | None, by: Weights) -> float:
    """Of completions with such a score and match, the share that is what was written."""
    if match:
        p = max(p, UNWRITTEN)
    p = min(max(p, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    log_odds = by.bias + by.score * math.log(p) - by.certainty * math.log(1 - p)
    if match:
        log_odds += by.match + by.length * math.log(match.length) + by.agreement * match.agreement
    return 1 / (1 + math.exp(-log_odds))


def at_most_one_right(probabilities: Sequence[float]) -> list[float]:
    """The probabilities of one place, best first, lowered so that they do not exceed 1 together.

    Example: .93, .05 and .05 are .93, .035 and .035: what is said of the first is more certain.
    """
    if not probabilities:
        return []
    first, *later = probabilities
    fits = min(1.0, (1 - first) / max(sum(later), MIN_PROBABILITY))
    return [first, *(one * fits for one in later)]
