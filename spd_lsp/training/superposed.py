"""The last phase of training: learn to read superposed inputs. In: a row of token ids. Out: a loss.

The decoder reads a plain prompt and then positions that mix its drafts' last tokens, x~ = sum_i gamma_i z_i;
their keys and values stay in the cache (Shen et al. 2024, section 3.1). Here too, a row is read unchanged, and
spans of it are read again as mixtures, each after the plain tokens before it and without seeing other spans. The
target is the next token of the text, after plain tokens and after mixtures alike.

A mixture holds the token of the text and the model's likeliest others there. Weights gamma ~ Dirichlet(c p + e),
p the model's probabilities, e 1 for the token of the text and 0 for others, make that token i with probability
gamma_i given the mixture (the Dirichlet's posterior). So the best prediction is the marginal
sum_i gamma_i p(x | z_i), and the weights carry information that the model did not have. With a large c they are
the model's own probabilities; with c = 0 the mixture is only the token of the text.

Legend: L tokens of a row, S superposed positions of all its spans, K tokens in a mixture, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from spd_lsp.training.loss import CHUNK, ChunkedLoss
from spd_lsp.training.train import TrainingPlan, token_weights

MAX_SPAN_LENGTH = 12  # positions of a span; the paper finds superposition near linear for about ten
_MAX_SPAN_GAP = 12  # maximum of plain positions between two spans
MAX_MIXED_TOKENS = 8  # tokens in a mixture; the minimum is 2
_CONCENTRATION_BOUNDS = (
    0.5,
    16.0,
)  # of c: from mixtures that nearly reveal the token to the model's own probabilities
SUPERPOSED_SHARE = 0.5  # of the loss, for superposed positions


@dataclass(frozen=True, slots=True)
class Spans:
    """The positions of a row that are read again as mixtures, and the parameters of the mixtures; all [S]."""

    places: Tensor
    starts: Tensor  # the first position of each one's span
    sizes: Tensor  # tokens in a mixture
    concentration: Tensor  # c


def draw_spans(length: int, rng: np.random.Generator) -> Spans:
    """Draw spans of 1 to MAX_SPAN_LENGTH positions, about half of L tokens, never the first or last token."""
    bounds = list(_draw_bounds(length, rng))
    counts = torch.tensor([end - start for start, end in bounds])
    drawn = (
        torch.tensor([start for start, _ in bounds]),
        torch.from_numpy(rng.integers(2, MAX_MIXED_TOKENS + 1, len(bounds))),
        torch.from_numpy(
            np.exp(
                rng.uniform(math.log(_CONCENTRATION_BOUNDS[0]), math.log(_CONCENTRATION_BOUNDS[1]), len(bounds))
            )
        ),
    )
    places = torch.cat([torch.arange(start, end) for start, end in bounds])
    return Spans(places, *(column.repeat_interleave(counts) for column in drawn))


def _draw_bounds(length: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the spans, with up to _MAX_SPAN_GAP plain positions between them."""
    start = int(rng.integers(1, _MAX_SPAN_GAP + 1))
    while start < length - 1:
        end = min(start + int(rng.integers(1, MAX_SPAN_LENGTH + 1)), length - 1)
        yield start, end
        start = end + int(rng.integers(1, _MAX_SPAN_GAP + 1))


def _top_tokens(states: Tensor, embedding: Tensor, actual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the top tokens after states [S, D] and their logits, [S, K], and the logits of the actual, [S, 1]."""
    parts = []
    for part, targets in zip(torch.split(states, CHUNK), torch.split(actual, CHUNK), strict=True):
        logits = part.to(embedding.dtype) @ embedding.T  # [C, V]
        best = logits.topk(MAX_MIXED_TOKENS, dim=-1)
        parts.append((best.indices, best.values.float(), logits.gather(1, targets[:, None]).float()))
    ids, values, own = (torch.cat(column) for column in zip(*parts, strict=True))
    return ids, values, own


def sample_mixtures(
    ids: Tensor, logits: Tensor, actual: Tensor, own: Tensor, spans: Spans, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return the tokens of each mixture and their weights gamma, both [S, K]; unused columns weigh 0.

    The actual tokens [S], with their logits own [S, 1], replace the last of the likeliest if missing.
    """
    columns = torch.arange(ids.shape[1])
    held = columns < spans.sizes[:, None]  # [S, K]
    absent = ~((ids == actual[:, None]) & held).any(dim=1, keepdim=True)
    last = absent & (columns == spans.sizes[:, None] - 1)
    ids = torch.where(last, actual[:, None], ids)
    p = torch.where(held, torch.where(last, own, logits), -torch.inf).softmax(dim=-1)
    alpha = spans.concentration[:, None] * p + ((ids == actual[:, None]) & held)
    drawn = torch.from_numpy(rng.standard_gamma(alpha.double().numpy())) * held
    return ids, (drawn / drawn.sum(dim=-1, keepdim=True)).float()


def span_mask(length: int, spans: Spans) -> Tensor:
    """Return what each superposed position attends to, [S, L + S]: the row before its span, the span so far."""
    plain = torch.arange(length) < spans.starts[:, None]
    same = spans.starts[:, None] == spans.starts
    return torch.cat([plain, same & (spans.places <= spans.places[:, None])], dim=1)


def read_mixtures(model: LlamaForCausalLM, cache: Any, spans: Spans, ids: Tensor, weights: Tensor) -> Tensor:
    """Read spans as mixtures, ids and weights [S, K], after the cache of their row. -> the last states, [S, D]."""
    mixed = (weights[..., None] * model.model.embed_tokens(ids)).sum(dim=1)  # [S, D] x~ = sum_i gamma_i z_i
    mask = span_mask(cache.get_seq_length(), spans)
    states: Tensor = model.model(
        inputs_embeds=mixed[None],
        position_ids=spans.places[None],
        attention_mask=mask[None, None],
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state[0]
    return states


@dataclass(frozen=True, slots=True)
class Reading:
    """The states of a row, and of its spans read as mixtures."""

    plain: Tensor  # [L, D] the last states
    mixed: Tensor  # [S, D]
    spans: Spans


def _read_row(model: LlamaForCausalLM, row: Tensor, low: torch.dtype, rng: np.random.Generator) -> Reading:
    """Read a row [1, L] and spans of it, matrices in precision low; the same rng state gives the same mixtures."""
    spans, cache = draw_spans(row.shape[1], rng), DynamicCache()
    actual = row[0, spans.places]
    with torch.autocast(row.device.type, low, enabled=low != torch.float32):
        out = model.model(input_ids=row, past_key_values=cache, use_cache=True)
        plain = out.last_hidden_state[0]  # [L, D]
        with torch.no_grad():
            embedding = model.model.embed_tokens.weight.to(low)
            ids, logits, own = _top_tokens(plain[spans.places - 1].to(low), embedding, actual)
            ids, weights = sample_mixtures(ids, logits, actual, own, spans, rng)
        mixed = read_mixtures(model, cache, spans, ids, weights)
    return Reading(plain, mixed, spans)


def superposed_loss(model: LlamaForCausalLM, row: Tensor, plan: TrainingPlan, step: int) -> Tensor:
    """Return the mean loss of a row [1, L] in nats, SUPERPOSED_SHARE of it after mixtures."""
    low: torch.dtype = getattr(torch, plan.low)
    reading = _read_row(model, row, low, np.random.default_rng([plan.seed, step, int(row.sum())]))
    weights, after = token_weights(row, plan.end_weight)[0], reading.spans.places + 1
    shares = torch.cat(
        [_normalise(weights[1:]) * (1 - SUPERPOSED_SHARE), _normalise(weights[after]) * SUPERPOSED_SHARE]
    )
    states = torch.cat([reading.plain[:-1], reading.mixed])
    targets = torch.cat([row[0, 1:], row[0, after]])
    loss: Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        states, model.model.embed_tokens.weight, targets, shares, low
    )
    return loss


def _normalise(weights: Tensor) -> Tensor:
    """Scale weights to a sum of 1."""
    return weights / weights.sum()


def measure_superposed(model: LlamaForCausalLM, ids: npt.NDArray[np.uint16], seed: int = 0) -> tuple[float, float]:
    """Return nats per token after mixtures, and after plain text for the same tokens, over rows [N, L]."""
    losses = []
    with torch.inference_mode():
        for number, row in enumerate(torch.from_numpy(ids.astype(np.int64))):
            reading = _read_row(model, row[None], torch.float32, np.random.default_rng([seed, number]))
            places = reading.spans.places
            states = torch.stack([reading.mixed, reading.plain[places]])  # [2, S, D]
            logits = states @ model.model.embed_tokens.weight.T  # [2, S, V]
            targets = row[places + 1].expand(2, -1)
            losses.append(torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none"))
    mixed, plain = torch.cat(losses, dim=1).mean(dim=1).tolist()
    return mixed, plain
