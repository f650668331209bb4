"""Which completions are chosen: how probable drafts, copies, beginnings and names are, and what each place adds.

A draft's score is the probability of exactly this text among all that go on from what stands there, as model and
n-grams see it. A copy has no score: its text stands elsewhere, behind the tokens that stand before the cursor. One
logistic model weighs both, so drafts and copies have one order, that of the numbers that are shown. Of scores
alone it is beta calibration: Kull, Silva Filho and Flach, "Beyond sigmoids", 2017. Knows texts and numbers only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from ngram_builders.index.suffix_array import Occurrence
from spd_lsp.ngrams.open_documents import likely_words
from spd_lsp.output.progress import format_count

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_MAX_NAMES = 16  # no more are ever offered
# Keystrokes that it is worth that the whole line is among those offered, beyond what it saves; and inside words,
# where it has mostly been offered before and passed by; and that a word is, where names go on with it.
_LINE_WORTH, _PASSED_LINE_WORTH, _WORD_WORTH = 100, 20, 30
_MAX_COPIES = 6
_MAX_COMPARED = 64  # places whose texts may become copies
MIN_PROBABILITY = 1e-12
UNWRITTEN = 0.02  # the score of a copy that no draft wrote, and at least that of one that a draft did
# The share of what is sure that comes true. A long copy looks certain until the one line that differs: at 342
# places of seven languages first drafts of .97 and more were right in .86, and new weights changed nothing there.
FORESEEN = 0.94


class Weights(NamedTuple):
    """The weights of a logistic model, fitted by `spd-lsp eval confidence`."""

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
    place: Occurrence | None = field(default=None, compare=False)  # one of these

    @property
    def agreement(self) -> float:
        """The log odds of the text among what stands there. Example: in two of two places -> ln 5."""
        return math.log((self.count + 0.5) / (self.places - self.count + 0.5))

    @property
    def order(self) -> tuple[float, int, int]:
        """Of copies: the most trusted last, then those of the longest match, then the most frequent."""
        return self.place.trust if self.place else 1.0, self.length, self.count


def calibrate(p: float, match: Match | None, by: Weights) -> float:
    """Return the probability that a completion with this score and match is exactly what will be written."""
    if match:
        p = max(p, UNWRITTEN)
    p = min(max(p, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
    log_odds = by.bias + by.score * math.log(p) - by.certainty * math.log(1 - p)
    if match:
        log_odds += by.match + by.length * math.log(match.length) + by.agreement * match.agreement
    return FORESEEN / (1 + math.exp(-log_odds))


def at_most_one_right(probabilities: Sequence[float]) -> list[float]:
    """The probabilities of one place, best first, lowered so that they do not exceed 1 together.

    Example: .93, .05 and .05 are .93, .035 and .035: what is said of the first is more certain.
    """
    if not probabilities:
        return []
    first, *later = probabilities
    fits = min(1.0, (1 - first) / max(sum(later), MIN_PROBABILITY))
    return [first, *(one * fits for one in later)]


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert at the cursor."""

    text: str
    # Of being all that will be written, of a block its first line; of names and beginnings, of being right so far.
    probability: float
    ends: bool = True  # whether its line or block ends with it; else it was cut off, and more may follow
    is_name: bool = False  # whether it is no draft, but the rest of a name that was begun
    is_copy: bool = False  # whether it is no draft, but copied from elsewhere in the user's code
    match: Match | None = None  # None: it stands nowhere behind what is before the cursor
    score: float = 0.0  # of a draft, as its decoder gave it: what `probability` was calibrated from
    is_rated: bool = True  # whether its probability is of being all of it, the order of such completions
    place: str = ""  # where it stands elsewhere, such as `shapes.py:12`; empty: not known

    @property
    def shown_probability(self) -> float | None:
        """The probability to show; None for names and beginnings, behind which more is to be written."""
        return self.probability if self.is_rated else None

    @property
    def kind(self) -> str:
        """Its kind in statistics: `model`, `copies` or `names`."""
        return "names" if self.is_name else "copies" if self.is_copy else "model"

    @property
    def source(self) -> str:
        """Where it comes from, for a person to read. Example: "copied from shapes.py:12 and 2 more files"."""
        if self.is_name:
            return "name in your code"
        if self.match is None:
            return "copied" if self.is_copy else "model"
        return f"copied from {self.places}" if self.is_copy else f"model, as in {self.places}"

    @property
    def places(self) -> str:
        """Where its text stands elsewhere, or for a draft of the model in how many files. Example: "2 files"."""
        others = self.match.files - 1 if self.match else 0
        if not self.place or (others and not self.is_copy):
            return format_count(others + 1, "file")
        return f"{self.place} and {format_count(others, 'more file')}" if others else self.place


def rank_candidates(
    drafts: Sequence[Completion],
    found: Sequence[tuple[Occurrence, str]],
    weights: Weights,
    is_usable: Callable[[str], bool],
) -> list[Completion]:
    """Return drafts and usable copies, each text once, the most probable first.

    found: places in the user's code, the longest matches first, and the text behind each.
    """
    texts = dict.fromkeys([*(text for _, text in found[:_MAX_COMPARED]), *(one.text for one in drafts)])
    matches = {text: match for text in texts if (match := _match(text, found))}
    best_first = sorted(matches, key=lambda text: matches[text].order, reverse=True)
    copies = islice(filter(is_usable, best_first), _MAX_COPIES)
    candidates = {text: Completion(text, 0.0, is_copy=True) for text in copies} | {one.text: one for one in drafts}
    rated = [_calibrated(one, matches.get(one.text), weights) for one in candidates.values()]
    return sorted(rated, key=lambda one: -one.probability)


def _match(text: str, found: Sequence[tuple[Occurrence, str]]) -> Match | None:
    """Return the match of a text among the places that are trusted as much as its own; None without one."""
    trust = max((place.trust for place, line in found if line == text), default=0.0)
    trusted = [(place, line) for place, line in found if place.trust >= trust]
    length = next((place.length for place, line in trusted if line == text), 0)
    alike = [(place, line) for place, line in trusted if place.length >= length]
    agreeing = [place for place, line in alike if line == text]
    if not agreeing:
        return None
    files = {place.document for place in agreeing}
    return Match(length, len(agreeing), len(alike), len(files), agreeing[0])


def _calibrated(one: Completion, match: Match | None, by: Weights) -> Completion:
    """Return a candidate with its probability: that of its match, as far as it is trusted, else of its score.

    A match does not make a draft less likely, however many other texts stand behind such a match.
    """
    score = one.probability
    probability = calibrate(score, None, by)
    if match:
        trust = match.place.trust if match.place else 1.0
        matched = calibrate(score, match, by)
        probability = trust * (max(probability, matched) if score else matched) + (1 - trust) * probability
    return replace(one, match=match, score=score, probability=probability)


def is_variant(text: str, other: str) -> bool:
    """Whether two texts differ by signs at the end alone. Example: `name` and `name(`."""
    shorter, longer = sorted((text, other), key=len)
    return longer.startswith(shorter) and not re.search(r"\w", longer[len(shorter) :])


def beginnings(
    intermediate: Iterable[tuple[str, float]],
    drafts: Sequence[Completion],
    weights: Weights,
    is_usable: Callable[[str], bool],
) -> dict[str, float]:
    """Return what drafts begin with, up to the end of a word, and how probable each beginning is.

    It is at least as probable as the first draft, if that begins so, and at most as probable as that leaves.
    """
    ends = [(one.text, mark.end()) for one in drafts for mark in _WORD_OR_SIGN.finditer(one.text)]
    possible = {text[:end] for text, end in ends if end < len(text)}
    found: dict[str, float] = {}
    for written, score in intermediate:
        text = written.rstrip()
        if text in possible and is_usable(text):
            first = drafts[0].probability
            begins_first = drafts[0].text.startswith(text)
            p = calibrate(math.exp(min(score, 0.0)), None, weights)
            found[text] = max(found.get(text, 0.0), max(p, first) if begins_first else min(p, 1 - first))
    return found


def _next_word(begun: str, one: Completion) -> str:
    """Return the next word of a completion, with the part of it that is written already."""
    return begun + re.split(r"\W", one.text, maxsplit=1)[0]


def choose_completions(
    drafts: Sequence[Completion],
    beginnings: Mapping[str, float],
    names: Mapping[str, float],
    left: str,
    most: int,
    candidates: Sequence[Completion] = (),
) -> list[Completion]:
    """Return `most` of drafts, beginnings of drafts and names, best first; a draft or name is first.

    Each place goes to what adds most: the keystrokes that it saves if it is right, and what a line and a word are
    worth. What a better one begins with is accepted already. Those that are rated are in the order of that. The
    word at the end of `left` begins each name.
    `candidates`: all drafts, if these are not all.
    Example: `co` with drafts `mpute(x)` .4, `mpute(y)` .04, the beginning `mpute(` .8 and the name `count` .6
    -> `mpute(x)`, `unt`, `mpute(`.
    """
    if not beginnings and not names:
        return list(drafts[:most])
    begun = word_begun(left)
    written_words = [(_next_word(begun, one), one.probability) for one in candidates or drafts]
    likely = likely_words(names, written_words) if names else {}
    lines = {one.text: one.probability for one in drafts if one.ends}
    best: list[Completion] = []

    def added(one: Completion) -> float:
        """What a completion adds to better ones, in the mean; a step down the list takes one keystroke."""
        accepted = max((len(other.text) for other in best if one.text.startswith(other.text)), default=0)
        saved = max(0, len(one.text) - max(accepted, 1) - len(best))
        continued = sum(other.probability for other in best if other.text.startswith(one.text))
        line = lines.get(one.text, 0.0)
        word = _next_word(begun, one)
        is_new = word not in (_next_word(begun, other) for other in best)
        worth = (
            line * (_PASSED_LINE_WORTH if begun else _LINE_WORTH) + is_new * likely.get(word, 0.0) * _WORD_WORTH
        )
        return max(line, one.probability - continued) * saved + worth

    words = islice((word for word in likely if word in names), _MAX_NAMES)
    bare = [
        Completion(word[len(begun) :], likely[word], is_rated=False, ends=False, is_name=True) for word in words
    ]
    rest = {one.text: one for one in drafts}
    for text, p in beginnings.items():
        rest[text] = replace(rest.get(text, Completion(text, p)), probability=p, is_rated=False, ends=False)
    rest = {one.text: one for one in bare} | rest | {one.text: one for one in drafts[:1]}
    while rest and len(best) < most:
        possible = rest.values() if best else [one for one in rest.values() if one.is_name or one in drafts[:1]]
        best.append(max(possible, key=added))
        del rest[best[-1].text]
    rated = iter(sorted((one for one in best if one.is_rated), key=lambda one: -one.probability))
    return [next(rated) if one.is_rated else one for one in best]


def word_begun(left: str) -> str:
    """Return the unfinished word at the end of a text. Example: `x = co` gives `co`."""
    return re.split(r"\W", left)[-1]
