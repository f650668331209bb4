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
from torch.optim import AdamW
from transformers import LlamaForCausalLM

from ngram_builders.arrays import U16
from spd_lsp.training import checkpoint
from spd_lsp.training.documents import END_ID, END_WEIGHT, PREFIX_ID
from spd_lsp.training.precision import LowCopy

_RATE = 2.5e-4  # a model that is trained already needs a low one
_ROWS_A_STEP = 2  # few rows give a short run more steps
_BETAS = (0.9, 0.98)  # few tokens a step: a longer memory than usual
_REFILL = 20  # steps: about the length of the optimiser's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The schedule of a run, in tokens and not in time, so a run may be paused at will."""

    tokens: int  # the budget
    rows_a_step: int = _ROWS_A_STEP
    rate: float = _RATE
    warm_up: int = 50_000  # tokens until the full rate
    decay: int = 0  # number of last tokens, over which the rate falls to 0
    clip: float = 1.0
    seed: int = 0
    end_weight: float = END_WEIGHT  # of the end of a gap; every other token counts 1
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


def load_exported(folder: Path) -> LlamaForCausalLM:
    """Load a model folder for further training."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model


def create_optimiser(model: LlamaForCausalLM, plan: TrainingPlan) -> AdamW:
    """Create AdamW for all weights."""
    return AdamW(model.parameters(), lr=plan.rate, betas=_BETAS, weight_decay=0.0, fused=True)


def rate_factor(progress: Progress, plan: TrainingPlan) -> float:
    """Return the factor of the learning rate: rising to 1, constant, then falling to 0 over `decay` tokens.

    A run that resumes without optimiser state starts with a low rate again, for a few steps.
    """
    rise = min(1.0, (progress.tokens + 1) / plan.warm_up) if plan.warm_up else 1.0
    if progress.resumed:
        rise = min(rise, (progress.step - progress.resumed + 1) / _REFILL)
    return min(rise, (plan.tokens - progress.tokens) / plan.decay) if plan.decay else rise


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
    """Return the mean loss of a row [1, L] in nats, by the weights of its tokens."""
    logits = model(input_ids=row, use_cache=False).logits[0, :-1].float()  # [L - 1, V]
    weights = token_weights(row, plan.end_weight)[0, 1:]  # [L - 1]
    losses = torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="none")
    return (losses * weights).sum() / weights.sum()


def _take_step(copy: LowCopy[LlamaForCausalLM], optimiser: AdamW, ids: Tensor, plan: TrainingPlan) -> float:
    """Update once from ids [B, L], row by row to save memory. Return the mean of their losses."""
    total = 0.0
    for row in torch.split(ids, 1):
        loss = _row_loss(copy.model, row, plan) / len(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        copy.move_gradients()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(copy.master.parameters(), plan.clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    copy.refresh()
    return total


def train(
    model: LlamaForCausalLM,
    rows: U16,
    plan: TrainingPlan,
    folder: Path,
    report: Callable[[Progress, float], None] = lambda progress, loss: None,
    *,
    stop: Callable[[Progress], bool] = lambda progress: False,
) -> LlamaForCausalLM:
    """Train until the budget is spent, resuming from the last checkpoint in `folder` if there is one.

    `report` is called after every step with its loss. If `stop` is true after a step, a checkpoint is saved and
    the run can be resumed later.
    """
    optimiser = create_optimiser(model, plan)
    progress = Progress(**checkpoint.load(folder, model, optimiser))
    copy = LowCopy(model)
    started = time.process_time() - progress.seconds
    saved = time.monotonic()
    while progress.share(plan) < 1.0:
        optimiser.param_groups[0]["lr"] = plan.rate * rate_factor(progress, plan)
        loss = _take_step(copy, optimiser, batch(rows, progress.step, plan.rows_a_step), plan)
        progress.step += 1
        progress.tokens += plan.rows_a_step * rows.shape[1]
        progress.seconds = time.process_time() - started
        report(progress, loss)
        if stop(progress):
            break
        if time.monotonic() - saved > 60 * plan.checkpoint_minutes:
            checkpoint.save(folder, model, optimiser, progress)
            saved = time.monotonic()
    checkpoint.save(folder, model, optimiser, progress)
    return model
