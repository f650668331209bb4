"""The last phase: learning to read superposed inputs. A row of token ids goes in, a loss comes out.

The decoder reads a plain prompt and then positions that mix its drafts' last tokens, x~ = sum_i gamma_i z_i;
their keys and values stay in the cache (Shen et al. 2024, section 3.1). So it is here: a row is read as it is, and
spans of it are read once more as mixtures, each after the plain tokens before it and blind to the other spans. The
target is the next token of the text, after plain tokens and after mixtures alike.

A mixture holds the token of the text and the model's likeliest others there. Weights gamma ~ Dirichlet(c p + e),
p the model's probabilities, e 1 for the token of the text and 0 for others, make that token i with probability
gamma_i for whoever sees the mixture (the Dirichlet's posterior). So what predicts best is the marginal
sum_i gamma_i p(x | z_i), and the weights say more than the model knew: they are worth reading. A large c leaves
the model's own probabilities; with c = 0 the mixture is the token of the text alone.

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
from spd_lsp.training.train import Plan, weigh

LONGEST = 12  # positions of a span; the paper finds superposition near linear for about ten
_APART = 12  # most plain positions between two spans
MOST = 8  # tokens in a mixture; the fewest is 2
_TRUST = (0.5, 16.0)  # bounds of c: from mixtures that nearly give the token away to the model's own probabilities
SHARE = 0.5  # of the loss that superposed positions bear


@dataclass(frozen=True, slots=True)
class Spans:
    """Which places of a row are read again as mixtures, and what kind of mixture each span has; all [S]."""

    places: Tensor
    starts: Tensor  # the first place of the span that each belongs to
    sizes: Tensor  # tokens in a mixture
    trust: Tensor  # c


def draw_spans(length: int, rng: np.random.Generator) -> Spans:
    """Spans of 1 to LONGEST places, about half of L tokens; a token stands before and after each place."""
    found = list(_bounds(length, rng))
    counts = torch.tensor([end - start for start, end in found])
    drawn = (
        torch.tensor([start for start, _ in found]),
        torch.from_numpy(rng.integers(2, MOST + 1, len(found))),
        torch.from_numpy(np.exp(rng.uniform(math.log(_TRUST[0]), math.log(_TRUST[1]), len(found)))),
    )
    places = torch.cat([torch.arange(start, end) for start, end in found])
    return Spans(places, *(column.repeat_interleave(counts) for column in drawn))


def _bounds(length: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """First place of each span and the place after its last, with up to APART plain places between spans."""
    start = int(rng.integers(1, _APART + 1))
    while start < length - 1:
        end = min(start + int(rng.integers(1, LONGEST + 1)), length - 1)
        yield start, end
        start = end + int(rng.integers(1, _APART + 1))


def _likeliest(states: Tensor, embedding: Tensor, actual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The MOST likeliest tokens after states [S, D] and their logits, [S, K]; and the actual ones', [S, 1]."""
    found = []
    for part, wanted in zip(torch.split(states, CHUNK), torch.split(actual, CHUNK), strict=True):
        logits = part.to(embedding.dtype) @ embedding.T  # [C, V]
        best = logits.topk(MOST, dim=-1)
        found.append((best.indices, best.values.float(), logits.gather(1, wanted[:, None]).float()))
    ids, values, own = (torch.cat(column) for column in zip(*found, strict=True))
    return ids, values, own


def mix(
    ids: Tensor, logits: Tensor, actual: Tensor, own: Tensor, spans: Spans, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Tokens of each mixture and their weights gamma, both [S, K]; what a mixture does not hold weighs 0.

    The actual tokens [S] with their logits own [S, 1] take the last place where the likeliest leave them out.
    """
    columns = torch.arange(ids.shape[1])
    held = columns < spans.sizes[:, None]  # [S, K]
    absent = ~((ids == actual[:, None]) & held).any(dim=1, keepdim=True)
    last = absent & (columns == spans.sizes[:, None] - 1)
    ids = torch.where(last, actual[:, None], ids)
    p = torch.where(held, torch.where(last, own, logits), -torch.inf).softmax(dim=-1)
    alpha = spans.trust[:, None] * p + ((ids == actual[:, None]) & held)
    drawn = torch.from_numpy(rng.standard_gamma(alpha.double().numpy())) * held
    return ids, (drawn / drawn.sum(dim=-1, keepdim=True)).float()


def visible(length: int, spans: Spans) -> Tensor:
    """What each superposed position sees, [S, L + S]: the plain places before its span, and the span so far."""
    plain = torch.arange(length) < spans.starts[:, None]
    same = spans.starts[:, None] == spans.starts
    return torch.cat([plain, same & (spans.places <= spans.places[:, None])], dim=1)


def read_mixtures(model: LlamaForCausalLM, cache: Any, spans: Spans, ids: Tensor, weights: Tensor) -> Tensor:
    """Read spans as mixtures, ids and weights [S, K], after the cache of their row: the last states, [S, D]."""
    mixed = (weights[..., None] * model.model.embed_tokens(ids)).sum(dim=1)  # [S, D] x~ = sum_i gamma_i z_i
    mask = visible(cache.get_seq_length(), spans)
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
    """A row read as it is, and its spans read as mixtures."""

    plain: Tensor  # [L, D] the last states
    mixed: Tensor  # [S, D]
    spans: Spans


def read(model: LlamaForCausalLM, row: Tensor, low: torch.dtype, rng: np.random.Generator) -> Reading:
    """Read a row [1, L] and spans of it, matrices in precision low; the same rng state gives the same mixtures."""
    spans, cache = draw_spans(row.shape[1], rng), DynamicCache()
    actual = row[0, spans.places]
    with torch.autocast(row.device.type, low, enabled=low != torch.float32):
        out = model.model(input_ids=row, past_key_values=cache, use_cache=True)
        plain = out.last_hidden_state[0]  # [L, D]
        with torch.no_grad():
            embedding = model.model.embed_tokens.weight.to(low)
            ids, logits, own = _likeliest(plain[spans.places - 1].to(low), embedding, actual)
            ids, weights = mix(ids, logits, actual, own, spans, rng)
        mixed = read_mixtures(model, cache, spans, ids, weights)
    return Reading(plain, mixed, spans)


def superposed_loss(model: LlamaForCausalLM, row: Tensor, plan: Plan, step: int) -> Tensor:
    """Mean loss of a row [1, L] in nats a token: SHARE of it after mixtures, the rest after plain tokens."""
    low: torch.dtype = getattr(torch, plan.low)
    reading = read(model, row, low, np.random.default_rng([plan.seed, step, int(row.sum())]))
    weights, after = weigh(row, plan.end_weight)[0], reading.spans.places + 1
    shares = torch.cat([_even(weights[1:]) * (1 - SHARE), _even(weights[after]) * SHARE])
    states = torch.cat([reading.plain[:-1], reading.mixed])
    targets = torch.cat([row[0, 1:], row[0, after]])
    loss: Tensor = ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        states, model.model.embed_tokens.weight, targets, shares, low
    )
    return loss


def _even(weights: Tensor) -> Tensor:
    """Weights as shares of their sum."""
    return weights / weights.sum()


def measure_superposed(model: LlamaForCausalLM, ids: npt.NDArray[np.uint16], seed: int = 0) -> tuple[float, float]:
    """Nats a token after mixtures, and of the same tokens after the plain text, over rows [N, L]."""
    found = []
    with torch.inference_mode():
        for number, row in enumerate(torch.from_numpy(ids.astype(np.int64))):
            reading = read(model, row[None], torch.float32, np.random.default_rng([seed, number]))
            places = reading.spans.places
            states = torch.stack([reading.mixed, reading.plain[places]])  # [2, S, D]
            logits = states @ model.model.embed_tokens.weight.T  # [2, S, V]
            wanted = row[places + 1].expand(2, -1)
            found.append(torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none"))
    mixed, plain = torch.cat(found, dim=1).mean(dim=1).tolist()
    return mixed, plain
