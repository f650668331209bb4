"""Complete with an arm as the product would: the same prompt, n-grams, stop rule and ranking for every arm.

Only the shape is fixed: a completion ends with its line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import CompletionShape, build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import Offer, OfferInputs, keep_parseable, make_offer, offer_alone
from spd_lsp.completion.ranking import MODEL_ALONE, WITH_NGRAMS, Completion
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingResult
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.arms import ARM_KINDS, Arm
from spd_lsp.evaluation.quality.lexeme_index import Surroundings, find_copies
from spd_lsp.models.base import Engine
from spd_lsp.ngrams.mixture import Mixture, adjusted
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.settings import Settings


def _never_cancelled() -> None:
    """Nothing cancels an evaluation's requests."""


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """A prompt and its context, the same for all arms."""

    prompt: Prompt
    texts: DraftText
    document: OpenDocument
    cursor: int


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What an arm offers, best first, and what it costs beyond reading the prompt."""

    completions: list[Completion]
    passes: int  # the prompt's counted as one
    rows: int  # positions read after the prompt
    tokens: int  # of the longest draft
    wall_ms: float
    cpu_ms: float
    candidates: Sequence[Completion] = ()  # what the product chose from, as far as it can be code

    @property
    def drafts(self) -> list[str]:
        """The texts that are offered."""
        return [one.text for one in self.completions]

    def record(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        costs = {name: getattr(self, name) for name in ("passes", "rows", "tokens", "wall_ms", "cpu_ms")}
        shown = {"drafts": self.drafts, "probabilities": [one.probability for one in self.completions]}
        return shown | costs | {"candidates": [_evidence(one) for one in self.candidates]}


def _evidence(one: Completion) -> tuple[str, float, tuple[int, int, int] | None]:
    """The text of a candidate, its score, and the length, count and places of its match."""
    match = one.match
    return one.text, one.score, (match.length, match.count, match.places) if match else None


class ArmRunner:
    """A model and its tokenizer, completing with any arm."""

    def __init__(self, model: Engine, tokens: ModelTokenizer, settings: Settings) -> None:
        self.model = model
        self.tokens = tokens
        self.settings = settings
        self.completer = Completer(model, tokens, ServingTables(None, tokens.fingerprint, {}), settings)

    def request(
        self, source: str, cursor: int, language: str, shape: CompletionShape | None = "line"
    ) -> ArmRequest:
        """Trim the context and build the prompt as for a request by hand, of its own shape if None."""
        context = build_context(
            source, cursor, language, self.completer.context_budget, self.tokens.count, explicit=True
        )
        context = dataclasses.replace(context, shape=shape or context.shape)
        document = OpenDocument("", None, language, source)
        prompt = self.completer.prompt(context)
        return ArmRequest(prompt, DraftText(self.tokens, prompt, context), document, cursor)

    def warm_up(self, request: ArmRequest) -> float:
        """Read the prompt into the cache, so that no arm has to. -> ms"""
        began = time.perf_counter()
        self.model.prefill(request.prompt.ids, _never_cancelled)
        return (time.perf_counter() - began) * 1000

    def complete(
        self, arm: Arm, request: ArmRequest, mixture: Mixture | None, around: Surroundings | None = None
    ) -> ArmResult:
        """Complete with one arm; decoding, n-gram look-ups and ranking are timed.

        `around` is what copies are made from; without it there are none.
        """
        settings = dataclasses.replace(self.settings, **arm.settings)
        wall = time.perf_counter()
        cpu = time.process_time()
        mixture = adjusted(mixture, settings)
        inputs = self._inputs(arm, request, mixture, settings)
        if ARM_KINDS[arm.kind].is_text:
            drafts = DecodingResult([], passes=0, longest=0)
            offer = _offer_copies(inputs, around, settings)
        else:
            start = request.texts.request(mixture)
            drafts = DECODERS[arm.decoder](self.model, start, settings, _never_cancelled)
            offer = _offer_drafts(arm, drafts, inputs, settings)
        wall = time.perf_counter() - wall
        cpu = time.process_time() - cpu
        costs = drafts.passes, drafts.rows, drafts.longest, 1000 * wall, 1000 * cpu
        most = len(offer.candidates)
        candidates = keep_parseable(offer.candidates, request.document, request.cursor, most)
        return ArmResult(offer.completions, *costs, candidates)

    def _inputs(self, arm: Arm, request: ArmRequest, mixture: Mixture | None, settings: Settings) -> OfferInputs:
        """What the product would know here."""
        document = request.document
        cursor = request.cursor
        texts = request.texts
        occurrences = texts.occurrences(mixture, settings.max_tokens) if ARM_KINDS[arm.kind].as_product else []
        names = partial(document.matching_names, cursor)
        weights = WITH_NGRAMS if mixture else MODEL_ALONE
        return OfferInputs(document, cursor, texts, occurrences, names, weights)


def _offer_drafts(arm: Arm, drafts: DecodingResult, inputs: OfferInputs, settings: Settings) -> Offer:
    """What the product makes of an arm's drafts; of those that it is compared with, the drafts alone."""
    if ARM_KINDS[arm.kind].as_product:
        return make_offer(drafts, inputs, settings, explicit=True)
    scored_texts = [(inputs.texts.text(ids), score) for ids, score in drafts.scored(settings.ranking)]
    return offer_alone(scored_texts, inputs, settings.drafts)


def _offer_copies(inputs: OfferInputs, around: Surroundings | None, settings: Settings) -> Offer:
    """What followed the longest match of the text left of the cursor, trimmed as drafts are."""
    if around is None:
        return Offer([])
    most = settings.drafts
    left = inputs.document.text[: inputs.cursor]
    texts = find_copies([around.own, around.package], left, around.removed, 4 * most)
    return offer_alone([(text, -1.0 - n) for n, text in enumerate(texts)], inputs, most)
