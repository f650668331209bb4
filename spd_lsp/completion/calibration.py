"""How often a draft like this one is right, from the probability that it is ranked by.

That probability is of exactly this text among all that go on from what stands there, as model and n-grams see it.
Where n-grams know the code the two are less sure than they should be, and of a second draft surer than of a first.
Beta calibration puts it right: Kull, Silva Filho and Flach, "Beyond sigmoids", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spd_lsp.completion.postprocess import Completion
from spd_lsp.settings import Settings

# c, a, b of logit = c + a ln p - b ln(1 - p), for the first draft and for later ones, by `spd-lsp eval
# confidence`: fitted on 3,783 drafts at 1,268 places in ten packages that neither the starter nor any table had
# seen. By weights from the other nine packages, the mean gap between what is said and the share that is right
# falls from 2.4 to 0.6 points, the loss from 0.201 to 0.194 nats.
WITH_NGRAMS = ((0.23, 0.85, 1.46), (-1.23, 0.55, 1.46))
_MODEL_ALONE = ((0.35, 1.54, 0.72), (-1.41, 0.82, 0.72))  # 3.0 to 0.4 points
MIN_PROBABILITY = 1e-12


def calibrated(
    completions: Sequence[Completion], settings: Settings, floor: float, *, ngrams: bool
) -> list[Completion]:
    """Return the completions with calibrated probabilities, without those below the floor.

    Scores of other rankings and of the paper's formula are not probabilities: they stay as they are.
    """
    if (settings.ranking, settings.interpolation) != ("probability", "linear"):
        return list(completions)
    drafts = [one.probability for one in completions if not (one.is_name or one.is_copy)]
    probabilities = calibrate_drafts(drafts, ngrams=ngrams) if drafts else []
    if completions and completions[0].is_copy:
        probabilities = _behind(completions[0].probability, probabilities)
    others = iter(probabilities)
    known = [one if one.is_name or one.is_copy else replace(one, probability=next(others)) for one in completions]
    return [completion for completion in known if completion.probability >= floor]


def _behind(first: float, later: Sequence[float]) -> list[float]:
    """Probabilities behind a first one: together they do not exceed 1, and none exceeds it."""
    fits = min(1.0, (1 - first) / max(sum(later), MIN_PROBABILITY))
    return [min(one * fits, first) for one in later]


def calibrate_drafts(probabilities: Sequence[float], *, ngrams: bool) -> list[float]:
    """The same for the drafts of one place, best first: at most one of them is right, so they do not exceed 1.

    Example: what would be .93, .05 and .05 is .93, .035 and .035: what is said of the first is more certain.
    """
    first, *later = (calibrate(p, first=not place, ngrams=ngrams) for place, p in enumerate(probabilities))
    return [first, *_behind(first, later)]


def calibrate(p: float, *, first: bool, ngrams: bool) -> float:
    """Of drafts with this probability, the share that is what was written.

    Example: the first draft, with p .15 beside n-grams -> .24; a second one with the same p -> .12.
    """
    c, a, b = (WITH_NGRAMS if ngrams else _MODEL_ALONE)[0 if first else 1]
    p = min(max(p, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    return 1 / (1 + math.exp(b * math.log(1 - p) - a * math.log(p) - c))
