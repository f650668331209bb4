"""How often a completion like this one is exactly what was written, and in which order completions are shown.

A logistic model over what is known of a completion. The likeliest to be right comes first; the others follow in
the decoder's order: it knows better what a line begins with, which saves keystrokes though it is not all of it.

In: completions at one place, in the decoder's order, and the text around it. Knows no tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spd_lsp.completion.postprocess import Completion
from spd_lsp.settings import Settings

Features = list[float]

# The weight of each feature, by `spd-lsp eval ranker`, on 7,700 candidates at 890 places in ten packages that
# neither the starter nor a table had seen. By weights from the other nine, what is said and the share that is
# right are 0.3 points apart.
_WITH_NGRAMS: Mapping[str, float] = {
    "constant": -1.18,
    "ln p": 0.41,
    "-ln(1-p)": 1.93,
    "ln p less the best draft's": 0.23,
    "not the best draft": -0.29,
    "copy only": -2.55,
    "stands elsewhere": 0.37,
    "ln length of its match": 0.41,
    "the same beyond 6": 1.13,
    "ln agreement": 0.68,
    "ln places that agree": 0.49,
    "cut off": -0.76,
    "bracket left open": -0.50,
    "new names": -0.85,
    "doubled word": -0.06,
}
_MODEL_ALONE: Mapping[str, float] = {"constant": 0.35, "ln p": 1.54, "-ln(1-p)": 0.72}
FEATURES = (
    "constant",
    "ln p",  # of the draft, as model and n-grams see it
    "-ln(1-p)",
    "ln p less the best draft's",
    "not the best draft",
    "copy only",  # the decoder did not write it
    "stands elsewhere",  # behind the text before the cursor
    "ln length of its match",  # tokens before the cursor that it follows elsewhere
    "the same beyond 6",
    "ln agreement",  # share of the places with such a match that go on with it
    "ln places that agree",
    "cut off",  # its line goes on
    "bracket left open",
    "new names",  # that stand nowhere else in the document, up to 3; of what stands elsewhere none is new
    "doubled word",  # as in `ParserParser(`
)
_WORD = re.compile(r"[^\W\d]\w*")
_DOUBLED = re.compile(r"([^\W\d_]\w{2,})_?\1", re.IGNORECASE)
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_OPENING, _CLOSING = "([{", ")]}"
_LEAST, _MOST = 1e-9, 1 - 1e-6  # probabilities with finite logarithms
_LONG_MATCH, _LONGEST_MATCH = 6, 32
_MAX_NEW_NAMES = 3
_MAX_CHECKED = 200  # characters of a completion that are searched for names


@dataclass(frozen=True, slots=True)
class Place:
    """The text around the cursor."""

    begun: str  # the word that ends at the cursor
    others: str  # the lines but for the cursor's

    @classmethod
    def at(cls, source: str, cursor: int) -> Place:
        """The place at an offset of a document."""
        start = source.rfind("\n", 0, cursor) + 1
        end = source.find("\n", cursor) % (len(source) + 1)
        return cls(re.split(r"\W", source[start:cursor])[-1], source[:start] + source[end:])


def rank_by_odds(
    completions: Sequence[Completion], place: Place, settings: Settings, *, ngrams: bool
) -> list[Completion]:
    """Return completions with the probability that each is exactly right, in the order in which they are shown.

    Scores of other rankings and of the paper's formula are no probabilities: those completions stay as they are.
    """
    if (settings.ranking, settings.interpolation) != ("probability", "linear"):
        return list(completions)
    weights = [(_WITH_NGRAMS if ngrams else _MODEL_ALONE).get(name, 0.0) for name in FEATURES]
    odds = [_logistic(sum(map(float.__mul__, weights, row))) for row in features_of(completions, place)]
    fits = min(1.0, 1 / max(sum(odds), _LEAST))  # at most one of them is right
    known = [replace(one, probability=p * fits) for one, p in zip(completions, odds, strict=True)]
    first = sorted(known, key=lambda one: -one.probability)[:1]
    return [*first, *(one for one in known if one not in first)]


def features_of(completions: Sequence[Completion], place: Place) -> list[Features]:
    """What is known of each completion, as in FEATURES."""
    drafts = [one.probability for one in completions if not one.is_copy]
    best = max(drafts, default=_LEAST)
    is_best = [not one.is_copy and one.probability == best for one in completions]
    return [
        [1.0, *_of_draft(one, best, first), *_of_match(one), *_of_text(one, place)]
        for one, first in zip(completions, is_best, strict=True)
    ]


def _of_draft(one: Completion, best: float, first: bool) -> Features:
    """What the decoder says of a completion."""
    if one.is_copy:
        return [0.0, 0.0, 0.0, 0.0, 1.0]
    p = min(max(one.probability, _LEAST), _MOST)
    return [math.log(p), -math.log1p(-p), math.log(p / min(max(best, _LEAST), _MOST)), float(not first), 0.0]


def _of_match(one: Completion) -> Features:
    """Where else it stands."""
    if one.match is None:
        return [0.0, 0.0, 0.0, 0.0, 0.0]
    length, count, places = one.match.length, one.match.count, one.match.places
    return [
        1.0,
        math.log(1 + min(length, _LONGEST_MATCH)),
        max(0.0, math.log(max(length, 1) / _LONG_MATCH)),
        math.log((count + 0.5) / (places + 1)),
        math.log(count),
    ]


def _of_text(one: Completion, place: Place) -> Features:
    """What it says."""
    text = place.begun + one.text[:_MAX_CHECKED]
    names = () if one.match else set(_WORD.findall(text))
    return [
        float(not one.ends),
        float(_leaves_open(text)),
        float(min(sum(name not in place.others for name in names), _MAX_NEW_NAMES)),
        float(_DOUBLED.search(text) is not None),
    ]


def _leaves_open(text: str) -> bool:
    """Whether a text opens a bracket that it does not close. Example: `f(x)[` does, `f(")")` does not."""
    waiting = 0
    for sign in _STRING.sub("", text):
        waiting = waiting + 1 if sign in _OPENING else max(0, waiting - 1) if sign in _CLOSING else waiting
    return waiting > 0


def _logistic(z: float) -> float:
    """1 / (1 + e^-z), without overflow."""
    return 1 / (1 + math.exp(-z)) if z > -500 else 0.0
