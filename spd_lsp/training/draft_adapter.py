"""Train a draft adapter: a frozen model learns to tell the drafts of a mixture apart.

In: an exported model and rows of token ids. Out: the weights of `spd_lsp.models.numpy.decoder.DraftAdapter`.

A row of code is cut into stretches of 1 to 15 tokens. In each, the code is one of some drafts that begin there:
its tokens are mixed with others that the model found likely at the same place, by weights that are drawn once a
stretch. Of the text before it, a stretch sees the tokens, and of itself the mixtures, or in the last layer the
draft that is the code, as while decoding. The adapter is told the code's own tokens, and what it should predict is
the code's next token.

Legend: L positions, S those that are learnt from, D width, F inner width, V vocabulary; H query heads, G key
heads, C width of a head; K drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Muon, Optimizer
from transformers import LlamaForCausalLM

from ngram_builders.arrays import U16
from spd_lsp.training import checkpoint, workers
from spd_lsp.training.train import Progress

_INNER = 512  # F
_ROWS_A_STEP = 2
_RATE = 0.02
_LONGEST_STRETCH = 15  # tokens
_DRAFT_COUNTS = (2, 3, 3, 3, 3, 4, 6)  # K, one of them each stretch
_OTHERS = 7  # likely tokens of a place, of which other drafts are made
_SPREAD = 1.8  # of log gamma before it is normalised
_SAME = 0.3  # how often another draft has the code's own token, as drafts often do
_ALONE = 0.9  # above this gamma the adapter has nothing to learn
_SMALLEST_GAMMA = 1e-3
_EPSILON = 1e-6
_CHECKPOINT_SECONDS = 600
_LOW = torch.bfloat16
KeysValues = tuple[Tensor, Tensor]  # of one layer, [G, L, C] both


class AdapterNetwork(nn.Module):
    """`DraftAdapter` in torch, with the same names of weights; a new one adds nothing."""

    def __init__(self, width: int, inner: int = _INNER) -> None:
        super().__init__()
        self.gate_up = nn.Linear(3 * width, 2 * inner, bias=False)
        self.of_log_gamma = nn.Parameter(torch.zeros(2 * inner))
        self.down = nn.Linear(inner, width, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Tensor, last: Tensor, before: Tensor, gamma: Tensor) -> Tensor:
        """Return what the last layer reads of each draft: x, last, before [S, D], gamma [S] -> [S, D]."""
        u = torch.cat([_normal(x), _normal(last), _normal(before)], dim=-1)
        log_gamma = gamma.clamp_min(_SMALLEST_GAMMA).log()[:, None]
        with _low_precision():
            gate, up = (self.gate_up(u) + log_gamma * self.of_log_gamma).chunk(2, dim=-1)
            added = self.down(functional.silu(gate) * up).float()
        drafts: Tensor = x + (1 - gamma)[:, None] * added
        return drafts

    def load(self, path: Path) -> None:
        """Take the weights of a stored adapter of the same shape."""
        stored = load_file(path)
        for name, parameter in self.named_parameters():
            parameter.data.copy_(stored[name.removesuffix(".weight")])

    def weights(self) -> dict[str, Tensor]:
        """Return the weights as they are stored."""
        parameters = {name.removesuffix(".weight"): parameter for name, parameter in self.named_parameters()}
        return {name: parameter.detach().half().contiguous() for name, parameter in parameters.items()}


def _low_precision() -> torch.autocast:
    """Multiply matrices in bfloat16."""
    return torch.autocast("cpu", _LOW, enabled=torch.float32 != _LOW)


def _normal(x: Tensor) -> Tensor:
    """Rows with a mean square of 1."""
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + _EPSILON)


@dataclass(frozen=True, slots=True)
class Mixtures:
    """What is read at each position of a row instead of its token."""

    embeddings: Tensor  # x~ [L, D]
    gamma: Tensor  # the weight of the code's own token [L]
    starts: Tensor  # where the stretch of each position begins [L]


def draw_mixtures(ids: Tensor, logits: Tensor, embedding: Tensor, seed: int) -> Mixtures:
    """Mix each token of a row [L] with others that were likely there by the logits [L, V] before it."""
    rng, torch_rng = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    starts = torch.from_numpy(_cut_stretches(len(ids), rng))
    gamma = _draw_weights(starts, rng)  # [L, K]
    top = logits.topk(_OTHERS, dim=-1)
    scores, likely = (torch.cat([found[:1], found[:-1]]) for found in top)  # predictions of each position
    p = torch.softmax(scores, dim=-1).masked_fill(likely == ids[:, None], 0) + 1e-9
    others = likely.gather(1, torch.multinomial(p, gamma.shape[1] - 1, replacement=True, generator=torch_rng))
    same = torch.from_numpy(rng.random(others.shape) < _SAME) & (torch.arange(len(ids)) != starts)[:, None]
    tokens = torch.cat([ids[:, None], torch.where(same, ids[:, None], others)], dim=1)  # [L, K]
    return Mixtures((gamma[..., None] * embedding[tokens]).sum(dim=1), gamma[:, 0], starts)


def _cut_stretches(length: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where the stretch of each position begins. [L]"""
    starts, start = np.empty(length, np.int64), 0
    while start < length:
        end = start + int(rng.integers(1, _LONGEST_STRETCH + 1))
        starts[start:end] = start
        start = end
    return starts


def _draw_weights(starts: Tensor, rng: np.random.Generator) -> Tensor:
    """Return the weights of the drafts at each position, the code's first; 0 for drafts not there. [L, K]"""
    size = len(starts), max(_DRAFT_COUNTS)
    weights = np.exp(rng.normal(0, _SPREAD, size))
    weights[np.arange(size[1]) >= rng.choice(_DRAFT_COUNTS, len(starts))[:, None]] = 0
    gamma = torch.from_numpy(weights / weights.sum(axis=1, keepdims=True)).float()
    return gamma[starts]


class FrozenModel:
    """A Llama that reads text, mixtures, and in its last layer drafts; it learns nothing."""

    def __init__(self, model: LlamaForCausalLM, length: int) -> None:
        self.model = model.requires_grad_(False)
        self.layers: Any = model.model.layers
        self.embedding: Tensor = model.model.embed_tokens.weight  # [V, D]
        self.width = self.embedding.shape[1]
        positions = torch.arange(length)
        cos, sin = model.model.rotary_emb(self.embedding[:1], positions[None])
        self.cos, self.sin = cos[0].float(), sin[0].float()  # [L, C]

    def read_text(self, ids: Tensor) -> tuple[Tensor, list[KeysValues]]:
        """Read tokens [L]. -> logits [L, V], and the keys and values of all layers."""
        x, read, positions = self.embedding[ids], [], torch.arange(len(ids))
        for layer in self.layers:
            queries, *own = self._project(layer, x, positions)
            read.append((own[0], own[1]))
            x = self._finish(layer, x, _attend(queries, *own, is_causal=True))
        return self.logits(x), read

    def read_mixtures(self, mixtures: Mixtures, text: list[KeysValues]) -> Tensor:
        """Read mixtures, all layers but the last. -> what that one reads [L, D]"""
        x = mixtures.embeddings
        for layer, read in zip(self.layers[:-1], text[:-1], strict=True):
            x = self._read_after_text(layer, x, torch.arange(len(x)), mixtures.starts, read)
        return x

    def read_drafts(self, drafts: Tensor, positions: Tensor, starts: Tensor, text: list[KeysValues]) -> Tensor:
        """Read the drafts that are the code [L, D] in the last layer. -> logits after some positions [S, V]"""
        return self.logits(self._read_after_text(self.layers[-1], drafts, positions, starts, text[-1]))

    def _read_after_text(
        self, layer: Any, x: Tensor, positions: Tensor, starts: Tensor, text: KeysValues
    ) -> Tensor:
        """Read [L, D] in a layer, each position after its stretch so far and the text before. -> some [S, D]"""
        everywhere = torch.arange(len(x))
        queries, keys, values = self._project(layer, x, everywhere)
        mask = torch.cat(_visible(everywhere, starts), dim=1)[positions]  # [S, 2 L]
        keys, values = torch.cat([text[0], keys], dim=1), torch.cat([text[1], values], dim=1)
        return self._finish(layer, x[positions], _attend(queries[:, positions], keys, values, mask=mask))

    def logits(self, x: Tensor) -> Tensor:
        """The head: [S, D] -> [S, V]."""
        logits: Tensor = self.model.model.norm(x).to(_LOW) @ self.embedding.to(_LOW).T
        return logits.float()

    def _project(self, layer: Any, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [H, S, C], keys and values [G, S, C] of one layer."""
        attention, cos, sin = layer.self_attn, self.cos[positions], self.sin[positions]
        with _low_precision():
            normed = layer.input_layernorm(x)
            projected = [
                project(normed).view(len(x), -1, cos.shape[-1]).transpose(0, 1).float()
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            ]
        queries, keys, values = projected
        return _rotate(queries, cos, sin), _rotate(keys, cos, sin), values

    def _finish(self, layer: Any, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention in a layer: x [S, D], attended [H, S, C] -> [S, D]."""
        with _low_precision():
            x = x + layer.self_attn.o_proj(attended.transpose(0, 1).reshape(len(x), -1)).float()
            finished: Tensor = x + layer.mlp(layer.post_attention_layernorm(x)).float()
        return finished


def _visible(positions: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens before its stretch, and which positions of it, a position sees. [L, L] both"""
    here, there = positions[:, None], positions[None]
    return there < starts[:, None], (there >= starts[:, None]) & (there <= here)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Attention of [H, S, C] to [G, T, C], where the mask [S, T] is true. -> [H, S, C]"""
    bias = None if mask is None else torch.zeros(mask.shape, dtype=_LOW).masked_fill(~mask, -torch.inf)
    q, k, v = (x[None].to(_LOW) for x in (queries, keys, values))
    found: Tensor = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=len(queries) != len(keys)
    )
    return found[0].float()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (first half, second half) by its position's angle. [H, S, C]"""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


@dataclass(frozen=True, slots=True)
class DraftLosses:
    """Nats of the next token at some positions, by how drafts were read. [S] each"""

    gamma: Tensor
    alone: Tensor  # without other drafts
    mixed: Tensor  # from the distribution that all drafts share
    apart: Tensor  # with the adapter


def measure(model: FrozenModel, network: AdapterNetwork, row: Tensor, seed: int) -> DraftLosses:
    """Measure an adapter on the mixtures of a row of token ids [L]."""
    with torch.no_grad():
        logits, text = model.read_text(row)
        mixtures = draw_mixtures(row, logits, model.embedding, seed)
        x = model.read_mixtures(mixtures, text)
        shared, apart = (
            model.read_drafts(drafts, torch.arange(len(row) - 1), mixtures.starts, text)
            for drafts in (x, _adapted(model, network, row, x, mixtures))
        )
    losses = (functional.cross_entropy(one, row[1:], reduction="none") for one in (logits[:-1], shared, apart))
    return DraftLosses(mixtures.gamma[:-1], *losses)


_GAMMA_RANGES = ((0.8, 1.0), (0.3, 0.8), (0.1, 0.3), (0.0, 0.1))


def measure_by_gamma(model: FrozenModel, network: AdapterNetwork, rows: U16, seed: int) -> list[dict[str, float]]:
    """Measure an adapter on rows of token ids: mean nats of each of _GAMMA_RANGES."""
    losses = [
        measure(model, network, torch.from_numpy(row.astype(np.int64)), seed + number)
        for number, row in enumerate(rows)
    ]
    kinds = {
        name: torch.cat([getattr(one, name) for one in losses]) for name in ("gamma", "alone", "mixed", "apart")
    }
    within = [(kinds["gamma"] > low) & (kinds["gamma"] <= high) for low, high in _GAMMA_RANGES]
    return [{name: round(float(found[chosen].mean()), 3) for name, found in kinds.items()} for chosen in within]


def _adapted(model: FrozenModel, network: AdapterNetwork, row: Tensor, x: Tensor, mixtures: Mixtures) -> Tensor:
    """What the last layer reads of the drafts that are the code. [L, D]"""
    before = torch.cat([row[:1], row[:-1]])
    return network(x, model.embedding[row], model.embedding[before], mixtures.gamma)  # type: ignore[no-any-return]


def _row_loss(model: FrozenModel, network: AdapterNetwork, row: Tensor, seed: int) -> Tensor:
    """Return the mean loss over the positions of a row [L] at which there are other drafts."""
    with torch.no_grad():
        logits, text = model.read_text(row)
        mixtures = draw_mixtures(row, logits, model.embedding, seed)
        x = model.read_mixtures(mixtures, text)
    positions = torch.nonzero(mixtures.gamma[:-1] < _ALONE)[:, 0]  # [S]
    drafts = _adapted(model, network, row, x, mixtures)
    found = model.read_drafts(drafts, positions, mixtures.starts, text)
    return functional.cross_entropy(found, row[positions + 1])


def rate(step: int, steps: int) -> float:
    """Return the factor of the learning rate, which falls from 1 to 0."""
    return 1 - step / steps


def train_adapter(
    model: LlamaForCausalLM,
    rows: U16,
    steps: int,
    folder: Path,
    seed: int = 0,
    report: Callable[[Progress, float], None] = lambda progress, loss: None,
    stop: Callable[[Progress], bool] = lambda progress: False,
    *,
    start: Path | None = None,
    past: int = 0,
) -> AdapterNetwork:
    """Train for so many steps of _ROWS_A_STEP rows, resuming from the checkpoint in `folder` if there is one.

    Otherwise start from the adapter in `start`, which has had `past` steps, or from one that adds nothing. Each of
    several processes takes a share of the rows.
    """
    workers.require_rows(_ROWS_A_STEP)
    torch.manual_seed(seed)
    frozen = FrozenModel(model, rows.shape[1])
    network = AdapterNetwork(frozen.width)
    if start:
        network.load(start)
    optimisers: dict[str, Optimizer] = {
        "muon": Muon([network.gate_up.weight, network.down.weight], lr=_RATE, weight_decay=0.0),
        "adamw": AdamW([network.of_log_gamma], lr=_RATE / 4, weight_decay=0.0),
    }
    bases = {kind: optimiser.param_groups[0]["lr"] for kind, optimiser in optimisers.items()}
    progress = Progress(**checkpoint.load(folder, network, optimisers))
    started, saved = time.process_time() - progress.seconds / workers.count(), time.monotonic()
    while progress.step < steps and not workers.any_process(stop(progress)):
        for kind, optimiser in optimisers.items():
            optimiser.param_groups[0]["lr"] = bases[kind] * rate(progress.step, steps)
        loss = _take_step(frozen, network, optimisers, rows, past + progress.step, seed)
        progress.step += 1
        progress.tokens += _ROWS_A_STEP * rows.shape[1]
        progress.seconds = (time.process_time() - started) * workers.count()
        report(progress, loss)
        if workers.rank() == 0 and time.monotonic() - saved > _CHECKPOINT_SECONDS:
            checkpoint.save(folder, network, optimisers, progress)
            saved = time.monotonic()
    if workers.rank() == 0:
        checkpoint.save(folder, network, optimisers, progress)
    workers.wait()
    return network


def _take_step(
    model: FrozenModel,
    network: AdapterNetwork,
    optimisers: dict[str, Optimizer],
    rows: U16,
    step: int,
    seed: int,
) -> float:
    """Update the adapter once; return the mean loss of the rows."""
    total = torch.zeros(())
    for number in range(step * _ROWS_A_STEP, (step + 1) * _ROWS_A_STEP)[workers.rank() :: workers.count()]:
        row = torch.from_numpy(rows[number % len(rows)].astype(np.int64))
        loss = _row_loss(model, network, row, seed * 1_000_003 + number) / _ROWS_A_STEP
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    workers.sum_over_processes([total, *(p.grad for p in network.parameters() if p.grad is not None)])
    for optimiser in optimisers.values():
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return float(total)


def write_adapter(network: AdapterNetwork, path: Path) -> None:
    """Store the weights as float16, for `spd_lsp.models.numpy.recorded`."""
    save_file(network.weights(), path)
