"""One completion, one way: document and cursor -> context -> prompt -> n-grams -> drafts -> completions.

Knows neither LSP nor files nor tensors; its parts are passed in.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ngram_builders.index.suffix_array import SearchedTexts, find_occurrences
from ngram_builders.sources.language_ids import related_languages
from ngram_builders.sources.masking import is_inside_secret
from spd_lsp.completion.context import Context, build_context, normalize_newlines
from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS, DraftText
from spd_lsp.completion.offer import CompletionResult, OfferInputs, make_offer, with_copied_blocks, written_on
from spd_lsp.completion.ranking import MODEL_ALONE, WITH_NGRAMS
from spd_lsp.completion.server_drafts import server_drafts
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.decoders import FAST_PASS_SECONDS, decoder_for
from spd_lsp.decoding.superposed import Draft, expand
from spd_lsp.models.base import Engine
from spd_lsp.models.model_server import ModelServer
from spd_lsp.ngrams.open_documents import ImportedModules, ImportList, OpenDocument
from spd_lsp.ngrams.serving_tables import ServingTables, adjusted
from spd_lsp.settings import Settings

_IMPORTED_TOKENS = 32  # of a list of imported names elsewhere
_LEAST_LIKELY_LINE = math.log(0.1)  # of 88 bodies no line beyond a less likely one was right; two lines are shown
_ALONE = np.ones(1)  # the weight of a token that is not mixed with others
_RESERVED_TOKENS = 8  # of the model's positions, for special tokens of the prompt


class Completer:
    """The parts of a completion, built once and used for every request, from one thread."""

    def __init__(
        self,
        model: Engine,
        tokens: ModelTokenizer,
        tables: ServingTables,
        settings: Settings,
        tuned: Callable[[Settings], Settings] = lambda settings: settings,
        languages: Collection[str] | None = None,
        server: ModelServer | None = None,
    ) -> None:
        """`tuned` replaces default settings by those tuned for the model; it knows `languages`, or any if None.

        `server` is asked for drafts, and the model only where that does not answer.
        """
        self.model = model
        self.server = server
        self.tokens = tokens
        self.tables = tables
        self.modules = ImportedModules(tables.open_files) if tables.open_files else None
        self.tuned = tuned
        self.languages = languages
        self.apply_settings(settings)

    def apply_settings(self, settings: Settings) -> None:
        """Use these settings from the next request on; those that choose model and tables have no effect."""
        self.settings = self.tuned(settings)
        self._decoders = {fast: decoder_for(self.model, self.settings, is_fast=fast) for fast in (True, False)}
        self.model.limit_threads(settings.threads)

    def complete(
        self,
        source: str,
        cursor: int,
        language: str | None,
        path: Path | None = None,
        *,
        name: str = "",
        explicit: bool = False,
        check: Callable[[], None] = lambda: None,
        check_typed: Callable[[Callable[[str], bool]], None] = lambda fits: None,
    ) -> CompletionResult:
        """Return up to k texts to insert at the cursor, an offset in code points, best first.

        `name` identifies an open document; without it the text is not indexed. `explicit`, for a person who asks,
        completes even where suggestions are rarely wanted or right. `check` and `check_typed` are called before
        every forward pass and may raise to cancel: the second knows what was typed since, and is given what tells
        whether a draft so far goes on with that.
        """
        started = time.perf_counter()
        source, cursor = normalize_newlines(source, cursor)
        document = OpenDocument(name, path, language, source)
        context = build_context(
            source, cursor, language, self.context_budget, self.tokens.count, explicit=explicit
        )

        if self.settings.one_line:
            context = replace(context, shape="line")
        first_line = context.opening
        reason = self._reason_to_skip(context, source, cursor)
        prompt = None if reason else self.prompt(context)

        served = self.tables.serve(document, cursor)
        revision = self.tables.revision
        if not (reason or explicit or self._is_known(language)):
            reason = f"neither the model nor any n-gram table knows {language or 'this language'}"
        if prompt is None or reason:
            return CompletionResult([], reason=reason, index_revision=revision)

        mixture = adjusted(served, self.settings)
        texts = DraftText(self.tokens, prompt, first_line)
        occurrences = texts.occurrences(mixture, self.settings.max_tokens)
        examined: set[tuple[int, ...]] = set()

        def stop(ids: Sequence[int]) -> bool:
            examined.add(tuple(ids))
            return texts.is_finished(ids)

        def check_step() -> None:
            check()
            check_typed(lambda typed: texts.may_go_on_with(typed, examined, occurrences))

        read_before = self.model.positions_read
        drafts = self.server and server_drafts(self.server, texts, source, self.settings, check_step)
        if not drafts:
            request = replace(texts.request(mixture), stop=stop)
            decode = self._decoders[self.model.pass_seconds <= FAST_PASS_SECONDS]
            try:
                drafts = decode(self.model, request, self.settings, check_step)
            finally:  # the model forgets them
                self.model.crop(len(request.prompt))

        names = partial(self._matching_names, document, cursor)
        weights = WITH_NGRAMS if mixture else MODEL_ALONE
        searched = mixture.texts if mixture else ()
        imported = self._imported_names(document, cursor, searched)
        inputs = OfferInputs(texts, occurrences, names, weights, searched, *imported)
        offer = make_offer(drafts, inputs, self.settings, explicit=explicit)
        completions = offer.completions
        opens_block = False
        if context.shape == "block":
            completions = with_copied_blocks(completions, replace(inputs, texts=replace(texts, context=context)))
            opens_block = any(one.ends and "\n" not in one.text.strip() for one in completions[:1])

        return CompletionResult(
            completions,
            limit=self.settings.drafts,
            passes=drafts.passes,
            tokens=drafts.longest,
            prompt_tokens=len(prompt.ids),
            read_tokens=self.model.positions_read - read_before,
            seconds=time.perf_counter() - started,
            ngrams=mixture.names if mixture else (),
            fill_format="" if self.is_served else prompt.fill_format,
            reason=offer.reason,
            withheld=offer.withheld,
            instead=self.server.problem if self.server else "",
            problems=tuple(self.tables.problems),
            index_revision=revision,
            opens_block=opens_block,
        )

    def write_block(
        self,
        source: str,
        cursor: int,
        language: str | None,
        path: Path | None,
        result: CompletionResult,
        *,
        name: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> CompletionResult:
        """A result that opens a block, with its first completion written on to the end of that block.

        Drafts share passes while they are alike, which those of several lines are not; and of the alternatives to
        a whole block, hardly more than the first line is ever read. So one is written on alone: the likeliest
        token of each pass, up to a line that is not likely.
        """
        if not result.opens_block or self.is_served:
            return result
        started = time.perf_counter()
        source, cursor = normalize_newlines(source, cursor)
        document = OpenDocument(name, path, language, source)
        context = build_context(source, cursor, language, self.context_budget, self.tokens.count, explicit=True)
        texts = DraftText(self.tokens, self.prompt(context), context)
        request = texts.request(adjusted(self.tables.serve(document, cursor), self.settings))

        best, *others = result.completions
        ids = texts.spelled(best.text)
        most = min(len(ids) + MAX_BLOCK_TOKENS, self.model.max_positions - len(request.prompt))
        draft = line = Draft(ids, 0.0)  # line: the draft where its last line begins
        passes = 0
        try:
            logits = self.model.prefill([*request.prompt, *ids], check)
            while True:
                passes += 1
                draft = next(expand(logits, [draft], request, self.settings))
                if draft.score - line.score < _LEAST_LIKELY_LINE:
                    draft = line
                    break
                if texts.is_finished(draft.ids) or len(draft.ids) >= most:
                    break
                if b"\n" in self.tokens.pieces[draft.ids[-1]]:
                    line = draft
                check()
                logits = self.model.step(draft.ids[-1:], _ALONE)
        finally:
            self.model.crop(len(request.prompt))

        inputs = OfferInputs(texts, [], dict, MODEL_ALONE)
        return replace(
            result,
            completions=[written_on(best, texts.visible(draft.ids), inputs), *others],
            passes=result.passes + passes,
            seconds=result.seconds + time.perf_counter() - started,
            opens_block=False,
        )

    def prefetch(self, document: OpenDocument, cursor: int, check: Callable[[], None]) -> int:
        """Read the prompt of a likely next request into the model's cache; `check` may raise to cancel.

        Returns how many tokens were read.
        """
        if self.is_served:
            return 0
        source, cursor = normalize_newlines(document.text, cursor)
        language = document.language
        before = self.model.positions_read
        context = build_context(source, cursor, language, self.context_budget, self.tokens.count)
        if self._is_known(language) and not self._reason_to_skip(context, source, cursor):
            self.model.prefill(self.prompt(context).ids, check)
        return self.model.positions_read - before

    def update_documents(self, changes: Mapping[str, OpenDocument | None], active: str = "") -> None:
        """Index changed documents, None if closed, but for the active one: the next request brings its text."""
        if files := self.tables.open_files:
            files.update_documents(changes, active)

    def resume(self, document: OpenDocument, cursor: int) -> None:
        """Index an open document as it is again, after `complete` was asked for what it may become."""
        source, cursor = normalize_newlines(document.text, cursor)
        self.tables.serve(replace(document, text=source), cursor)

    def update_files(self, files: Sequence[Path]) -> None:
        """Index files that changed on disk, in `run_idle_work`."""
        if opened := self.tables.open_files:
            opened.update_files(files)

    def run_idle_work(self, seconds: float) -> bool:
        """Run background work for about this long; whether there is more."""
        return self.tables.run_idle_work(seconds)

    @property
    def is_served(self) -> bool:
        """Whether a server answers in the model's place."""
        return self.server is not None and not self.server.problem

    @property
    def index_revision(self) -> int:
        """Changes when tables or files that n-grams are counted from do."""
        return self.tables.revision

    @property
    def context_budget(self) -> int:
        """Tokens for the context: the setting's, if the model has room for them beside the drafts."""
        available = self.model.max_positions - self.settings.max_tokens - _RESERVED_TOKENS
        return max(0, min(self.settings.context_tokens, available))

    def prompt(self, context: Context) -> Prompt:
        """The prompt for a context."""
        return self.tokens.prompt(context.before, context.read_after, settled=context.settled)

    def _reason_to_skip(self, context: Context, source: str, cursor: int) -> str:
        """Why there is nothing to complete, or an empty string."""
        if re.fullmatch(r"\w\w", source[max(cursor - 1, 0) : cursor + 1]):
            return "the cursor is inside a word"
        if is_inside_secret(source[:cursor]):
            return "a secret is being written"
        if context.silence:
            return context.silence
        if context.before.strip():
            return ""
        if not source[:cursor].strip():
            return "there is no code before the cursor"
        positions = self.model.max_positions
        drafts = self.settings.max_tokens
        return f"the model reads {positions} tokens: no room for code beside drafts of {drafts}; lower maxTokens"

    def _is_known(self, language: str | None) -> bool:
        """Whether the model or a table of the last request's file is about code in this language."""
        if self.languages is None or (language and not related_languages(language).isdisjoint(self.languages)):
            return True
        return self.tables.know(language)

    def _imported_names(
        self, document: OpenDocument, cursor: int, searched: Sequence[SearchedTexts]
    ) -> tuple[Sequence[str], Collection[str]]:
        """What the module exports of which a list of names stands at the cursor, or else what it hardly does."""
        if (imports := ImportList.at(document.text, cursor)) is None:
            return (), ()
        if self.modules and (exports := self.modules.exports(document, imports)):
            return exports, ()
        ids = self.tokens.encode_inside(f"from {imports.module} import")
        places = [one for one in find_occurrences(searched, ids, _IMPORTED_TOKENS) if one.length == len(ids)]
        lists = (self.tokens.bytes_of(one.next).decode(errors="replace") for one in places)
        elsewhere = {name for one in lists for name in re.findall(r"\w+", re.split(r"\)|(?<![(,])\n", one)[0])}
        return (), imports.foreign_names(document) - elsewhere

    def _matching_names(self, document: OpenDocument, cursor: int) -> Mapping[str, float]:
        """The names that the word at the cursor begins: of this document, its imports and other open ones."""
        if self.modules is None or self.tables.open_files is None or not document.name:
            return document.matching_names(cursor)
        others = partial(self.tables.open_files.names, language=document.language, without=document.name)
        return document.matching_names(cursor, others, self.modules.texts(document))
