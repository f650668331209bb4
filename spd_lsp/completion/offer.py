"""What is offered at a cursor: of drafts, copies, beginnings of drafts and names, the completions, best first.

This is decided here alone, whoever asks: server, command line or evaluation. Knows neither LSP nor models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from ngram_builders.sources.masking import secret_check
from ngram_builders.table.suffix_array import Occurrence
from spd_lsp.completion.calibration import Match, Weights, are_probabilities, at_most_one_right, calibrate
from spd_lsp.completion.context import MAX_PARSED_LENGTH, Context
from spd_lsp.completion.draft_text import DraftText, find_end, visible_text
from spd_lsp.completion.overlap import splits_word
from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.completion.syntax.parsing import request_could_follow
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.ngrams.file_sync import NAME
from spd_lsp.ngrams.open_documents import OpenDocument, likely_words
from spd_lsp.printable import HIDDEN_CHARACTERS
from spd_lsp.progress import format_count
from spd_lsp.settings import Settings

SECRET_REASON = "every draft held what looks like a secret"
_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_MAX_NAMES = 16  # no more are ever offered
# Keystrokes that it is worth that the whole line is among those offered, beyond what it saves; and inside words,
# where it has mostly been offered before and passed by; and that a word is, where names go on with it.
_LINE_WORTH, _PASSED_LINE_WORTH, _WORD_WORTH = 100, 20, 30
_MAX_COPIES = 6
_MAX_COMPARED = 64  # places whose texts may become copies


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

    @property
    def shown_probability(self) -> float | None:
        """What a person is told of it; None of names and beginnings, behind which more is to be written."""
        return self.probability if self.is_rated else None

    @property
    def kind(self) -> str:
        """What it is counted as."""
        return "names" if self.is_name else "copies" if self.is_copy else "model"

    @property
    def source(self) -> str:
        """Where it comes from, for a person to read. Example: "copied from 2 files"."""
        if self.is_name:
            return "name in your code"
        if self.match is None:
            return "copied" if self.is_copy else "model"
        files = format_count(self.match.files, "file")
        return f"copied from {files}" if self.is_copy else f"model, as in {files}"


@dataclass(frozen=True, slots=True)
class OfferInputs:
    """Where completions are asked for, and what they are made of besides drafts."""

    document: OpenDocument
    cursor: int
    texts: DraftText
    occurrences: Sequence[Occurrence]  # in the user's code, where what stands before the cursor stands too
    names: Callable[[], Mapping[str, float]]  # that the word at the cursor begins, and the probability of each
    weights: Weights
    is_gone: Callable[[str], bool] | None = None  # whether a name was deleted everywhere; None: none was

    @property
    def context(self) -> Context:
        """What the model saw."""
        return self.texts.context


@dataclass(frozen=True, slots=True)
class Offer:
    """Completions, best first."""

    completions: list[Completion]
    withheld: int = 0  # drafts and copies that hold a secret
    candidates: Sequence[Completion] = ()  # drafts and copies that it was chosen from

    @property
    def reason(self) -> str:
        """Why there are none, or an empty string."""
        if self.completions:
            return ""
        return SECRET_REASON if self.withheld else "nothing is likely enough here"


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """Completions, best first, and what they cost."""

    completions: list[Completion]
    limit: int = 3  # of completions
    passes: int = 0  # forward passes, the prompt's included
    tokens: int = 0  # of the longest draft
    prompt_tokens: int = 0
    read_tokens: int = 0  # of the prompt; others were cached
    seconds: float = 0.0
    ngrams: tuple[str, ...] = ()  # tables that were used
    fill_format: str = ""  # with which the model read what stands right of the cursor
    reason: str = ""  # why there are no completions
    withheld: int = 0  # drafts hidden because they hold a secret
    problems: tuple[str, ...] = ()  # n-gram tables that could not be used, and the remedy
    index_revision: int = 0  # of all that n-grams were counted from, but for the open documents
    opens_block: bool = False  # whether the first completion is the first line of a block that can be written on
    keeps_first: bool = True  # whether the draft that stood first before the last key is left
    needs_refresh: bool = False  # whether more was typed, and the model is to be asked what else may follow


def make_offer(drafts: DecodingResult, inputs: OfferInputs, settings: Settings, *, explicit: bool) -> Offer:
    """Return up to k completions, best first.

    Unless a person asks for them (`explicit`), nothing unlikely, and none where the best draft says nothing.
    """
    context = inputs.context
    texts = inputs.texts
    most = settings.drafts
    scored = drafts.scored(settings.ranking)
    if not explicit and not context.needs_name and not texts.visible(scored[0][0]).strip():
        return Offer([])  # the best draft says that nothing belongs here
    usable = usable_completions([(texts.text(ids), score) for ids, score in scored], context)[: 2 * most]
    calibrates = are_probabilities(settings)
    ranked = rank_candidates(usable, texts.continuations(inputs.occurrences), inputs) if calibrates else usable
    ranked = _without_gone_names(ranked, inputs)
    safe = _without_secrets(ranked, context)
    known = keep_parseable(safe, inputs.document, inputs.cursor, most)
    if calibrates:
        probabilities = at_most_one_right([one.probability for one in known])
        known = [replace(one, probability=p) for one, p in zip(known, probabilities, strict=True)]
    floor = 0.0 if explicit or not calibrates else settings.min_probability
    begins = calibrates and known and known[0].probability >= floor
    begun = beginnings(drafts.intermediate, known, texts, inputs.weights) if begins else {}
    chosen = choose_completions(known, begun, inputs.names(), context.left, most, safe)
    return Offer([one for one in chosen if one.probability >= floor], len(ranked) - len(safe), safe)


def can_be_inserted(text: str, inputs: OfferInputs) -> bool:
    """Whether a text that no draft was is one that may be offered: it is sound, parses, and holds no secret."""
    found = usable_completions([(text, 0.0)], inputs.context)
    safe = _without_secrets(_without_gone_names(found, inputs), inputs.context)
    return bool(keep_parseable(safe, inputs.document, inputs.cursor, 1))


def offer_alone(scored_texts: Iterable[tuple[str, float]], inputs: OfferInputs, most: int) -> Offer:
    """Return `most` of some texts by their scores, as what is compared with the product offers them."""
    usable = usable_completions(scored_texts, inputs.context)[: 2 * most]
    safe = _without_secrets(usable, inputs.context)
    return Offer(keep_parseable(safe, inputs.document, inputs.cursor, most), len(usable) - len(safe))


def _without_secrets(completions: Sequence[Completion], context: Context) -> list[Completion]:
    leaks_secret = secret_check(context.before, context.after)
    return [one for one in completions if not leaks_secret(one.text)]


def _without_gone_names(completions: Sequence[Completion], inputs: OfferInputs) -> list[Completion]:
    if inputs.is_gone is None:
        return list(completions)
    begun = _word_begun(inputs.context.left)
    return [one for one in completions if not any(map(inputs.is_gone, NAME.findall(begun + one.text)))]


@dataclass(frozen=True, slots=True)
class _Continuations:
    """How the text before the cursor goes on where it stands elsewhere, the longest matches first."""

    found: Sequence[tuple[Occurrence, str]]

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


def _word_begun(left: str) -> str:
    """The word at the end of a line's left part, as far as it is written."""
    return re.split(r"\W", left)[-1]


def _says_a_word_again(text: str, left: str) -> bool:
    """Whether a text, behind what is left of it, has a word like `RegistryRegistry`: 40 in 6.7 million of code."""
    begun = _word_begun(left) if re.match(r"\w", text) else ""
    words = re.findall(r"\w{8,}", begun + text)
    return any(4 <= (word + word).find(word, 1) < len(word) for word in words)  # not `strstr`, nor `00000000`


def rank_candidates(
    drafts: Sequence[Completion], found: Sequence[tuple[Occurrence, str]], inputs: OfferInputs
) -> list[Completion]:
    """Return drafts and copies, each text once, the most probable first."""
    elsewhere = _by_trust(found)
    copied = dict.fromkeys(text for _, places in elsewhere for text in places.copies())
    possible = (text for text in copied if _can_be_offered(text, inputs.context))
    copies = {text: Completion(text, 0.0, is_copy=True) for text in islice(possible, _MAX_COPIES)}
    candidates = [
        _calibrated(one, elsewhere, inputs.weights)
        for one in (copies | {draft.text: draft for draft in drafts}).values()
    ]
    return sorted(candidates, key=lambda one: -one.probability)


def _by_trust(found: Sequence[tuple[Occurrence, str]]) -> list[tuple[float, _Continuations]]:
    """How far each level of trust exceeds the next lower one, with the places that have it or more; highest first.

    Example: places of trust 1 and .1 -> .9 with the first, .1 with both.
    """
    levels = sorted({1.0, *(place.trust for place, _ in found)}, reverse=True)
    return [
        (level - lower, _Continuations([one for one in found if one[0].trust >= level]))
        for level, lower in pairwise([*levels, 0.0])
    ]


def _calibrated(one: Completion, elsewhere: Sequence[tuple[float, _Continuations]], by: Weights) -> Completion:
    """A candidate with its probability: the mean over what is said by places of each level of trust."""
    score = one.probability
    matches = [(share, places.match(one.text)) for share, places in elsewhere]
    probability = sum(share * calibrate(score, match, by) for share, match in matches)
    return replace(one, match=matches[-1][1], score=score, probability=probability)


def beginnings(
    intermediate: Iterable[Draft], drafts: Sequence[Completion], texts: DraftText, by: Weights
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
            p = calibrate(math.exp(min(draft.score, 0.0)), None, by)
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
        line = self.lines.get(one.text, 0.0)
        word = _next_word(self.begun, one)
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
    word_begun = _word_begun(left)
    written_words = [(_next_word(word_begun, one), one.probability) for one in candidates or drafts]
    likely = likely_words(names, written_words) if names else {}
    savings = _ExpectedSavings(word_begun, likely, {one.text: one.probability for one in drafts if one.ends})
    words = islice((word for word in likely if word in names), _MAX_NAMES)
    bare = [
        Completion(word[len(word_begun) :], likely[word], is_rated=False, ends=False, is_name=True)
        for word in words
    ]
    rest = {one.text: one for one in drafts}
    for text, p in beginnings.items():
        rest[text] = replace(rest.get(text, Completion(text, p)), probability=p, is_rated=False, ends=False)
    rest = {one.text: one for one in bare} | rest | {one.text: one for one in drafts[:1]}
    best: list[Completion] = []
    while rest and len(best) < most:
        possible = rest.values() if best else [one for one in rest.values() if one.is_name or one in drafts[:1]]
        best.append(max(possible, key=lambda one: savings.added(one, best)))
        del rest[best[-1].text]
    rated = iter(sorted((one for one in best if one.is_rated), key=lambda one: -one.probability))
    return [next(rated) if one.is_rated else one for one in best]


def keep_parseable(
    completions: Sequence[Completion], document: OpenDocument, cursor: int, most: int
) -> list[Completion]:
    """Return the first completions, `most` of them, after which the language's parser finds no new error."""
    known = LANGUAGES.get(document.language or "")
    if known is None or not completions or len(document.text) > MAX_PARSED_LENGTH:
        return list(completions[:most])
    verdicts = request_could_follow(known, document.text, cursor, [one.text for one in completions], most)
    return [completion for completion, verdict in zip(completions, verdicts, strict=True) if verdict]
