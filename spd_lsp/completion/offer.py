"""What is offered at a cursor: of drafts, copies, beginnings of drafts and names, the completions, best first.

This is decided here alone, whoever asks: server, command line or evaluation. Knows neither LSP nor models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ngram_builders.sources.masking import secret_check
from ngram_builders.table.suffix_array import Place
from spd_lsp.completion.calibration import (
    Calibration,
    Match,
    are_probabilities,
    calibrate,
    calibrate_drafts,
    probabilities_behind,
)
from spd_lsp.completion.context import MAX_PARSED_LENGTH, Context
from spd_lsp.completion.draft_text import DraftText, find_end, visible_text
from spd_lsp.completion.languages import LANGUAGES
from spd_lsp.completion.overlap import splits_word
from spd_lsp.completion.parsing import request_could_follow
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.ngrams.open_documents import OpenDocument, likely_words
from spd_lsp.printable import HIDDEN_CHARACTERS
from spd_lsp.settings import Settings

SECRET_REASON = "every draft held what looks like a secret"
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_MAX_NAMES = 16  # no more are ever offered
# Keystrokes that it is worth that the whole line is among those offered, beyond what it saves; and inside words,
# where it has mostly been offered before and passed by; and that a word is, where names go on with it.
_LINE_WORTH, _PASSED_LINE_WORTH, _WORD_WORTH = 100, 20, 30
_MAX_COPIES = 6
_MAX_COMPARED = 64  # places whose texts may become copies
# Behind drafts a copy is right less often than its match alone says: .29 times as often for 185 in five packages,
# .25 for 146 in five others.
_LATER_COPY = 0.3
# The last place is a copy's that is this much as likely as the draft there: as before drafts had a say in that.
_LAST_PLACE = 0.3


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert at the cursor; `probability` is its ranking score, or calibrated."""

    text: str
    probability: float
    ends: bool = True  # whether its line or block ends with it; else it was cut off, and more may follow
    is_name: bool = False  # whether it is no draft, but the rest of a name that was begun
    is_copy: bool = False  # whether it is no draft, but copied from elsewhere in the user's code
    match: Match | None = None  # None: it stands nowhere behind what is before the cursor


@dataclass(frozen=True, slots=True)
class OfferInputs:
    """Where completions are asked for, and what they are made of besides drafts."""

    document: OpenDocument
    cursor: int
    texts: DraftText
    places: Sequence[Place]  # in the user's code, where what stands before the cursor stands too
    names: Callable[[], Mapping[str, float]]  # that the word at the cursor begins, and the probability of each
    calibration: Calibration

    @property
    def context(self) -> Context:
        """What the model saw."""
        return self.texts.context


@dataclass(frozen=True, slots=True)
class Offer:
    """Completions, best first."""

    completions: list[Completion]
    withheld: int = 0  # drafts and copies that hold a secret

    @property
    def reason(self) -> str:
        """Why there are none, or an empty string."""
        if self.completions:
            return ""
        return SECRET_REASON if self.withheld else "nothing is likely enough here"


def make_offer(drafts: DecodingResult, inputs: OfferInputs, settings: Settings, *, explicit: bool) -> Offer:
    """Return up to k completions, best first.

    Unless a person asks for them (`explicit`), nothing unlikely, and none where the best draft says nothing.
    """
    context, texts, most = inputs.context, inputs.texts, settings.drafts
    scored = drafts.scored(settings.ranking)
    if not explicit and not context.needs_name and texts.is_empty(scored[0][0]):
        return Offer([])
    usable = usable_completions([(texts.text(ids), score) for ids, score in scored], context)[: 2 * most]
    found = texts.continuations(inputs.places)
    ranked = with_copies(usable, found, context, most, inputs.calibration)
    safe = _without_secrets(ranked, context)
    known = calibrated(_parseable(safe, inputs, most), settings, inputs.calibration)
    floor = 0.0 if explicit or not are_probabilities(settings) else settings.min_probability
    begins = are_probabilities(settings) and known and known[0].probability >= floor
    begun = beginnings(drafts.begun, known, texts, inputs.calibration) if begins else {}
    chosen = choose_completions(known, begun, inputs.names(), context.left, most, safe)
    return Offer([one for one in chosen if one.probability >= floor], len(ranked) - len(safe))


def offer_alone(scored_texts: Iterable[tuple[str, float]], inputs: OfferInputs, most: int) -> Offer:
    """Return `most` of some texts by their scores, as what is compared with the product offers them."""
    usable = usable_completions(scored_texts, inputs.context)[: 2 * most]
    safe = _without_secrets(usable, inputs.context)
    return Offer(_parseable(safe, inputs, most), len(usable) - len(safe))


def _without_secrets(completions: Sequence[Completion], context: Context) -> list[Completion]:
    leaks_secret = secret_check(context.before, context.after)
    return [one for one in completions if not leaks_secret(one.text)]


def _parseable(completions: Sequence[Completion], inputs: OfferInputs, most: int) -> list[Completion]:
    document = inputs.document
    return keep_parseable(completions, document.text, inputs.cursor, document.language, most)


@dataclass(frozen=True, slots=True)
class _Continuations:
    """How the text before the cursor goes on where it stands elsewhere, the longest matches first."""

    found: Sequence[tuple[Place, str]]

    def match(self, text: str) -> Match | None:
        """How a draft stands elsewhere; None if it does not."""
        length = next((place.length for place, line in self.found if line == text), 0)
        alike = [(place, line) for place, line in self.found if length and place.length >= length]
        agreeing = [place for place, line in alike if line == text]
        if not agreeing:
            return None
        return Match(length, len(agreeing), len(alike), len({place.document for place in agreeing}))

    def copies(self) -> dict[str, Match]:
        """The texts, best first: of the longest match, the most frequent first, then of shorter ones."""
        texts = dict.fromkeys(text for _, text in self.found[:_MAX_COMPARED])
        matches = {text: match for text in texts if (match := self.match(text))}
        return dict(sorted(matches.items(), key=lambda item: (-item[1].length, -item[1].count)))


def usable_completions(drafts: Iterable[tuple[str, float]], context: Context) -> list[Completion]:
    """Return the completions of texts and their log-scores, best first, each text once.

    Texts with invisible or control characters are dropped, those that repeat the line above or below, those that
    would become one word with what stands right of the cursor, and those that say a word twice.
    """
    completions: dict[str, Completion] = {}
    for draft, score in drafts:
        text = visible_text(draft, context)
        is_new = text not in completions and not _says_a_word_again(text, context.left)
        if is_new and _can_be_offered(text, context):
            ends = find_end(draft, context) is not None
            completions[text] = Completion(text, math.exp(min(score, 0.0)), ends)
    return list(completions.values())


def _can_be_offered(text: str, context: Context) -> bool:
    """Whether a text that is trimmed says something, and something new."""
    if not text.strip() or HIDDEN_CHARACTERS.search(text) or _is_endless(text):
        return False
    if context.rest and splits_word(text, context.after):
        return False
    return not _repeats(context.neighbours, context, text)


def _repeats(lines: Collection[str], context: Context, text: str) -> bool:
    """Whether a text makes the cursor's line the same as one of these; a line of mere signs may be repeated."""
    line = (context.left + text.partition("\n")[0] + context.rest).strip()
    return line in lines and re.search(r"\w", line) is not None


def _is_endless(text: str) -> bool:
    """Whether a text ends in a short string repeated six times or a long one four times: a loop of the model."""
    return any(
        text.endswith(text[-n:], 0, -n) and text.endswith(text[-n:] * (6 if n < 10 else 4))
        for n in range(3, len(text) // 4 + 1)
    )


def _says_a_word_again(text: str, left: str) -> bool:
    """Whether a text, behind what is left of it, has a word like `RegistryRegistry`: 40 in 6.7 million of code."""
    begun = re.split(r"\W", left)[-1] if re.match(r"\w", text) else ""
    words = re.findall(r"\w{8,}", begun + text)
    return any(4 <= (word + word).find(word, 1) < len(word) for word in words)  # not `strstr`, nor `00000000`


def with_copies(
    drafts: Sequence[Completion],
    found: Sequence[tuple[Place, str]],
    context: Context,
    most: int,
    by: Calibration,
) -> list[Completion]:
    """Return drafts and copies, best first: a copy of a long match on which most places agree, then drafts.

    It gives way to a likelier draft unless its match is very long. Outside of words the last of `most` places is
    that of the likeliest other copy, unless the draft there is much likelier. A draft that says the same gives way
    to a copy, and what it says counts for that; other copies come last.
    """
    elsewhere = _Continuations(found)
    possible = ((text, match) for text, match in elsewhere.copies().items() if _can_be_offered(text, context))
    written = {draft.text: draft.probability for draft in drafts}
    copies = [
        Completion(text, match.probability(written.get(text, 0.0)), is_copy=True, match=match)
        for text, match in islice(possible, _MAX_COPIES)
    ]
    best_draft = calibrate(drafts[0].probability, by, first=True) if drafts else 0.0
    first = [
        copy
        for copy in copies[:1]
        if copy.match and copy.match.is_reliable and (copy.match.is_long or copy.probability > best_draft)
    ]
    matched = [replace(draft, match=elsewhere.match(draft.text)) for draft in drafts]
    best = [*first, *(draft for draft in matched if draft.text not in {copy.text for copy in first})]
    kept, later = best[: max(most - 1, 1)], best[max(most - 1, 1) :]
    shown = {one.text for one in kept}
    others = sorted((copy for copy in copies if copy.text not in shown), key=lambda copy: -copy.probability)
    is_free = bool(later and others) and not re.search(r"\w$", context.left)
    is_likely = is_free and others[0].probability > _LAST_PLACE * calibrate(later[0].probability, by, first=False)
    by_text: dict[str, Completion] = {}
    for completion in (*kept, *others[:is_likely], *later, *others):
        by_text.setdefault(completion.text, completion)
    return list(by_text.values())


def beginnings(
    intermediate: Iterable[Draft], drafts: Sequence[Completion], texts: DraftText, by: Calibration
) -> dict[str, float]:
    """Return what drafts begin with, up to the end of a word, and how probable each beginning is.

    It is at least as probable as the first draft, if that begins so, and at most as probable as that leaves.
    """
    ends = [(one.text, mark.end()) for one in drafts for mark in _WORD_OR_SIGN.finditer(one.text)]
    possible = {text[:end] for text, end in ends if end < len(text)}
    found: dict[str, float] = {}
    for draft in intermediate:
        text = texts.text(draft.ids).rstrip()
        if text in possible and _can_be_offered(text, texts.context):
            first = drafts[0].probability
            begins_first = drafts[0].text.startswith(text)
            p = calibrate(math.exp(min(draft.score, 0.0)), by, first=begins_first)
            found[text] = max(found.get(text, 0.0), max(p, first) if begins_first else min(p, 1 - first))
    return found


@dataclass(frozen=True, slots=True)
class _ExpectedSavings:
    """What it is worth to offer a completion, in keystrokes."""

    begun: str  # the word at the cursor, as far as it is written
    likely: Mapping[str, float]  # how likely each word is, where names go on with it
    lines: Mapping[str, float]  # how likely each text is all that is missing of its line

    def added(self, one: Completion, better: Sequence[Completion]) -> float:
        """What a completion adds to better ones, in the mean; a step down the list takes one keystroke."""
        accepted = max((len(other.text) for other in better if one.text.startswith(other.text)), default=0)
        saved = max(0, len(one.text) - max(accepted, 1) - len(better))
        continued = sum(other.probability for other in better if other.text.startswith(one.text))
        line, word = self.lines.get(one.text, 0.0), _next_word(self.begun, one)
        is_new = word not in (_next_word(self.begun, other) for other in better)
        worth = line * (_PASSED_LINE_WORTH if self.begun else _LINE_WORTH)
        worth += is_new * self.likely.get(word, 0.0) * _WORD_WORTH
        return max(line, one.probability - continued) * saved + worth


def _next_word(begun: str, one: Completion) -> str:
    """The word that a completion goes on with."""
    return begun + re.split(r"\W", one.text, maxsplit=1)[0]


def choose_completions(
    drafts: Sequence[Completion],
    beginnings: Mapping[str, float],
    names: Mapping[str, float],
    left: str,
    most: int,
    said: Sequence[Completion] = (),
) -> list[Completion]:
    """Return `most` of drafts, beginnings of drafts and names, best first; a draft or name is first.

    Each place goes to what adds most: the keystrokes that it saves if it is right, and what a line and a word are
    worth. What a better one begins with is accepted already. The word at the end of `left` begins each name.
    `said`: all drafts, if these are not all.
    Example: `co` with drafts `mpute(x)` .4, `mpute(y)` .04, the beginning `mpute(` .8 and the name `count` .6
    -> `mpute(x)`, `unt`, `mpute(`.
    """
    if not beginnings and not names:
        return list(drafts[:most])
    begun = re.split(r"\W", left)[-1]
    said_words = [(_next_word(begun, one), one.probability) for one in said or drafts]
    likely = likely_words(names, said_words) if names else {}
    savings = _ExpectedSavings(begun, likely, {one.text: one.probability for one in drafts if one.ends})
    words = islice((word for word in likely if word in names), _MAX_NAMES)
    bare = [Completion(word[len(begun) :], likely[word], ends=False, is_name=True) for word in words]
    rest = {one.text: one for one in drafts}
    for text, p in beginnings.items():
        rest[text] = replace(rest.get(text, Completion(text, p)), probability=p, ends=False)
    rest = {one.text: one for one in bare} | rest | {one.text: one for one in drafts[:1]}
    best: list[Completion] = []
    while rest and len(best) < most:
        possible = rest.values() if best else [one for one in rest.values() if one.is_name or one in drafts[:1]]
        best.append(max(possible, key=lambda one: savings.added(one, best)))
        del rest[best[-1].text]
    return best


def keep_parseable(
    completions: Sequence[Completion], source: str, cursor: int, language: str | None, most: int
) -> list[Completion]:
    """Return the first completions, `most` of them, after which the language's parser finds no new error."""
    known = LANGUAGES.get(language or "")
    if known is None or not completions or len(source) > MAX_PARSED_LENGTH:
        return list(completions[:most])
    verdicts = request_could_follow(known, source, cursor, [one.text for one in completions], most)
    return [completion for completion, verdict in zip(completions, verdicts, strict=True) if verdict]


def calibrated(completions: Sequence[Completion], settings: Settings, by: Calibration) -> list[Completion]:
    """Return drafts and copies, best first, with calibrated probabilities where scores are probabilities."""
    if not are_probabilities(settings):
        return list(completions)
    drafts = [one.probability for one in completions if not one.is_copy]
    probabilities = calibrate_drafts(drafts, by) if drafts else []
    if completions and completions[0].is_copy:
        probabilities = probabilities_behind(completions[0].probability, probabilities)
    others = iter(probabilities)
    return [
        replace(one, probability=one.probability * (_LATER_COPY if place else 1) if one.is_copy else next(others))
        for place, one in enumerate(completions)
    ]
