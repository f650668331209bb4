"""The training loop. In: rows of token ids. Out: a checkpoint folder from which a later call resumes.

A step depends only on its number, the seed and the budget, so a resumed run ends with the same weights as one
that was never interrupted. It knows nothing of text.
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
from spd_lsp.training import checkpoint, workers
from spd_lsp.training.attention import BLOCKED
from spd_lsp.training.documents import END_ID, END_WEIGHT, PREFIX_ID
from spd_lsp.training.loss import next_token_loss
from spd_lsp.training.precision import LowCopy

RATE = 0.02  # learning rate of matrices; that of embeddings and norms is EMBEDDING_SHARE of it
EMBEDDING_SHARE = 0.3
_REFILL = 20  # steps: about the length of the optimisers' memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The schedule of a run, in tokens and not in time, so a run may be paused at will."""

    tokens: int  # the budget; a run without decay may be given a larger one later
    rows_a_step: int = 8
    optimiser: str = "muon"  # of the matrices; "adamw": of everything, for a model that is trained already
    matrix_rate: float = RATE
    embedding_rate: float = EMBEDDING_SHARE * RATE
    warm_up: int = 200_000  # tokens until the full rate
    decay: int = 0  # number of last tokens, over which the rate falls to 0
    python_share: float | None = None  # of the rows of the decay; None: the rows come as they are
    clip: float = 1.0
    seed: int = 0
    end_weight: float = END_WEIGHT  # of the end of a gap; every other token counts 1
    low: str = "bfloat16"  # precision of matrix products; weights and sums stay float32
    bits: int = 0  # of the layers' matrices in passes: 4 as they are stored, 0 as `low` says
    checkpoint_minutes: float = 10.0


@dataclass(slots=True)
class Progress:
    """The progress of a run: all that has to be stored beside the tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # CPU time
    resumed: int = 0  # the step of the last start without optimiser state, 0 if none

    def share(self, plan: TrainingPlan) -> float:
        """Return the spent share of the budget, 0 to 1."""
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
    """Return the configuration of the starter model: 9.0 million parameters with 16,384 tokens."""
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
    """Return a model with random weights, which depend only on the seed."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def load_exported(folder: Path) -> LlamaForCausalLM:
    """Load an exported model for further training."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


def create_optimisers(model: LlamaForCausalLM, plan: TrainingPlan) -> dict[str, Optimizer]:
    """Create Muon for the hidden matrices, AdamW for the embedding and the norms; or AdamW for all."""
    if plan.optimiser == "adamw":
        betas = (0.9, 0.98)  # few tokens a step: a longer memory
        return {"adamw": AdamW(model.parameters(), lr=plan.matrix_rate, betas=betas, weight_decay=0.0, fused=True)}
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


def rate(progress: Progress, plan: TrainingPlan) -> float:
    """Return the factor of the learning rate: rising to 1, constant, then falling to 0 over `decay` tokens.

    A run that resumes without optimiser state starts with a low rate again, for a few steps.
    """
    rise = min(1.0, (progress.tokens + 1) / plan.warm_up) if plan.warm_up else 1.0
    if progress.resumed:
        rise = min(rise, (progress.step - progress.resumed + 1) / _REFILL)
    return min(rise, (plan.tokens - progress.tokens) / plan.decay) if plan.decay else rise


def _set_rates(optimisers: dict[str, Optimizer], factor: float) -> None:
    """Scale the initial learning rate of every group."""
    for optimiser in optimisers.values():
        for group in optimiser.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * factor


def batch(rows: U16, step: int, size: int) -> Tensor:
    """Return the rows of a step, [size, L]; the rows repeat."""
    places = np.arange(step * size, (step + 1) * size) % len(rows)
    return torch.from_numpy(rows[places].astype(np.int64))


def token_weights(ids: Tensor, end_weight: float) -> Tensor:
    """Return the weight of each token in the loss, [B, L]: `end_weight` for the end of a gap, else 1."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    last_prefix = torch.where(ids == PREFIX_ID, positions, -1).cummax(dim=1).values
    last_end = torch.where(ids == END_ID, positions, -1).cummax(dim=1).values
    before = torch.nn.functional.pad(last_end, (1, 0), value=-1)[:, :-1]  # the last end before each position
    return torch.where((ids == END_ID) & (last_prefix > before), end_weight, 1.0)


def _row_loss(model: LlamaForCausalLM, row: Tensor, plan: TrainingPlan) -> Tensor:
    """Return the mean loss of a row [1, L] in nats per token."""
    hidden = model.model(input_ids=row, use_cache=False).last_hidden_state  # [1, L, D]
    weights = token_weights(row, plan.end_weight)
    return next_token_loss(hidden, model.model.embed_tokens.weight, row, weights, hidden.dtype)


def _take_step(
    copy: LowCopy[LlamaForCausalLM], optimisers: dict[str, Optimizer], ids: Tensor, plan: TrainingPlan
) -> float:
    """Update once from ids [B, L], row by row to save memory. Return the mean of their losses.

    Each of several processes takes a share of the rows.
    """
    total = torch.zeros(())
    for row in torch.split(ids, 1)[workers.rank() :: workers.count()]:
        loss = _row_loss(copy.model, row, plan) / len(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        copy.move_gradients()
        total += loss.detach()
    parameters = list(copy.master.parameters())
    workers.sum_over_processes([total, *(p.grad for p in parameters if p.grad is not None)])
    torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
    for optimiser in optimisers.values():
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    copy.refresh()
    return float(total)


def train(
    config: LlamaConfig,
    rows: U16,
    plan: TrainingPlan,
    folder: Path,
    report: Callable[[Progress, float], None] = lambda progress, loss: None,
    *,
    start: Path | None = None,
    stop: Callable[[Progress], bool] = lambda progress: False,
) -> LlamaForCausalLM:
    """Train until the budget is spent, resuming from the last checkpoint in `folder` if there is one.

    Otherwise start from the exported model in `start`, or from random weights. `report` is called after every step
    with its loss. If `stop` is true after a step, a checkpoint is saved and the run can be resumed later.
    """
    workers.require_rows(plan.rows_a_step)
    model = load_exported(start) if start else create_model(config, plan.seed)
    optimisers = create_optimisers(model, plan)
    progress = Progress(**checkpoint.load(folder, model, optimisers))
    model.set_attn_implementation(BLOCKED)
    copy = LowCopy(model, getattr(torch, plan.low), bits=plan.bits)
    started, saved = time.process_time() - progress.seconds / workers.count(), time.monotonic()
    while progress.share(plan) < 1.0:
        _set_rates(optimisers, rate(progress, plan))
        ids = batch(rows, progress.step, plan.rows_a_step)
        loss = _take_step(copy, optimisers, ids, plan)
        progress.step += 1
        progress.tokens += plan.rows_a_step * rows.shape[1]
        progress.seconds = (time.process_time() - started) * workers.count()
        report(progress, loss)
        if workers.any_process(stop(progress)):
            break
        if workers.rank() == 0 and time.monotonic() - saved > 60 * plan.checkpoint_minutes:
            checkpoint.save(folder, model, optimisers, progress)
            saved = time.monotonic()
    if workers.rank() == 0:
        checkpoint.save(folder, model, optimisers, progress)
    workers.wait()
    return model
