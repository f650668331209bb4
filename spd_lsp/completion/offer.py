"""What is offered at a cursor: of drafts, copies, beginnings of drafts and names, the completions, best first.

This is decided here alone, whoever asks: server, command line or evaluation. What may be offered at all is said
here, too; which of that is chosen, in `ranking`. Knows neither LSP nor models.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from ngram_builders.index.suffix_array import Occurrence, SearchedTexts, find_occurrences, text_around
from ngram_builders.sources.masking import secret_check
from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import DraftText, find_end, visible_text
from spd_lsp.completion.ranking import (
    Completion,
    Weights,
    at_most_one_right,
    beginnings,
    choose_completions,
    is_variant,
    rank_candidates,
    word_begun,
)
from spd_lsp.completion.surroundings import splits_word
from spd_lsp.completion.syntax.languages import LANGUAGES, breaks_line
from spd_lsp.decoding.superposed import DecodingResult
from spd_lsp.output.printable import HIDDEN_CHARACTERS, printable
from spd_lsp.settings import Settings

_IMPORT = re.compile(r"(?:from|import|use|using|#\s*include|require(?:_relative|_once)?)\b")
_NAME = re.compile(r"[^\W\d]\w*")
_JOINT = re.compile(r"[a-z\d][A-Z]|[^\W_]_+[^\W_]")  # between two parts of a name: `numRows`, `num_rows`
_IS_BOUND = re.compile(r"\s*(?::(?!:)|:?=(?!=))")  # what stands behind a name that is defined
_BINDS = re.compile(r"\b(?:as|class|const|def|fn|for|func|function|import|let|var)\s+$")  # and before it
_TWICE = re.compile(r"\b(?!\d)(\w{4,100})\1\b")  # a word such as `RegistryRegistry`: 40 in 6.7 million of code
_TOP_LEVEL = re.compile(r"\n(?=[^\s)\]}#])")  # where a line begins that is not indented
_MAX_READ_ABOVE = 20_000  # characters of the function or class around a cursor
_SURE_OF_NAMES = 0.1  # the probability from which a draft may hold a new name
_MAX_EXPORTS = 16  # of a module, that are weighed where one of its names is imported
_UNLIKELY = "nothing is likely enough here"
SECRET_REASON = "every draft held what looks like a secret"


@dataclass(frozen=True, slots=True)
class OfferInputs:
    """Where completions are asked for, and what they are made of besides drafts."""

    texts: DraftText
    occurrences: Sequence[Occurrence]  # in the user's code, where what stands before the cursor stands too
    names: Callable[[], Mapping[str, float]]  # that the word at the cursor begins, and the probability of each
    weights: Weights
    searched: Sequence[SearchedTexts] = ()  # where the occurrences were found
    exports: Sequence[str] = ()  # in a list of imported names: those that its module has and the list has not
    foreign: Collection[str] = ()  # and where that is not known, those that it hardly has


@dataclass(frozen=True, slots=True)
class Offer:
    """Completions, best first."""

    completions: list[Completion]
    reason: str = ""  # why there are none
    withheld: int = 0  # drafts and copies that hold a secret
    candidates: Sequence[Completion] = ()  # drafts and copies that it was chosen from


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

    Unless a person asks for them (`explicit`), no unlikely ones are offered, and none at all where the best draft
    says nothing.
    """
    texts = inputs.texts
    context = texts.context
    fits = partial(can_be_offered, context=context)
    most = settings.drafts
    scored = drafts.scored(settings.ranking)
    if not explicit and not context.needs_name and not texts.visible(scored[0][0]).strip():
        return Offer([], _UNLIKELY)  # the best draft says that nothing belongs here
    usable = usable_completions([(texts.text(ids), score) for ids, score in scored], context)[: 2 * most]
    # Scores of other rankings and of the paper's formula are no probabilities.
    calibrates = (settings.ranking, settings.interpolation) == ("probability", "linear")
    ranked = usable
    if calibrates:
        found = texts.continuations(inputs.occurrences)
        ranked = rank_candidates(usable, found, inputs.weights, fits)
    names = {name: p for name, p in inputs.names().items() if name not in inputs.foreign}
    ranked = [one for one in ranked if _first_imported(one, context) not in inputs.foreign]
    if inputs.exports:
        ranked = [one for one in ranked if _first_imported(one, context) in inputs.exports]
        names = dict.fromkeys(inputs.exports[:_MAX_EXPORTS], 1 / len(inputs.exports[:_MAX_EXPORTS]))
    safe = _without_secrets(ranked, context)
    known = sorted(
        without_broken(_new_texts_first(safe, inputs, explicit), context, most), key=lambda one: -one.probability
    )
    if calibrates:
        probabilities = at_most_one_right([one.probability for one in known])
        known = [replace(one, probability=p) for one, p in zip(known, probabilities, strict=True)]
    floor = 0.0 if explicit or not calibrates else settings.min_probability
    written: Mapping[str, float] = {}
    if calibrates and known and known[0].probability >= floor:
        intermediate = [(texts.text(draft.ids), draft.score) for draft in drafts.intermediate]
        written = beginnings(intermediate, known, inputs.weights, fits)
    chosen = choose_completions(known, written, names, context.around.left, most, safe)
    completions = [_with_place(one, inputs) for one in chosen if one.probability >= floor]
    withheld = len(ranked) - len(safe)
    reason = "" if completions else SECRET_REASON if withheld else _UNLIKELY
    return Offer(completions, reason, withheld, safe)


def _first_imported(one: Completion, context: Context) -> str:
    """Return the first name that a completion adds to a list of imported names."""
    return re.split(r"\W", (word_begun(context.around.left) + one.text).lstrip(" \t\n("))[0]


def _new_texts_first(
    completions: Iterable[Completion], inputs: OfferInputs, explicit: bool
) -> Iterator[Completion]:
    """Yield the completions; variants of better ones come last, then, for a person who asks, invented names."""
    new: list[Completion] = []
    variants: list[Completion] = []
    invented: list[Completion] = []
    for one in completions:
        if any(is_variant(one.text, better.text) for better in new):
            variants.append(one)
        elif invents_name(one, inputs):
            invented.append(one)
        else:
            new.append(one)
            yield one
    yield from variants
    if explicit or not new:
        yield from invented


def invents_name(one: Completion, inputs: OfferInputs) -> bool:
    """Whether an unlikely draft holds a name of several parts that stands nowhere, and that it does not define.

    Example: `SETTING_KEYTING_MISSING`. Of 48 such names in 1,189 drafts none was right.
    """
    if one.match or one.probability >= _SURE_OF_NAMES or not inputs.searched:
        return False
    around = inputs.texts.context.around
    written = around.left[: len(around.left) - len(word_begun(around.left))]
    line = around.left + one.text
    return any(
        not (_IS_BOUND.match(line, name.end()) or _BINDS.search(line[: name.start()]))
        and not _stands_somewhere(name[0], inputs)
        for name in _NAME.finditer(line, len(written))
        if _JOINT.search(name[0])
    )


def _stands_somewhere(name: str, inputs: OfferInputs) -> bool:
    """Whether a name stands in this document or in the texts that are searched."""
    around = inputs.texts.context.around
    tokens = inputs.texts.tokens
    whole_word = re.compile(rf"\b{name}\b")
    if any(map(whole_word.search, (around.above, around.below, around.rest))):
        return True
    spellings = dict.fromkeys(tuple(tokens.encode_inside(before + name)) for before in ("", " ", ".", "("))
    return any(
        place.length == len(ids) for ids in spellings for place in find_occurrences(inputs.searched, ids, 0)[:1]
    )


def _with_place(one: Completion, inputs: OfferInputs) -> Completion:
    """Return a completion with the file and line where its text stands elsewhere, if that is known."""
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


def with_copied_blocks(completions: Sequence[Completion], inputs: OfferInputs) -> list[Completion]:
    """The completions, each with the rest of its block where one that begins so stands in the user's code.

    inputs: with texts that end with the block.
    """
    blocks: dict[str, str] = {}
    for _, block in inputs.texts.continuations(inputs.occurrences):
        blocks.setdefault(first_line(block), block)  # of the longest match
    return [written_on(one, blocks.get(one.text, ""), inputs) for one in completions]


def written_on(one: Completion, block: str, inputs: OfferInputs) -> Completion:
    """A completion as far as a block that begins so goes on, if that can be inserted."""
    is_longer = block.startswith(one.text + "\n")
    return replace(one, text=block) if is_longer and offer_alone([(block, 0.0)], inputs, 1).completions else one


def first_line(text: str) -> str:
    """The first line that says something, and what stands before it."""
    start = len(text) - len(text.lstrip())
    return text[:start] + text[start:].partition("\n")[0].rstrip()


def offer_alone(scored_texts: Iterable[tuple[str, float]], inputs: OfferInputs, most: int) -> Offer:
    """Return `most` of some texts by their scores, of those that can stand there and hold no secret."""
    context = inputs.texts.context
    safe = _without_secrets(usable_completions(scored_texts, context)[: 2 * most], context)
    return Offer(without_broken(safe, context, most))


def _without_secrets(completions: Sequence[Completion], context: Context) -> list[Completion]:
    leaks_secret = secret_check(context.before, context.after)
    return [one for one in completions if not leaks_secret(one.text)]


def usable_completions(drafts: Iterable[tuple[str, float]], context: Context) -> list[Completion]:
    """Return the completions of texts and their log-scores, best first, each text once.

    Texts with invisible or control characters are dropped, those that repeat the line above or below, and those
    that would become one word with what stands right of the cursor.
    """
    completions: dict[str, Completion] = {}
    for draft, score in drafts:
        text = visible_text(draft, context)
        if text not in completions and can_be_offered(text, context):
            ends = find_end(draft, context) is not None
            completions[text] = Completion(text, math.exp(min(score, 0.0)), ends)
    return list(completions.values())


def can_be_offered(text: str, context: Context) -> bool:
    """Whether a trimmed text adds something new that can stand at the cursor."""
    around = context.around
    if not text.strip() or HIDDEN_CHARACTERS.search(text) or _is_endless(text):
        return False
    begun = word_begun(around.left) if re.match(r"\w", text) else ""
    if _TWICE.search(begun + text):
        return False
    if not text.strip("\"'`") and around.left_open(text):
        return False
    if splits_word(text, around.rest):
        return False
    line = (around.left + text.partition("\n")[0] + around.rest).strip()
    if _IMPORT.match(line) and f"\n{line}\n" in f"\n{around.above}":
        return False
    closes = any(one.at == 0 for one in around.read(text).closers[:1])
    above = around.above.rstrip().rpartition("\n")[2].strip()
    below = around.below.lstrip().partition("\n")[0].strip()
    if line in (above, below) and re.search(r"\w", line) and not closes:
        return False
    if not around.can_stand(text):
        return False
    if around.language == "python" and not around.literal and re.search(r"\bself\.", text):
        outer = _TOP_LEVEL.split(f"\n{around.above[-_MAX_READ_ABOVE:]}{around.left}{text}")[-1]
        return re.search(r"\bself\b(?!\.)", outer) is not None  # a parameter of the function or class around it
    return True


def _is_endless(text: str) -> bool:
    """Whether a text ends in a short string repeated six times or a long one four times: a loop of the model."""
    return any(
        text.endswith(text[-n:], 0, -n) and text.endswith(text[-n:] * (6 if n < 10 else 4))
        for n in range(3, len(text) // 4 + 1)
    )


def without_broken(completions: Iterable[Completion], context: Context, most: int) -> list[Completion]:
    """The first completions, `most` of them, without lines that are a syntax error where all else is none."""
    around = context.around
    language = LANGUAGES.get(around.language)
    if language is None or around.literal:
        return list(islice(completions, most))
    is_broken = breaks_line(language, around)

    def is_sound(one: Completion) -> bool:
        if not one.ends or not is_broken(one.text):  # more may follow what does not end
            return True
        closed = around.closed(one.text)  # what it opens may be closed below, or not yet
        return closed != one.text and not is_broken(closed)

    return list(islice(filter(is_sound, completions), most))
