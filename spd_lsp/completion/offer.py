"""What is offered at a cursor: of drafts, copies, beginnings of drafts and names, the completions, best first.

This is decided here alone, whoever asks: server, command line or evaluation. What may be offered at all is said
here, too; which of that is chosen, in `ranking`. Knows neither LSP nor models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ngram_builders.sources.masking import secret_check
from ngram_builders.table.suffix_array import Occurrence, SearchedTexts, text_around
from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import DraftText, find_end, visible_text
from spd_lsp.completion.ranking import (
    Completion,
    Weights,
    are_probabilities,
    at_most_one_right,
    beginnings,
    choose_completions,
    rank_candidates,
    word_begun,
)
from spd_lsp.completion.surroundings import Surroundings, splits_word
from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.completion.syntax.parsing import request_could_follow
from spd_lsp.decoding.superposed import DecodingResult
from spd_lsp.ngrams.file_sync import NAME
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.output.printable import HIDDEN_CHARACTERS, printable
from spd_lsp.settings import Settings

_IMPORT = re.compile(r"(?:from|import|use|using|#\s*include|require(?:_relative|_once)?)\b")
_MAX_EXPORTS = 16  # of a module, that are weighed where one of its names is imported
SECRET_REASON = "every draft held what looks like a secret"


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
    searched: Sequence[SearchedTexts] = ()  # where the occurrences were found
    exports: Sequence[str] = ()  # in a list of imported names: those that its module has and the list has not

    @property
    def context(self) -> Context:
        """What the model saw."""
        return self.texts.context

    def can_be_offered(self, text: str) -> bool:
        """Whether a copy or a beginning says something new here."""
        return can_be_offered(text, self.context)


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
    instead: str = ""  # why the model here answered instead of its server
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
    ranked = usable
    if calibrates:
        found = texts.continuations(inputs.occurrences)
        ranked = rank_candidates(usable, found, inputs.weights, inputs.can_be_offered)
    ranked = _without_gone_names(ranked, inputs)
    names = inputs.names()
    if inputs.exports:
        begun = word_begun(context.left)
        ranked = [one for one in ranked if inputs.exports.count((begun + one.text).split(",")[0].strip())]
        names = dict.fromkeys(inputs.exports[:_MAX_EXPORTS], 1 / len(inputs.exports[:_MAX_EXPORTS]))
    safe = _without_secrets(ranked, context)
    known = keep_parseable(safe, inputs.document, inputs.cursor, most)
    if calibrates:
        probabilities = at_most_one_right([one.probability for one in known])
        known = [replace(one, probability=p) for one, p in zip(known, probabilities, strict=True)]
    floor = 0.0 if explicit or not calibrates else settings.min_probability
    begins = calibrates and known and known[0].probability >= floor
    written: Mapping[str, float] = {}
    if begins:
        intermediate = [(texts.text(draft.ids), draft.score) for draft in drafts.intermediate]
        written = beginnings(intermediate, known, inputs.weights, inputs.can_be_offered)
    chosen = choose_completions(known, written, names, context.left, most, safe)
    shown = [_with_place(one, inputs) for one in chosen if one.probability >= floor]
    return Offer(shown, len(ranked) - len(safe), safe)


def _with_place(one: Completion, inputs: OfferInputs) -> Completion:
    """A completion with the file and line where it stands elsewhere, if it does and that is known."""
    place = one.match.place if one.match else None
    bytes_of = inputs.texts.tokens.bytes_of
    found = text_around(inputs.searched, place.document, place.at) if place and inputs.searched else None
    if place is None or found is None:
        return one
    before, after = (bytes_of(ids.tolist()).count(b"\n") for ids in (found.before, found.after))
    following = bytes_of(place.next)
    line = 1 + (before if found.lines is None else found.lines - after)
    line += following[: -len(following.lstrip()) or None].count(b"\n")  # of what is copied behind a line's end
    return replace(one, place=f"{' '.join(printable(found.label).split())}:{line}")


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
    begun = word_begun(inputs.context.left)
    return [one for one in completions if not any(map(inputs.is_gone, NAME.findall(begun + one.text)))]


def usable_completions(drafts: Iterable[tuple[str, float]], context: Context) -> list[Completion]:
    """Return the completions of texts and their log-scores, best first, each text once.

    Texts with invisible or control characters are dropped, those that repeat the line above or below, those that
    would become one word with what stands right of the cursor, and those that say a word twice.
    """
    completions: dict[str, Completion] = {}
    for draft, score in drafts:
        text = visible_text(draft, context)
        is_new = text not in completions and not _says_a_word_again(text, context.left)
        if is_new and can_be_offered(text, context):
            ends = find_end(draft, context) is not None
            completions[text] = Completion(text, math.exp(min(score, 0.0)), ends)
    return list(completions.values())


def can_be_offered(text: str, context: Context) -> bool:
    """Whether a text that is trimmed says something, and something new, that can stand at the cursor."""
    if not text.strip() or HIDDEN_CHARACTERS.search(text) or _is_endless(text):
        return False
    if not text.strip("\"'`") and context.around.is_left_open(text):
        return False
    if context.rest and splits_word(text, context.after):
        return False
    line = (context.left + text.partition("\n")[0] + context.rest).strip()
    if _IMPORT.match(line) and f"\n{line}\n" in f"\n{context.around.above}":
        return False
    if _repeats(context.neighbours, context, text) or not context.around.can_stand(text):
        return False
    return not (re.search(r"\bself\.", text) and _is_outside_methods(text, context.around))


def _is_outside_methods(text: str, around: Surroundings) -> bool:
    """Whether a text in Python comes to stand in no function that has a parameter `self`."""
    if around.language != "python" or around.literal:
        return False
    lines = around.above.split("\n")
    indent = around.indent
    if text.lstrip(" \t").startswith("\n"):  # below the cursor's line, which may be the head
        lines.append(around.left)
        body = text.lstrip("\n")
        indent = len(body) - len(body.lstrip())
    bound = False  # whether the lines read so far say `self` as a head's parameters do
    for line in reversed(lines):
        white = len(line) - len(line.lstrip())
        bound = bound or re.search(r"\bself\b", line) is not None
        if line.strip(") \t:") and white < indent:
            indent = white
            if bound and re.match(r"\s*(?:async\s+)?def\b", line):
                return False
        if not indent:
            break
    return True


def _repeats(lines: Collection[str], context: Context, text: str) -> bool:
    """Whether a text makes the cursor's line the same as one of these; mere signs and closers may be repeated."""
    line = (context.left + text.partition("\n")[0] + context.rest).strip()
    closers = context.around.read(text).closers
    return line in lines and re.search(r"\w", line) is not None and not any(one.at == 0 for one in closers[:1])


def _is_endless(text: str) -> bool:
    """Whether a text ends in a short string repeated six times or a long one four times: a loop of the model."""
    return any(
        text.endswith(text[-n:], 0, -n) and text.endswith(text[-n:] * (6 if n < 10 else 4))
        for n in range(3, len(text) // 4 + 1)
    )


def _says_a_word_again(text: str, left: str) -> bool:
    """Whether a text, behind what is left of it, has a word like `RegistryRegistry`: 40 in 6.7 million of code."""
    begun = word_begun(left) if re.match(r"\w", text) else ""
    words = re.findall(r"\w{8,}", begun + text)
    return any(4 <= (word + word).find(word, 1) < len(word) for word in words)  # not `strstr`, nor `00000000`


def keep_parseable(
    completions: Sequence[Completion], document: OpenDocument, cursor: int, most: int
) -> list[Completion]:
    """Return the first completions, `most` of them, after which the language's parser finds no new error."""
    known = LANGUAGES.get(document.language or "")
    if known is None or not completions:
        return list(completions[:most])
    verdicts = request_could_follow(known, document.text, cursor, [one.text for one in completions], most)
    return [completion for completion, verdict in zip(completions, verdicts, strict=True) if verdict]
