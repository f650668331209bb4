"""The training loop: rows of token ids go in, a checkpoint folder comes out that a later call goes on from.

Everything that happens at a step follows from its number, the seed and the budget, so a resumed run ends with
the same weights as one that was never interrupted. It knows nothing of text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer
from transformers import LlamaConfig, LlamaForCausalLM

from ngram_builders.arrays import U16
from spd_lsp.training import checkpoint
from spd_lsp.training.documents import END_ID, END_WEIGHT, PREFIX_ID
from spd_lsp.training.loss import next_token_loss

RATE = 0.02  # of matrices; embeddings and norms learn at EMBEDDING_SHARE of it
EMBEDDING_SHARE = 0.3
_REFILL = 20  # steps: about as far as the optimisers remember
Objective = Callable[[LlamaForCausalLM, Tensor, "Plan", int], Tensor]  # of a row, at a step: what is to fall


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how fast to learn. Everything counts tokens, nothing the clock: a run may be paused at will."""

    tokens: int  # the budget; a stable run (decay 0) may be given a larger one later
    rows_a_step: int = 8
    matrix_rate: float = RATE
    embedding_rate: float = EMBEDDING_SHARE * RATE
    warm_up: int = 200_000  # tokens until the rate is full
    decay: int = 0  # the last so many tokens, over which the rate falls to 0
    clip: float = 1.0
    seed: int = 0
    end_weight: float = END_WEIGHT  # of the end of a gap; every other token counts 1
    low: str = "bfloat16"  # precision of matrix products; weights and sums stay float32
    checkpoint_minutes: float = 10.0
    first_row: int = 0  # rows before it were learnt from in an earlier phase


@dataclass(slots=True)
class Progress:
    """Where a run stands; it is all that has to be stored beside the tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # processor time
    resumed: int = 0  # the step at which it last began without the optimisers' memory, 0 if it never did

    def share(self, plan: Plan) -> float:
        """How much of the budget is spent, 0 to 1."""
        return min(1.0, self.tokens / plan.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The size of a model: width, width of the feed-forward, layers and heads."""

    width: int = 256
    inner: int = 704
    layers: int = 6
    heads: int = 4


STARTER_SHAPE = ModelShape()


def starter_config(vocabulary: int, length: int, shape: ModelShape = STARTER_SHAPE) -> LlamaConfig:
    """The shape of the starter model: 9.0 million parameters with 16,384 tokens."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=4,
    )


def create_model(config: LlamaConfig, seed: int) -> LlamaForCausalLM:
    """A fresh model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def load_exported(folder: Path) -> LlamaForCausalLM:
    """An exported model, ready to learn on."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


def create_optimisers(model: LlamaForCausalLM, plan: Plan) -> dict[str, Optimizer]:
    """Muon for the hidden matrices, AdamW for the embedding and the norms."""
    hidden = [p for p in model.model.layers.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim == 1]
    embedding = [model.model.embed_tokens.weight]
    return {
        "muon": Muon(hidden, lr=plan.matrix_rate, weight_decay=0.05, momentum=0.95),
        "adamw": AdamW(
            [{"params": embedding}, {"params": norms}],
            lr=plan.embedding_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
        ),
    }


def rate(progress: Progress, plan: Plan) -> float:
    """The learning rate's factor: up to 1, constant, then straight down to 0 over the last `decay` tokens.

    A run that goes on without its optimisers' memory begins small again, for the few steps that fill it.
    """
    rise = min(1.0, (progress.tokens + 1) / plan.warm_up) if plan.warm_up else 1.0
    if progress.resumed:
        rise = min(rise, (progress.step - progress.resumed + 1) / _REFILL)
    return min(rise, (plan.tokens - progress.tokens) / plan.decay) if plan.decay else rise


def _set_rates(optimisers: dict[str, Optimizer], factor: float) -> None:
    """Scale every group's learning rate from the one it began with."""
    for optimiser in optimisers.values():
        for group in optimiser.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * factor


def batch(rows: U16, step: int, size: int, first: int = 0) -> Tensor:
    """The rows of a step, [size, L], step 0 from row `first` on; after the last row the first one follows."""
    places = np.arange(first + step * size, first + (step + 1) * size) % len(rows)
    return torch.from_numpy(rows[places].astype(np.int64))


def token_weights(ids: Tensor, end_weight: float) -> Tensor:
    """How much each token counts, [B, L]: the end of a gap more, everything else 1."""
    places = torch.arange(ids.shape[1]).expand_as(ids)
    opened = torch.where(ids == PREFIX_ID, places, -1).cummax(dim=1).values
    ended = torch.where(ids == END_ID, places, -1).cummax(dim=1).values
    before = torch.nn.functional.pad(ended, (1, 0), value=-1)[:, :-1]  # the last end left of each place
    return torch.where((ids == END_ID) & (opened > before), end_weight, 1.0)


def plain_loss(model: LlamaForCausalLM, row: Tensor, plan: Plan, step: int) -> Tensor:
    """Mean loss of a row [1, L] in nats a token, the same at every step."""
    low: torch.dtype = getattr(torch, plan.low)
    with torch.autocast(row.device.type, low, enabled=low != torch.float32):
        hidden = model.model(input_ids=row, use_cache=False).last_hidden_state  # [1, L, D]
    return next_token_loss(hidden, model.model.embed_tokens.weight, row, token_weights(row, plan.end_weight), low)


def _take_step(
    model: LlamaForCausalLM,
    optimisers: dict[str, Optimizer],
    ids: Tensor,
    plan: Plan,
    objective: Objective = plain_loss,
    step: int = 0,
) -> float:
    """One update from ids [B, L], row by row to keep memory small; the mean of their losses is returned."""
    total = 0.0
    for row in torch.split(ids, 1):
        loss = objective(model, row, plan, step) / len(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
    for optimiser in optimisers.values():
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return total


def train(
    config: LlamaConfig,
    rows: U16,
    plan: Plan,
    folder: Path,
    report: Callable[[Progress, float], None] = lambda progress, loss: None,
    *,
    start: Path | None = None,
    objective: Objective = plain_loss,
    stop: Callable[[Progress], bool] = lambda progress: False,
) -> LlamaForCausalLM:
    """Learn until the budget is spent, from the last checkpoint in folder if there is one.

    Without one it begins with the exported model in `start`, or with fresh weights. `report` hears of every step
    and its loss. When `stop` says so after a step, a checkpoint is left and the run can be gone on with.
    """
    model = load_exported(start) if start else create_model(config, plan.seed)
    optimisers = create_optimisers(model, plan)
    progress = Progress(**checkpoint.load(folder, model, optimisers))
    began, saved = time.process_time() - progress.seconds, time.monotonic()
    while progress.share(plan) < 1.0:
        _set_rates(optimisers, rate(progress, plan))
        ids = batch(rows, progress.step, plan.rows_a_step, plan.first_row)
        loss = _take_step(model, optimisers, ids, plan, objective, progress.step)
        progress.step += 1
        progress.tokens += plan.rows_a_step * rows.shape[1]
        progress.seconds = time.process_time() - began
        report(progress, loss)
        if stop(progress):
            break
        if time.monotonic() - saved > 60 * plan.checkpoint_minutes:
            checkpoint.save(folder, model, optimisers, progress)
            saved = time.monotonic()
    checkpoint.save(folder, model, optimisers, progress)
    return model
