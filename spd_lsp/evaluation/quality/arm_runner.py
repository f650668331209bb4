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
from spd_lsp.completion.offer import OfferInputs, make_offer, offer_alone
from spd_lsp.completion.ranking import MODEL_ALONE, WITH_NGRAMS, Completion
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingResult
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.arms import ARM_KINDS, Arm
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
    cpu_ms: float
    candidates: Sequence[Completion] = ()  # what the product chose from, as far as it can be code

    @property
    def drafts(self) -> list[str]:
        """The texts that are offered."""
        return [one.text for one in self.completions]

    def record(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        costs = {name: getattr(self, name) for name in ("passes", "rows", "cpu_ms")}
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
        self.completer = Completer(model, tokens, ServingTables(None, tokens.fingerprint), settings)

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

    def warm_up(self, request: ArmRequest) -> None:
        """Read the prompt into the cache, so that no arm has to."""
        self.model.prefill(request.prompt.ids, _never_cancelled)

    def complete(self, arm: Arm, request: ArmRequest, mixture: Mixture | None) -> ArmResult:
        """Complete with one arm; decoding, n-gram look-ups and ranking are timed."""
        kind = ARM_KINDS[arm.kind]
        settings = dataclasses.replace(self.settings, **arm.settings)
        cpu = time.process_time()
        mixture = adjusted(mixture, settings)
        occurrences = request.texts.occurrences(mixture, settings.max_tokens) if kind.as_product else []
        names = partial(request.document.matching_names, request.cursor)
        weights = WITH_NGRAMS if mixture else MODEL_ALONE
        searched = mixture.texts if mixture else ()
        inputs = OfferInputs(request.texts, occurrences, names, weights, searched)
        drafts = DecodingResult([], passes=0, longest=0)
        if kind.decoder:
            start = request.texts.request(mixture)
            drafts = DECODERS[kind.decoder](self.model, start, settings, _never_cancelled)
        if kind.as_product:
            offer = make_offer(drafts, inputs, settings, explicit=True)
        else:  # the drafts alone
            scored_texts = [(inputs.texts.text(ids), score) for ids, score in drafts.scored(settings.ranking)]
            offer = offer_alone(scored_texts, inputs, settings.drafts)
        cpu_ms = 1000 * (time.process_time() - cpu)
        return ArmResult(offer.completions, drafts.passes, drafts.rows, cpu_ms, offer.candidates)
