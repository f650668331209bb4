"""Arms: the decoders to compare, each with its settings and its prior, the texts that its n-grams count.

An arm is written DECODER[:SETTING=VALUE]...[@PRIOR], such as `superposed`, `beam:drafts=5@file` or
`superposed:interpolation=paper:temperature=0.1@none`. Every arm completes as the product would, with the same
prompt, n-grams, stop rule and ranking. Only the shape is fixed: a completion ends with its line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.index.mixture import Mixture
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import CompletionShape, build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.offer import OfferInputs, make_offer, offer_alone
from spd_lsp.completion.ranking import MODEL_ALONE, WITH_NGRAMS, Completion
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingResult
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.held_out_ngrams import PRIORS
from spd_lsp.models.base import Engine
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.ngrams.serving_tables import ServingTables, adjusted
from spd_lsp.settings import FIELDS, Settings, invalid_reason

_LLAMA_2 = {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"}  # as in the paper
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")


@dataclass(frozen=True, slots=True)
class ArmKind:
    """A decoder and the settings that define the arm."""

    decoder: str  # empty for none
    settings: Mapping[str, Any] = field(default_factory=dict)
    as_product: bool = False  # whether lines of the repository and beginnings of drafts are offered too


ARM_KINDS: dict[str, ArmKind] = {
    **{name: ArmKind(name) for name in DECODERS},
    "superposed": ArmKind("superposed", as_product=True),
    "uncopied": ArmKind("superposed"),
    "best-first": ArmKind("best-first", as_product=True),
    "best-first-alone": ArmKind("best-first"),
    "greedy": ArmKind("greedy", {"drafts": 1}),  # without the other finished drafts
    "copy": ArmKind("", as_product=True),  # only lines of the repository
    "paper": ArmKind("superposed", _LLAMA_2),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One decoder to compare."""

    label: str  # as the user wrote it, with its prior
    kind: str
    prior: str
    settings: Mapping[str, Any]

    @property
    def types_lines(self) -> bool:
        """Whether typing is simulated with it: only with the product's priors, as that is slow."""
        return self.prior in ("file", "repository+file")

    @property
    def family(self) -> str:
        """The label without the prior. Arms of one family differ only in their priors."""
        return self.label.rpartition("@")[0]


def parse_arms(texts: Sequence[str], priors: Sequence[str]) -> list[Arm]:
    """Parse arms, each once; one without a prior gets each of `priors`."""
    labels: dict[str, None] = {}  # in order
    for text in texts:
        labels |= dict.fromkeys([text] if "@" in text else [f"{text}@{prior}" for prior in priors])
    return [parse_arm(label) for label in labels]


def parse_arm(text: str) -> Arm:
    """Parse one arm with its prior. Example: `beam:drafts=5@file`."""
    written, _, prior = text.partition("@")
    kind, *options = written.split(":")
    if kind not in ARM_KINDS:
        raise UserError(f"arm {text!r}: unknown decoder {kind!r}; choose one of {', '.join(ARM_KINDS)}")
    if prior not in PRIORS:
        raise UserError(f"arm {text!r}: unknown prior {prior!r}; choose one of {', '.join(PRIORS)} after @")
    settings = dict(ARM_KINDS[kind].settings)
    for option in options:
        name, _, value = option.partition("=")
        if name not in FIELDS or name in ("decoder", "model", "device"):
            raise UserError(
                f"arm {text!r}: {name!r} is not a decoder setting; see the settings in editors/README.md"
            )
        wanted = type(FIELDS[name].default)
        settings[name] = value
        if wanted in (int, float) and _NUMBER.fullmatch(value):
            settings[name] = int(value) if wanted is int and value.lstrip("-").isdecimal() else float(value)
        if reason := invalid_reason(FIELDS[name], settings[name]):
            raise UserError(f"arm {text!r}: {name} {reason}")
    return Arm(text, kind, prior, settings)


@dataclass(frozen=True, slots=True)
class ArmRequest:
    """A prompt and its context, the same for all arms."""

    prompt: Prompt
    texts: DraftText
    document: OpenDocument
    cursor: int


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm's completions, best first, and their cost beyond reading the prompt."""

    completions: list[Completion]
    passes: int  # the prompt's counted as one
    rows: int  # positions read after the prompt
    cpu_ms: float
    candidates: Sequence[Completion]  # that the completions were chosen from

    @property
    def drafts(self) -> list[str]:
        """The texts of the completions."""
        return [one.text for one in self.completions]

    def record(self) -> dict[str, Any]:
        """Return a record for JSON; candidates as text, score, and their match's length, count and places."""
        evidence = [
            (one.text, one.score, (match.length, match.count, match.places) if (match := one.match) else None)
            for one in self.candidates
        ]
        costs = {"passes": self.passes, "rows": self.rows, "cpu_ms": self.cpu_ms, "candidates": evidence}
        return {"drafts": self.drafts, "probabilities": [one.probability for one in self.completions]} | costs


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
        """Build context and prompt as for an explicit request; `shape` None: the product's choice."""
        budget = self.completer.context_budget
        context = build_context(source, cursor, language, budget, self.tokens.count, explicit=True)
        context = replace(context, shape=shape or context.shape)
        document = OpenDocument("", None, language, source)
        prompt = self.completer.prompt(context)
        return ArmRequest(prompt, DraftText(self.tokens, prompt, context), document, cursor)

    def complete(self, arm: Arm, request: ArmRequest, mixture: Mixture | None) -> ArmResult:
        """Complete with one arm; decoding, n-gram look-ups and ranking are timed."""
        kind = ARM_KINDS[arm.kind]
        settings = replace(self.settings, **arm.settings)
        cpu = time.process_time()
        mixture = adjusted(mixture, settings)
        occurrences = request.texts.occurrences(mixture, settings.max_tokens) if kind.as_product else []
        names = partial(request.document.matching_names, request.cursor)
        weights = WITH_NGRAMS if mixture else MODEL_ALONE
        inputs = OfferInputs(request.texts, occurrences, names, weights, mixture.texts if mixture else ())
        drafts = DecodingResult([], passes=0, longest=0)
        if kind.decoder:
            drafts = DECODERS[kind.decoder](self.model, request.texts.request(mixture), settings, lambda: None)
        if kind.as_product:
            offer = make_offer(drafts, inputs, settings, explicit=True)
        else:  # the drafts alone
            scored_texts = [(inputs.texts.text(ids), score) for ids, score in drafts.scored(settings.ranking)]
            offer = offer_alone(scored_texts, inputs, settings.drafts)
        cpu_ms = 1000 * (time.process_time() - cpu)
        return ArmResult(offer.completions, drafts.passes, drafts.rows, cpu_ms, offer.candidates)
