"""The training loop. In: rows of token ids. Out: a checkpoint in one file, from which a later call resumes.

A step depends only on its number and the plan, so a resumed run ends with the same weights as one
that was never interrupted. It knows nothing of text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import LlamaForCausalLM

from ngram_builders.arrays import U16
from ngram_builders.errors import UserError
from spd_lsp.training.rounding import LowCopy
from spd_lsp.training.tokenizer import END_ID, PREFIX_ID

_BETAS = (0.9, 0.98)  # longer memory than usual, as steps have few tokens
_STATE = "adamw"  # prefix of the optimiser's tensors in a checkpoint
_CLIP = 1.0  # of the gradient's norm
_STEPS_A_CHECKPOINT = 40
# The prefix has no end token, so all of its lines teach the model that text continues. But a completion follows
# the prefix, and about every second one ends with its line: a higher weight of the ends compensates.
_END_WEIGHT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The schedule of a run, in tokens and not in time, so a run may be paused at will."""

    tokens: int  # the budget
    decay: int = 0  # number of last tokens, over which the rate falls to 0
    warm_up: int = 50_000  # tokens until the full rate
    rate: float = 2.5e-4  # a model that is trained already needs a low one
    rows_a_step: int = 2  # few rows give a short run more steps


@dataclass(slots=True)
class Progress:
    """The progress of a run, stored beside the tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0  # CPU time


def _token_weights(ids: Tensor) -> Tensor:
    """Return the weight of each token in the loss, [B, L]: more than 1 for the end of a gap."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    last_prefix = torch.where(ids == PREFIX_ID, positions, -1).cummax(dim=1).values
    last_end = torch.where(ids == END_ID, positions, -1).cummax(dim=1).values
    before = torch.nn.functional.pad(last_end, (1, 0), value=-1)[:, :-1]  # the last end before each position
    return torch.where((ids == END_ID) & (last_prefix > before), _END_WEIGHT, 1.0)


def _take_step(low: LowCopy, optimiser: AdamW, ids: Tensor) -> float:
    """Update once from ids [B, L], row by row to save memory. Return the mean of their losses in nats."""
    total = 0.0
    for row in torch.split(ids, 1):
        logits = low.model(input_ids=row, use_cache=False).logits[0, :-1].float()  # [L - 1, V]
        weights = _token_weights(row)[0, 1:]  # [L - 1]
        losses = torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="none")
        loss = (losses * weights).sum() / weights.sum() / len(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        low.move_gradients()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(low.master.parameters(), _CLIP)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    low.refresh()
    return total


def _save_checkpoint(path: Path, model: nn.Module, optimiser: Optimizer, facts: Mapping[str, Any]) -> None:
    """Write everything a resumed run needs, beside the old file, so an interrupted save loses nothing."""
    tensors = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
    for index, values in optimiser.state_dict()["state"].items():
        tensors |= {f"{_STATE}/{index}/{name}": value for name, value in values.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, temporary, metadata={"facts": json.dumps(facts)})
    temporary.replace(path)


def load_checkpoint(path: Path, model: nn.Module, optimiser: Optimizer | None = None) -> dict[str, Any]:
    """Fill model and optimiser from the checkpoint, if there is one, and return its facts."""
    if not path.exists():
        return {}
    with safe_open(path, framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[f"model/{name}"])
    if optimiser is not None:
        state: dict[int, dict[str, Tensor]] = {}
        for title, tensor in tensors.items():
            kind, index, name = title.split("/") if title.startswith(_STATE) else ("", "0", "")
            if kind:
                state.setdefault(int(index), {})[name] = tensor
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    return facts


def train(
    model: LlamaForCausalLM,
    rows: U16,
    plan: TrainingPlan,
    path: Path,
    report: Callable[[Progress, float], None] = lambda progress, loss: None,
) -> None:
    """Train until the budget is spent, resuming from the checkpoint at `path` if there is one.

    `report` is called after every step with its loss.
    """
    optimiser = AdamW(model.parameters(), betas=_BETAS, weight_decay=0.0, fused=True)
    facts = load_checkpoint(path, model, optimiser)
    if facts.get("plan", asdict(plan)) != asdict(plan):
        raise UserError(f"{path} is of a run with other settings, {facts['plan']}; use these, or another --work")
    progress = Progress(**facts.get("progress", {}))
    low = LowCopy(model)
    started = time.process_time() - progress.seconds
    while progress.tokens < plan.tokens:
        # The rate rises, is constant, and falls to 0.
        factor = min(1.0, (progress.tokens + 1) / plan.warm_up) if plan.warm_up else 1.0
        factor = min(factor, (plan.tokens - progress.tokens) / plan.decay) if plan.decay else factor
        optimiser.param_groups[0]["lr"] = plan.rate * factor
        places = (progress.step * plan.rows_a_step + np.arange(plan.rows_a_step)) % len(rows)  # they repeat
        loss = _take_step(low, optimiser, torch.from_numpy(rows[places].astype(np.int64)))
        progress.step += 1
        progress.tokens += plan.rows_a_step * rows.shape[1]
        progress.seconds = time.process_time() - started
        if progress.step % _STEPS_A_CHECKPOINT == 0 or progress.tokens >= plan.tokens:
            _save_checkpoint(path, model, optimiser, {"plan": asdict(plan), "progress": asdict(progress)})
        report(progress, loss)
