"""Superposed Decoding as a way of `generate`: k texts for each prompt of any causal model of transformers.

    model.generate(**inputs, custom_generate=spd_lsp.superposed_decoding, num_beams=3, num_return_sequences=3)

What is drafted is decided in `decoding/superposed.py`, as for editors. Here the prompts of a batch advance
together, each of them a row of the pass.

Legend: B prompts, k texts of each, T positions, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from transformers import DynamicCache, EosTokenCriteria, MaxLengthCriteria
from transformers.generation.utils import GenerateBeamDecoderOnlyOutput

from ngram_builders.arrays import Floats
from spd_lsp.decoding.candidates import Interpolation
from spd_lsp.decoding.superposed import (
    Decoding,
    DecodingRequest,
    DecodingResult,
    NextPass,
    advance,
    ranking_score,
    superposed_passes,
)
from spd_lsp.models.torch.engine import superpose_embeddings
from spd_lsp.ngrams.mixture import NamedNgrams, open_mixture
from spd_lsp.settings import FIELDS, Settings, invalid_reason

# Inputs that `generate` prepares. Positions follow from the mask; one text has one type of tokens.
_KNOWN_INPUTS = {
    "attention_mask", "past_key_values", "logits_to_keep", "use_cache", "position_ids", "token_type_ids",
}  # fmt: skip

Criterion = Callable[[torch.Tensor, Any], Any]


def superposed_decoding(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Sequence[Any] = (),
    stopping_criteria: Sequence[Any] = (),
    generation_config: Any = None,
    ngrams: NamedNgrams | Interpolation | None = None,
    ngram_weight: float = 1.0,
    tau: float = 1.0,
    candidates: int = 20,
    paper: bool = False,
    alpha: float = 0.54,
    **model_kwargs: Any,
) -> torch.Tensor | GenerateBeamDecoderOnlyOutput:
    """Return `num_return_sequences` texts for each prompt, the most probable first, at one pass a token.

    As in beam search, they are the best of `num_beams` drafts.

    ngrams: lists of token ids whose n-grams are counted, the file of a table, or several, or an `Interpolation`.
    ngram_weight: factor on their odds against the model.
    tau: temperature of the model's probabilities; nothing is drawn.
    candidates: tokens of the model considered at each step (r).
    paper: combine by the paper's formula with `alpha`, and rank by the mean score of a token.
    """
    _check_supported(model, input_ids, logits_processor, model_kwargs)
    given = {"temperature": tau, "candidates": candidates, "alpha": alpha, "ngram_weight": ngram_weight}
    for name, value in given.items():
        if reason := invalid_reason(FIELDS[name], value):
            raise ValueError(f"{'tau' if name == 'temperature' else name} {reason}")
    k = generation_config.num_return_sequences or 1
    width = max(k, generation_config.num_beams or 1)
    input_ids = input_ids[::width]  # `generate` has repeated them
    rows = _PromptRows(model, input_ids, model_kwargs)
    settings = Settings(
        drafts=k,
        max_tokens=generation_config.max_length - input_ids.shape[1],
        temperature=tau,
        candidates=max(candidates, 2 * width),
        interpolation="paper" if paper else "linear",
        ranking="mean" if paper else "probability",
        alpha=alpha,
    )
    if ngrams is not None and not callable(ngrams):
        ngrams = open_mixture(ngrams, model.get_input_embeddings().num_embeddings, ngram_weight)
    eos = _as_list(generation_config.eos_token_id)
    # Length and end of text need no tensor for each draft.
    criteria = [one for one in stopping_criteria if not isinstance(one, (MaxLengthCriteria, EosTokenCriteria))]
    requests = [_request(prompt, eos, criteria, ngrams) for prompt in rows.prompts]
    results = _decode(rows, [superposed_passes(request, settings, width) for request in requests])
    if (fewest := min(len(result.best) for result in results)) < k:
        raise ValueError(f"expected {k} different texts, found {fewest}; lower num_return_sequences")
    padding = [*_as_list(generation_config.pad_token_id), *eos, 0][0]
    sequences = _as_sequences(input_ids, results, padding)
    if not generation_config.return_dict_in_generate:
        return sequences
    scores = [ranking_score(draft, settings.ranking) for result in results for draft in result.best]
    scores_of = torch.tensor(scores, device=sequences.device)  # [B k]
    return GenerateBeamDecoderOnlyOutput(sequences=cast(Any, sequences), sequences_scores=scores_of)


def _decode(rows: _PromptRows, decodings: Sequence[Decoding]) -> list[DecodingResult]:
    """Return the drafts of each prompt; a pass reads the next position of all that are not finished."""
    states = [advance(decoding, None) for decoding in decodings]
    logits = rows.prefill()
    while True:
        for number, (following, _) in enumerate(states):
            if following is not None:
                states[number] = advance(decodings[number], logits[number])
        finished = [result for _, result in states if result is not None]
        if len(finished) == len(states):
            return finished
        logits = rows.step([following for following, _ in states])


class _PromptRows:
    """The prompts of a batch and what follows them, in one cache; padded on the left as `generate` has it."""

    def __init__(self, model: Any, input_ids: torch.Tensor, model_kwargs: dict[str, Any]) -> None:
        self.model = model
        self.input_ids = input_ids.to(model.device)  # [B, T]
        given = model_kwargs.get("attention_mask")  # None: nothing is padded
        self.mask = torch.ones_like(self.input_ids)
        if given is not None:
            self.mask = given[:: len(given) // len(input_ids)].to(model.device)
        self.is_padded = not bool(self.mask.all())
        self.prompts = [ids[kept].tolist() for ids, kept in zip(self.input_ids, self.mask.bool(), strict=True)]
        self.cache = model_kwargs.get("past_key_values") or DynamicCache(config=model.config)
        parameters = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def prefill(self) -> list[Floats]:
        """Read all prompts in one pass; return the logits after each [V]."""
        positions = (self.mask.cumsum(-1) - 1).clamp(min=0)  # [B, T]
        return self._run(positions, input_ids=self.input_ids, **self.last_only)

    def step(self, passes: Sequence[NextPass | None]) -> list[Floats]:
        """Read one more position of each prompt; return the logits after it [V]. None: any position will do."""
        mixtures: list[tuple[Sequence[int], Floats]] = [
            ([0], np.ones(1)) if one is None or one.weights is None else (one.ids, one.weights) for one in passes
        ]
        embeds = superpose_embeddings(self.model, mixtures).to(self.model.device)  # [B, D]
        positions = self.mask.sum(-1, keepdim=True)  # [B, 1]
        self.mask = torch.cat([self.mask, torch.ones_like(self.mask[:, :1])], dim=1)
        return self._run(positions, inputs_embeds=embeds[:, None])

    def _run(self, positions: torch.Tensor, **inputs: Any) -> list[Floats]:
        """Compute one pass; return the logits after each prompt [V]."""
        if self.takes_positions:
            inputs["position_ids"] = positions
        if self.is_padded:
            inputs["attention_mask"] = self.mask
        out = self.model(**inputs, past_key_values=self.cache, use_cache=True)
        return list(out.logits[:, -1].float().cpu().numpy())


def _request(
    prompt: Sequence[int], eos: Sequence[int], criteria: Sequence[Criterion], ngrams: Interpolation | None
) -> DecodingRequest:
    """Return what to continue; a text is finished by its last token, or by a criterion of the caller."""

    def stop(ids: tuple[int, ...]) -> bool:
        if ids[-1] in eos or not criteria:
            return ids[-1] in eos
        text = torch.tensor([[*prompt, *ids]])
        return any(bool(torch.as_tensor(criterion(text, None)).all()) for criterion in criteria)

    return DecodingRequest(prompt, stop, prompt, ngrams)


def _as_sequences(prompts: torch.Tensor, results: Sequence[DecodingResult], padding: int) -> torch.Tensor:
    """Prompts and texts, padded on the right to one length. [B k, T + longest]"""
    drafts = [(number, draft.ids) for number, result in enumerate(results) for draft in result.best]
    longest = max(len(ids) for _, ids in drafts)
    written = [[*ids, *[padding] * (longest - len(ids))] for _, ids in drafts]
    before = prompts[[number for number, _ in drafts]]
    return torch.cat([before, torch.tensor(written, dtype=before.dtype, device=before.device)], dim=1)


def _check_supported(
    model: Any, input_ids: torch.Tensor, processors: Sequence[Any], model_kwargs: dict[str, Any]
) -> None:
    """Raise ValueError for models and arguments that would be ignored."""
    if model.config.is_encoder_decoder:
        raise ValueError("superposed decoding needs a causal model, found one with an encoder")
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        raise ValueError("superposed decoding needs a model with a cache of keys and values; choose another one")
    if not input_ids.shape[1]:
        raise ValueError("superposed decoding starts from token ids; pass input_ids, not inputs_embeds")
    # Checkpoints come with processors that only change how tokens are drawn; nothing is drawn here.
    names = [type(one).__name__ for one in processors if not type(one).__name__.endswith("LogitsWarper")]
    if names:
        raise ValueError(
            f"all texts share one pass's logits, so that {', '.join(names)} cannot treat each by itself; "
            "switch it off, such as by repetition_penalty=1.0"
        )
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length():
        raise ValueError("superposed decoding reads the prompt itself; pass no past_key_values")
    others = [name for name, value in model_kwargs.items() if value is not None and name not in _KNOWN_INPUTS]
    if others:
        raise ValueError(f"superposed decoding reads token ids alone; it cannot use {', '.join(others)}")


def _as_list(ids: Any) -> list[int]:
    """Return token ids that may be None, one or several as a list."""
    return [] if ids is None else np.atleast_1d(np.asarray(ids)).tolist()
