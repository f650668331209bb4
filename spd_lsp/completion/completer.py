"""One completion, one way: document and cursor -> context -> prompt -> drafts -> completions.

Knows neither LSP nor files nor tensors; what it is made of is handed in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import MARK
from spd_lsp.completion.calibration import calibrate_drafts
from spd_lsp.completion.context import build_context, normalize_newlines
from spd_lsp.completion.postprocess import Completion, Place, find_end, rank_completions, visible_text
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.completion.withholding import SECRET_REASON, secret_check, text_before_mask
from spd_lsp.decoding.decoders import DECODERS
from spd_lsp.decoding.hypotheses import ranking_score
from spd_lsp.decoding.superposed import DecodingRequest, Model
from spd_lsp.ngrams.document_changes import DocumentChange, OpenDocument
from spd_lsp.ngrams.interpolation import Domains, adjusted
from spd_lsp.settings import Settings

_ENDS_LINE = re.compile(rb"[\r\n)\]}]")  # no token without one of these ends a completion of one line
MAX_HISTORY = 16  # ids before the draft that n-grams can reach back to

Result = TypeVar("Result")


class CompletionModel(Model, Protocol):
    """A model that knows how long a text it can read."""

    @property
    def max_positions(self) -> int:
        """Longest text, in tokens."""

    def run_request(self, request: Callable[[Model], Result]) -> Result:
        """The result of a request, run again elsewhere if a GPU's memory runs out."""

    @property
    def device(self) -> object:
        """Where it computes."""


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """Completions, best first, and what they took."""

    completions: list[Completion]
    passes: int = 0  # forward passes of the model, the prompt's included
    tokens: int = 0  # of the longest draft written
    prompt_tokens: int = 0
    seconds: float = 0.0
    ngrams: tuple[str, ...] = ()  # domains that had a say
    reason: str = ""  # why nothing is offered
    withheld: int = 0  # drafts that are not offered because a secret was in them
    problems: tuple[str, ...] = ()  # what could not be used, and how to mend it


class Completer:
    """The parts of one completion, put together once and used for every request, from one thread."""

    def __init__(
        self,
        model: CompletionModel,
        tokens: ModelTokenizer,
        domains: Domains,
        settings: Settings,
        tuned: Callable[[Settings], Settings] = lambda settings: settings,
    ) -> None:
        """`tuned` replaces what a person left as it comes by what suits the model."""
        self.model = model
        self.tokens = tokens
        self.domains = domains
        self.tuned = tuned
        self.apply_settings(settings)

    def apply_settings(self, settings: Settings) -> None:
        """Complete as these settings say from now on; those that chose model and tables change nothing."""
        self.settings = self.tuned(settings)

    def complete(
        self,
        source: str,
        cursor: int,
        language: str | None,
        path: Path | None = None,
        *,
        name: str = "",
        forced: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> CompletionResult:
        """Suggest up to k texts to insert at the cursor, an offset in code points, best first.

        `name` tells open documents apart; without it the text is not counted. `forced` asks even where a
        suggestion is rarely wanted. `check` is called before every pass; what it raises ends the work.
        """
        started = time.perf_counter()
        source, cursor = normalize_newlines(source, cursor)
        live = self.domains.live if name else None
        opened = OpenDocument(name, path, language, source)
        if live:
            live.set_active(opened, cursor)
        view = build_context(source, cursor, language, self.context_budget, self.tokens.count, forced=forced)
        if view.shape == "nothing":
            return CompletionResult([], reason="there is text right of the cursor")
        if not view.before.strip():
            return CompletionResult(
                [], reason=self.unread() if source[:cursor].strip() else "there is no code before the cursor"
            )
        place = Place(view.shape, view.indent, view.after, view.left)
        prompt = self.tokens.prompt(view.before, view.after)
        mixture = adjusted(self.domains.mixture_for(path, language), self.settings)
        start = DecodingRequest(
            prompt.ids,
            stop=lambda ids: self.is_finished(ids, prompt, place),
            history=[self.tokens.end_of_text, *prompt.history][
                -MAX_HISTORY:
            ],  # tables count files from their start
            interpolation=mixture,
            allowed=prompt.allowed,
            text_of=lambda ids: visible_text(self.draft_text(ids, prompt), place),
        )
        drafts = self.model.run_request(
            lambda model: DECODERS[self.settings.decoder](model, start, self.settings, check)
        )
        found = [
            (self.draft_text(draft.ids, prompt), ranking_score(draft, self.settings.ranking))
            for draft in [*drafts.best, *drafts.spare]
        ]
        ranked = rank_completions(found, place)
        tells = secret_check(view.before, view.after)
        open_ones = [completion for completion in ranked if not tells(completion.text)]
        withheld = len(ranked) - len(open_ones)
        completions = self.judged(open_ones[: self.settings.drafts], ngrams=mixture is not None)
        if live:
            live.record_offer(opened, cursor, [completion.text for completion in completions])
        return CompletionResult(
            completions,
            passes=drafts.passes,
            tokens=drafts.longest,
            prompt_tokens=len(prompt.ids),
            seconds=time.perf_counter() - started,
            ngrams=mixture.names if mixture else (),
            reason="" if completions else SECRET_REASON if withheld else "every draft was empty or too unlikely",
            withheld=withheld,
            problems=tuple(self.domains.problems),
        )

    def prefetch(self, source: str, cursor: int, language: str | None, check: Callable[[], None]) -> None:
        """Read the prompt of a completion that may be asked for next; `check` is called between its chunks."""
        view = build_context(*normalize_newlines(source, cursor), language, self.context_budget, self.tokens.count)
        if view.shape != "nothing" and view.before.strip():
            ids = self.tokens.prompt(view.before, view.after).ids
            self.model.run_request(lambda model: model.prefill(ids, check))

    def update_documents(self, news: Mapping[str, DocumentChange], asked: str = "") -> None:
        """Take over what became of open documents; the one that is asked for next need not be counted yet."""
        if self.domains.live:
            self.domains.live.update_documents(news, asked)

    def run_idle_work(self, seconds: float) -> bool:
        """Work for about so long on what no request waits for; whether there is more to do."""
        return self.domains.run_idle_work(seconds)

    def judged(self, completions: Sequence[Completion], *, ngrams: bool) -> list[Completion]:
        """Those that are likely enough, with how often such a draft is right, if what ranks them tells that."""
        if not completions or (self.settings.ranking, self.settings.interpolation) != ("probability", "linear"):
            return list(completions)
        shares = calibrate_drafts([completion.probability for completion in completions], ngrams=ngrams)
        told = [replace(one, probability=share) for one, share in zip(completions, shares, strict=True)]
        return [completion for completion in told if completion.probability >= self.settings.min_probability]

    @property
    def context_budget(self) -> int:
        """Tokens for the context: what the settings ask and the model has, less the drafts and a few marks."""
        longest = self.model.max_positions - self.settings.max_tokens - 8
        return max(0, min(self.settings.context_tokens, longest))

    def unread(self) -> str:
        """Why the model reads nothing of what stands before the cursor."""
        reads, drafts = self.model.max_positions, self.settings.max_tokens
        return f"the model reads {reads} tokens and has no room for code beside drafts of {drafts}; ask for less"

    def draft_text(self, ids: tuple[int, ...], prompt: Prompt) -> str:
        """A draft's text right of the cursor, up to where a secret was masked."""
        return text_before_mask(self.written(ids, prompt))

    def written(self, ids: tuple[int, ...], prompt: Prompt) -> str:
        """All that a draft says there: without what the prompt gave back, and without half letters."""
        return normalize_line_ends(self.tokens.bytes_of(ids)[len(prompt.healed) :].decode(errors="ignore"))

    def is_finished(self, ids: tuple[int, ...], prompt: Prompt, place: Place) -> bool:
        """Whether a draft is over: the model ended the text, or the line or block is complete."""
        last = ids[-1]
        if self.tokens.ends(last):
            return True
        if place.shape != "block" and not _ENDS_LINE.search(self.tokens.pieces[last]):
            return False
        text = self.written(ids, prompt)
        return MARK in text or find_end(text, place) is not None
