"""Complete with an arm as the product would: the same prompt, n-grams, stop rule and ranking for every arm.

Only the shape is fixed: a completion ends with its line.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.completion.calibration import MODEL_ALONE, WITH_NGRAMS
from spd_lsp.completion.completer import Completer, CompletionModel
from spd_lsp.completion.context import CompletionShape, build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import (
    Completion,
    Offer,
    OfferInputs,
    keep_parseable,
    make_offer,
    offer_alone,
)
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model
from spd_lsp.evaluation.beam_search import beam
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.arms import ARM_KINDS, Arm
from spd_lsp.evaluation.quality.text_baselines import TEXT_BASELINES, Surroundings
from spd_lsp.evaluation.sampling import NucleusOptions, nucleus
from spd_lsp.ngrams.interpolation import Domains, Mixture, adjusted
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.settings import Settings


def _never_cancelled() -> None:
    """Nothing cancels an evaluation's requests."""


class UniformModel:
    """No language model: every token is equally likely, so that n-grams alone decide."""

    def __init__(self, vocab_size: int) -> None:
        self.logits = np.zeros(vocab_size, dtype=np.float32)  # [V]
        self.max_positions = 1 << 20
        self.device = "none"

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = _never_cancelled) -> Floats:
        """Return the logits [V]."""
        return self.logits

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Return the logits [V]."""
        return self.logits

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Return the logits of each row [N, V]."""
        return np.broadcast_to(self.logits, (len(rows), len(self.logits)))

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Return the logits [V]."""
        return self.logits


@dataclass(frozen=True, slots=True)
class UnmixedModel:
    """Reads the best draft's token alone instead of the mixture: an ablation of superposition."""

    model: Model

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = _never_cancelled) -> Floats:
        """Read the prompt."""
        return self.model.prefill(ids, check)

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read the token with the largest weight."""
        return self.model.step(*_heaviest(ids, weights))

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read the token with the largest weight of each row."""
        return self.model.step_rows([_heaviest(*row) for row in rows], parents)

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read a draft's last token."""
        return self.model.read_draft(draft)


def _heaviest(ids: Sequence[int], weights: Floats) -> tuple[list[int], Floats]:
    return [ids[int(np.argmax(weights))]], np.ones(1)


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

    def __init__(self, model: CompletionModel, tokens: ModelTokenizer, settings: Settings) -> None:
        self.model = model
        self.uniform = UniformModel(tokens.vocab_size)
        self.tokens = tokens
        self.settings = settings
        self.completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings)

    def request(
        self, source: str, cursor: int, language: str, shape: CompletionShape | None = "line"
    ) -> ArmRequest:
        """Trim the context and build the prompt as for a request by hand, of its own shape if None."""
        context = build_context(
            source, cursor, language, self.completer.context_budget, self.tokens.count, explicit=True
        )
        context = dataclasses.replace(context, shape=shape or context.shape)
        document = OpenDocument("", None, language, source)
        prompt = self.completer.prompt(context, document)
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

        `around` is what text baselines know; without it they know nothing.
        """
        settings = dataclasses.replace(self.settings, **arm.settings)
        wall = time.perf_counter()
        cpu = time.process_time()
        mixture = adjusted(mixture, settings)
        inputs = self._inputs(arm, request, mixture, settings)
        if ARM_KINDS[arm.kind].is_text:
            drafts = DecodingResult([], passes=0, longest=0)
            offer = _offer_texts(arm, inputs, around, settings)
        else:
            drafts = self._decode(arm, request.texts.request(mixture), settings)
            offer = _offer_drafts(arm, drafts, inputs, settings)
        wall = time.perf_counter() - wall
        cpu = time.process_time() - cpu
        costs = drafts.passes, drafts.rows, drafts.longest, 1000 * wall, 1000 * cpu
        candidates = offer.candidates
        document = request.document
        candidates = keep_parseable(candidates, document.text, request.cursor, document.language, len(candidates))
        return ArmResult(offer.completions, *costs, candidates)

    def _inputs(self, arm: Arm, request: ArmRequest, mixture: Mixture | None, settings: Settings) -> OfferInputs:
        """What the product would know here."""
        document, cursor, texts = request.document, request.cursor, request.texts
        places = texts.places(mixture, settings.max_tokens) if ARM_KINDS[arm.kind].as_product else []
        names = partial(document.matching_names, cursor)
        weights = WITH_NGRAMS if mixture else MODEL_ALONE
        return OfferInputs(document, cursor, texts, places, names, weights)

    def _decode(self, arm: Arm, start: DecodingRequest, settings: Settings) -> DecodingResult:
        kind, options = ARM_KINDS[arm.kind], arm.baseline_settings
        model: Model = self.uniform if kind.without_model else self.model
        if kind.unmixed:
            model = UnmixedModel(model)
        if "length_penalty" in options:
            return beam(model, start, settings, _never_cancelled, options["length_penalty"])
        if options:
            sampling = NucleusOptions(options.get("top_p", 0.9), options.get("draw_temperature", 1.0))
            return nucleus(model, start, settings, _never_cancelled, sampling)
        return DECODERS[arm.decoder](model, start, settings, _never_cancelled)


def _offer_drafts(arm: Arm, drafts: DecodingResult, inputs: OfferInputs, settings: Settings) -> Offer:
    """What the product makes of an arm's drafts; of those that it is compared with, the drafts alone."""
    if ARM_KINDS[arm.kind].as_product:
        return make_offer(drafts, inputs, settings, explicit=True)
    scored_texts = [(inputs.texts.text(ids), score) for ids, score in drafts.scored(settings.ranking)]
    return offer_alone(scored_texts, inputs, settings.drafts)


def _offer_texts(arm: Arm, inputs: OfferInputs, around: Surroundings | None, settings: Settings) -> Offer:
    """What a text baseline proposes, trimmed as drafts are."""
    if around is None:
        return Offer([])
    find = TEXT_BASELINES[arm.decoder]
    most = settings.drafts
    texts = find(around, inputs.document.text, inputs.cursor, 4 * most)
    return offer_alone([(text, -1.0 - n) for n, text in enumerate(texts)], inputs, most)
