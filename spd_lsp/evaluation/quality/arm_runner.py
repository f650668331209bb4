"""Complete with an arm as the product would: the same prompt, n-grams, stop rule and ranking for every arm.

Only the shape is fixed: a completion ends with its line. Names of the file, which the product offers inside
words, are no drafts and are left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.completion.calibration import MODEL_ALONE, WITH_NGRAMS, Calibration, are_probabilities
from spd_lsp.completion.completer import Completer, CompletionModel, copied_places, decoding_request
from spd_lsp.completion.context import build_context
from spd_lsp.completion.postprocess import (
    Completion,
    DraftText,
    calibrated,
    can_be_code,
    choose_completions,
    rank_completions,
    with_copies,
)
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model
from spd_lsp.evaluation.beam_search import beam
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.arms import ARM_KINDS, Arm
from spd_lsp.evaluation.quality.text_baselines import TEXT_BASELINES, Surroundings
from spd_lsp.evaluation.sampling import NucleusOptions, nucleus
from spd_lsp.ngrams.interpolation import Domains, Mixture, adjusted
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
class UnadaptedModel:
    """Gives all drafts one distribution, as in the paper: an ablation of the draft adapter."""

    model: Model

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = _never_cancelled) -> Floats:
        """Read the prompt."""
        return self.model.prefill(ids, check)

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read the mixture."""
        return self.model.step(ids, weights)

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read the mixture of each row."""
        return self.model.step_rows(rows, parents)

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """Read a draft's last token."""
        return self.model.read_draft(draft)


class UnmixedModel(UnadaptedModel):
    """Reads the best draft's token alone instead of the mixture: an ablation of superposition."""

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read the token with the largest weight."""
        return self.model.step(*_heaviest(ids, weights))

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read the token with the largest weight of each row."""
        return self.model.step_rows([_heaviest(*row) for row in rows], parents)


def _heaviest(ids: Sequence[int], weights: Floats) -> tuple[list[int], Floats]:
    return [ids[int(np.argmax(weights))]], np.ones(1)


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """A prompt and its context, the same for all arms."""

    prompt: Prompt
    texts: DraftText
    source: str
    cursor: int
    language: str


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The drafts of an arm, best first, and what they cost beyond reading the prompt."""

    drafts: list[str]
    probabilities: list[float]  # of each draft, calibrated where the arm answers as the product does
    passes: int  # the prompt's counted as one
    rows: int  # positions read after the prompt
    tokens: int  # of the longest draft
    wall_ms: float
    cpu_ms: float


class ArmRunner:
    """A model and its tokenizer, completing with any arm."""

    def __init__(self, model: CompletionModel, tokens: ModelTokenizer, settings: Settings) -> None:
        self.model = model
        self.uniform = UniformModel(tokens.vocab_size)
        self.tokens = tokens
        self.settings = settings
        self.completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings)

    def request(self, source: str, cursor: int, language: str) -> ArmRequest:
        """Trim the context and build the prompt as for a request by hand for the rest of the line."""
        context = build_context(
            source, cursor, language, self.completer.context_budget, self.tokens.count, forced=True
        )
        context = dataclasses.replace(context, shape="line")
        prompt = self.tokens.prompt(context.before, context.read_after, settled=context.settled)
        return ArmRequest(prompt, DraftText(self.tokens, prompt, context), source, cursor, language)

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
        wall, cpu = time.perf_counter(), time.process_time()
        calibration = self._calibration(arm, mixture)
        if ARM_KINDS[arm.kind].is_text:
            drafts, ranked = DecodingResult([], passes=0, longest=0), _find_texts(arm, request, around, settings)
        else:
            start = self._start(request, adjusted(mixture, settings))
            drafts = self._decode(arm, start, settings)
            texts, context = request.texts, request.texts.context
            said = [(texts.text(ids), score) for ids, score in drafts.scored(settings.ranking)]
            ranked = rank_completions(said, context)[: 2 * settings.drafts]
            if mixture and ARM_KINDS[arm.kind].as_product:
                end_of_text = self.tokens.end_of_text
                places = copied_places(request.prompt, mixture, end_of_text, settings.max_tokens)
                found = texts.continuations(places)
                ranked = with_copies(ranked, found, context, settings.drafts, calibration)
        completions = can_be_code(ranked, request.source, request.cursor, request.language, settings.drafts)
        if ARM_KINDS[arm.kind].as_product and are_probabilities(settings):
            known = calibrated(completions, settings, calibration)
            begun = request.texts.beginnings(drafts.begun, known, calibration)
            left = request.source[: request.cursor].rpartition("\n")[2]
            completions = choose_completions(known, begun, {}, left, settings.drafts)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return ArmResult(
            [completion.text for completion in completions],
            [completion.probability for completion in completions],
            drafts.passes,
            drafts.rows,
            drafts.longest,
            wall_ms=wall * 1000,
            cpu_ms=cpu * 1000,
        )

    def _calibration(self, arm: Arm, mixture: Mixture | None) -> Calibration:
        """The weights that the product would calibrate the arm's drafts with."""
        told_apart = self.model.tells_drafts_apart and not ARM_KINDS[arm.kind].unadapted
        return (WITH_NGRAMS if mixture else MODEL_ALONE)[told_apart]

    def _decode(self, arm: Arm, start: DecodingRequest, settings: Settings) -> DecodingResult:
        kind, options = ARM_KINDS[arm.kind], arm.baseline_settings
        model: Model = self.uniform if kind.without_model else self.model
        if kind.unadapted:
            model = UnadaptedModel(model)
        if kind.unmixed:
            model = UnmixedModel(model)
        if "length_penalty" in options:
            return beam(model, start, settings, _never_cancelled, options["length_penalty"])
        if options:
            sampling = NucleusOptions(options.get("top_p", 0.9), options.get("draw_temperature", 1.0))
            return nucleus(model, start, settings, _never_cancelled, sampling)
        return DECODERS[arm.decoder](model, start, settings, _never_cancelled)

    def _start(self, request: ArmRequest, mixture: Mixture | None) -> DecodingRequest:
        return decoding_request(request.prompt, request.texts, mixture, self.tokens.end_of_text)


def _find_texts(
    arm: Arm, request: ArmRequest, around: Surroundings | None, settings: Settings
) -> list[Completion]:
    """What a text baseline proposes, trimmed as drafts are."""
    if around is None:
        return []
    most = 2 * settings.drafts
    texts = TEXT_BASELINES[arm.decoder](around, request.source, request.cursor, 2 * most)
    return rank_completions([(text, -1.0 - n) for n, text in enumerate(texts)], request.texts.context)[:most]
